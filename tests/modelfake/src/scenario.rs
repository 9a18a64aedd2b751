//! The scenario: the turns that the server plays, and their faults.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// The complete configuration of a server.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The API key that each request must send: in `x-api-key` for Messages, as a bearer token for the other dialects.
    #[serde(default = "key")]
    pub key: String,
    /// The turns. The first turn that is left and expects a request answers it, and is then used up.
    pub turns: Vec<Turn>,
}

fn key() -> String {
    "test-key".into()
}

/// One answer, and the request that it expects.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Turn {
    /// The members that a request must have in `{ "dialect": "messages", "chat" or "responses", "lastText", "tools":
    /// [names], "body" }`. An object may have further members, also an object in a list. A list must have the same
    /// length, and any other value must be equal. `None` expects every request.
    pub expect: Option<Value>,
    /// The content of the answer.
    pub reply: Reply,
    /// The size of each sent piece, in bytes. Default: one event per piece.
    pub chunking: Option<usize>,
    /// The line ending. Default: `\n`.
    pub line_end: Option<String>,
    /// The delay before each piece, in milliseconds.
    pub delay_ms: u64,
    /// The token usage that the answer reports.
    pub usage: Tokens,
    /// The fault of the answer, if any.
    pub fault: Option<Fault>,
    /// True if the turn is never used up, so that it answers any number of requests.
    pub repeat: bool,
}

/// The content of an answer.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Reply {
    /// The thinking before the answer. Chat sends it as `reasoning_content`.
    pub thinking: Option<String>,
    /// The text of the answer.
    pub text: Option<String>,
    /// A value whose JSON becomes the text.
    pub json: Option<Value>,
    /// The text of the model's refusal.
    pub refusal: Option<String>,
    /// The tool calls of the model.
    pub tool_calls: Vec<Call>,
    /// The provider's stop reason, instead of the usual one.
    pub stop: Option<String>,
    /// The complete stream, sent as it is.
    pub raw_sse: Option<String>,
}

/// One tool call of the model.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Call {
    /// The id of the call. Default: `call_1` and so on.
    pub id: Option<String>,
    /// The name of the tool.
    pub name: String,
    /// The arguments. Default: `{}`.
    #[serde(default)]
    pub arguments: Value,
    /// The text of the arguments, sent as it is, even if it is not JSON.
    pub raw_arguments: Option<String>,
}

/// The token usage of a turn.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Tokens {
    /// Input tokens that did not come from a cache.
    pub fresh: u64,
    /// Output tokens, including reasoning.
    pub output: u64,
    /// Input tokens that came from a cache.
    pub cache_read: u64,
    /// Input tokens that were written to a cache. Only Messages reports them.
    pub cache_write: u64,
    /// Reasoning tokens among the output tokens. Only OpenAI's dialects report them.
    pub reasoning: u64,
    /// True if the answer reports no usage at all.
    pub missing: bool,
    /// The cost of the turn. Chat sends it as `cost`.
    pub cost: Option<f64>,
}

impl Default for Tokens {
    fn default() -> Tokens {
        Tokens { fresh: 10, output: 5, cache_read: 0, cache_write: 0, reasoning: 0, missing: false, cost: None }
    }
}

/// A fault of an answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Fault {
    /// An error status, with the provider's body for it.
    Status {
        /// The HTTP status code.
        status: u16,
        /// The type of the error, instead of the usual one for the status.
        #[serde(rename = "type")]
        kind: Option<String>,
        /// The code of the error, if the provider's API has one.
        code: Option<String>,
        /// The message of the error.
        message: Option<String>,
        /// Additional headers of the answer.
        #[serde(default)]
        headers: BTreeMap<String, String>,
    },
    /// An error event after this many events.
    ErrorAfter {
        /// The number of events before the error.
        events: usize,
        /// The type of the error.
        #[serde(rename = "type")]
        kind: String,
    },
    /// Closes the connection after this many bytes of the body.
    CutAfter(usize),
    /// Ends the body after this many events, as if it were complete.
    EndAfter(usize),
    /// Sends nothing more after this many events.
    StallAfter(usize),
    /// Sends no answer at all.
    NoHead,
    /// Sends a line of this many bytes before the first event.
    HugeLine(usize),
    /// Sends an HTML page with the status 200.
    Html,
    /// Sends a gzip stream that unpacks to this many bytes.
    GzipBomb(usize),
    /// Redirects to this URL.
    Redirect(String),
    /// Sends the stream with another content type.
    ContentType(String),
    /// Sends unknown events between all others.
    UnknownEvents,
}
