//! Scripts of the provider `simulated`.

use flowcell_contract::Json;
use serde::Deserialize;

use super::reply::Stop;
use crate::code;

/// The codes that a script may fail with.
const CODES: [&str; 13] = [
    code::MODEL_AUTH,
    code::MODEL_PERMISSION,
    code::MODEL_INVALID_REQUEST,
    code::MODEL_NOT_FOUND,
    code::MODEL_TOO_LARGE,
    code::MODEL_CONTEXT_EXCEEDED,
    code::MODEL_RATE_LIMITED,
    code::MODEL_QUOTA,
    code::MODEL_OVERLOADED,
    code::MODEL_TIMEOUT,
    code::MODEL_CONNECT,
    code::MODEL_STREAM_TRUNCATED,
    code::MODEL_BAD_RESPONSE,
];

/// One reply of a script.
///
/// ```yaml
/// - { match: weather, toolCalls: [{ name: get_weather, input: { city: Graz } }] }
/// - { match: weather, text: It is sunny., delayMs: 20, chunk: 4 }
/// - { json: { score: 7 } }
/// - { error: { code: model_overloaded, times: 1 }, text: Now it works. }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Entry {
    /// The last text of the user contains this.
    #[serde(rename = "match")]
    pub matches: Option<String>,
    /// The text of the reply; the usual one if there is nothing else.
    pub text: Option<String>,
    /// A value, whose JSON is the text of the reply.
    pub json: Option<Json>,
    /// Thoughts before it.
    pub thinking: Option<String>,
    /// Calls of tools after it.
    pub tool_calls: Vec<ScriptedCall>,
    /// The turn fails.
    pub error: Option<ScriptedError>,
    /// Milliseconds before the reply.
    pub delay_ms: u64,
    /// Letters of a piece of text that is told, 16 by default.
    pub chunk: Option<usize>,
    /// Milliseconds between two pieces.
    pub chunk_delay_ms: u64,
    /// Why the model stops: `max_tokens`, `refusal` …; `end` or `tool_calls` by default.
    pub stop: Option<String>,
    /// What the turn used; guessed by default.
    pub usage: Option<ScriptedUsage>,
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScriptedCall {
    /// The tool.
    pub name: String,
    /// What it is given; `{}` by default.
    pub input: Option<Json>,
    /// The id of the call; made by default.
    pub id: Option<String>,
}

/// A failure of a turn. Those that pass by themselves are tried again as a provider's would be.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScriptedError {
    /// The failure's code, such as `model_overloaded`.
    pub code: String,
    /// A sentence.
    pub message: Option<String>,
    /// Milliseconds that the provider wants to be left alone.
    pub retry_after_ms: Option<u64>,
    /// So many attempts at the turn fail, then it is answered; all of them by default.
    pub times: Option<u32>,
}

/// Tokens of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedUsage {
    /// Tokens that were read.
    pub input: u64,
    /// Tokens that were written.
    pub output: u64,
}

impl ScriptedCall {
    pub(super) fn input(&self) -> Json {
        self.input.clone().unwrap_or_else(|| Json::object::<&str>([]))
    }
}

impl Entry {
    /// Says what is wrong with it.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.text.is_some() && self.json.is_some() {
            return Err("it has both `text` and `json`".into());
        }
        if self.chunk == Some(0) {
            return Err("`chunk` is at least 1".into());
        }
        if let Some(stop) = self.stop.as_deref().filter(|stop| Stop::named(stop).is_none()) {
            return Err(format!("`stop` is not `{stop}`: {}", Stop::ALL.map(Stop::name).join(", ")));
        }
        match self.error.as_ref().filter(|error| !CODES.contains(&error.code.as_str())) {
            Some(error) => Err(format!("`error.code` is not `{}`: {}", error.code, CODES.join(", "))),
            None => Ok(()),
        }
    }
}
