//! What an agent run gives.

use flowcell_sdk::model::Usage;
use serde_json::{Map, Value, json};

/// Bytes of an outcome that the event at the end shows whole; an event holds 64 KiB.
const MAX_SHOWN_BYTES: usize = 60 << 10;
/// Bytes of the text of an outcome that is larger.
const CUT_BYTES: usize = 16 << 10;

/// How an agent run ended.
pub(crate) struct Outcome {
    /// The text of the last answer.
    pub(crate) result: String,
    /// The same as JSON, if a schema says what it looks like.
    pub(crate) structured: Option<Value>,
    /// What it took.
    pub(crate) usage: Usage,
    /// User messages that were applied.
    pub(crate) turns: u32,
    /// Why it ended.
    pub(crate) stop: &'static str,
}

impl Outcome {
    /// The node's output. Arguments get the members of the structured answer laid over them.
    pub(crate) fn output(&self, args: Option<Map<String, Value>>) -> Value {
        let mut output = self.whole();
        if let Some(mut args) = args {
            let over = self.structured.as_ref().and_then(Value::as_object).cloned();
            args.extend(over.unwrap_or_default());
            output["args"] = args.into();
        }
        output
    }

    /// What people see of it.
    pub(crate) fn shown(&self) -> Value {
        let whole = self.whole();
        if whole.to_string().len() <= MAX_SHOWN_BYTES {
            return whole;
        }
        let end = self.result.floor_char_boundary(CUT_BYTES);
        json!({
            "result": &self.result[..end], "cut": true, "usage": self.usage, "turns": self.turns,
            "stopReason": self.stop,
        })
    }

    fn whole(&self) -> Value {
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
