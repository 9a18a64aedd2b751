//! The outcome of an agent run.

use flowcell_sdk::model::Usage;
use serde_json::{Map, Value, json};

/// Maximum size in bytes of an outcome that the final event shows completely. An event may have at most 64 KiB.
const MAX_SHOWN_BYTES: usize = 60 << 10;
/// Maximum size in bytes of the result text that the final event shows if the outcome is larger than
/// [`MAX_SHOWN_BYTES`].
const MAX_CUT_RESULT_BYTES: usize = 16 << 10;

/// The outcome of an agent run that did not fail.
pub(crate) struct Outcome {
    /// The text of the last answer.
    pub(crate) result: String,
    /// The last answer as JSON, if the agent has an output schema and the answer fits it.
    pub(crate) structured: Option<Value>,
    /// Tokens and cost of all model calls.
    pub(crate) usage: Usage,
    /// Number of turns: 1 for the first messages, and 1 for each inbox message that was added to the conversation.
    pub(crate) turns: u32,
    /// The reason why the agent run ended, such as `end`, `closed` or `max_turns`.
    pub(crate) stop: &'static str,
}

impl Outcome {
    /// Returns the output of the node. If `args` are given, the output contains them, with the members of the
    /// structured answer added. Such a member replaces an argument of the same name.
    pub(crate) fn output(&self, args: Option<Map<String, Value>>) -> Value {
        let mut output = self.to_json();
        if let Some(mut args) = args {
            let over = self.structured.as_ref().and_then(Value::as_object).cloned();
            args.extend(over.unwrap_or_default());
            output["args"] = args.into();
        }
        output
    }

    /// Returns the outcome for the final event. If the outcome is too large, leaves out the structured answer and
    /// returns only the beginning of the result.
    pub(crate) fn for_final_event(&self) -> Value {
        let whole = self.to_json();
        if whole.to_string().len() <= MAX_SHOWN_BYTES {
            return whole;
        }
        let end = self.result.floor_char_boundary(MAX_CUT_RESULT_BYTES);
        json!({
            "result": &self.result[..end], "cut": true, "usage": self.usage, "turns": self.turns,
            "stopReason": self.stop,
        })
    }

    fn to_json(&self) -> Value {
        let mut whole = json!({ "result": self.result });
        if let Some(structured) = &self.structured {
            whole["structuredOutput"] = structured.clone();
        }
        whole["usage"] = json!(self.usage);
        whole["turns"] = self.turns.into();
        whole["stopReason"] = self.stop.into();
        whole
    }
}
