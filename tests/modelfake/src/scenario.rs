//! What the server plays.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// Everything that the server knows.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The key that requests have to show: in `x-api-key` for Messages, as a bearer token for the others.
    #[serde(default = "key")]
    pub key: String,
    /// Each request takes the first turn that is left and expects it.
    pub turns: Vec<Turn>,
}

fn key() -> String {
    "test-key".into()
}

/// One answer.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Turn {
    /// A part of `{ "dialect": "messages", "chat" or "responses", "lastText", "tools": [names], "body" }`: objects match if all
    /// members named here match, anything else if it is the same. Without it, everything is expected.
    pub expect: Option<Value>,
    /// What is answered.
    pub reply: Reply,
    /// Bytes of a piece that is sent at once; an event by default.
    pub chunking: Option<usize>,
    /// What lines end with: `\n` by default.
    pub line_end: Option<String>,
    /// Milliseconds before each piece.
    pub delay_ms: u64,
    /// What the turn is said to use.
    pub usage: Tokens,
    /// What goes wrong.
    pub fault: Option<Fault>,
    /// It answers any number of requests.
    pub repeat: bool,
}

/// What a turn says.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Reply {
    /// Thoughts before it; Chat sends them as `reasoning_content`.
    pub thinking: Option<String>,
    /// Its text.
    pub text: Option<String>,
    /// A value whose JSON is the text.
    pub json: Option<Value>,
    /// The model refuses, in these words.
    pub refusal: Option<String>,
    /// Tools that are called.
    pub tool_calls: Vec<Call>,
    /// The provider's own word for why it stops, instead of the usual one.
    pub stop: Option<String>,
    /// The stream, as it is.
    pub raw_sse: Option<String>,
}

/// A tool that is called.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Call {
    /// Its id; `call_1` and so on by default.
    pub id: Option<String>,
    /// The tool.
    pub name: String,
    /// Its arguments; `{}` by default.
    #[serde(default)]
    pub arguments: Value,
    /// Its arguments as they are, whatever they are.
    pub raw_arguments: Option<String>,
}

/// Tokens.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Tokens {
    /// That were read, without those of a cache.
    pub fresh: u64,
    /// That were written.
    pub output: u64,
    /// That came from a cache.
    pub cache_read: u64,
    /// That went into a cache; only Messages says.
    pub cache_write: u64,
    /// Thoughts among those written; only OpenAI's dialects say.
    pub reasoning: u64,
    /// Nothing is said at all.
    pub missing: bool,
    /// What it cost; Chat sends it as `cost`.
    pub cost: Option<f64>,
}

impl Default for Tokens {
    fn default() -> Tokens {
        Tokens { fresh: 10, output: 5, cache_read: 0, cache_write: 0, reasoning: 0, missing: false, cost: None }
    }
}

/// What goes wrong with an answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Fault {
    /// Another status, with the provider's body for it.
    Status {
        /// The status.
        status: u16,
        /// The error's type, instead of the usual one of the status.
        #[serde(rename = "type")]
        kind: Option<String>,
        /// The error's code.
        code: Option<String>,
        /// Its message.
        message: Option<String>,
        /// More headers.
        #[serde(default)]
        headers: BTreeMap<String, String>,
    },
    /// An error event after so many events.
    ErrorAfter {
        /// Events before.
        events: usize,
        /// The error's type.
        #[serde(rename = "type")]
        kind: String,
    },
    /// The connection is closed after so many bytes of the body.
    CutAfter(usize),
    /// The body ends, as if it were complete, after so many events.
    EndAfter(usize),
    /// Nothing comes any more after so many events.
    StallAfter(usize),
    /// Nothing comes at all.
    NoHead,
    /// A line of so many bytes before the first event.
    HugeLine(usize),
    /// A page for people, with the status 200.
    Html,
    /// A packed stream, which would be so many bytes unpacked.
    GzipBomb(usize),
    /// A redirect.
    Redirect(String),
    /// Another content type.
    ContentType(String),
    /// Events that nobody knows, between all others.
    UnknownEvents,
}
