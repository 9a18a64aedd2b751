//! The answers of a node: an output, or a pause with the events (wakes) that end it.

use std::sync::Arc;

use flowcell_expr::Json;
use serde::{Deserialize, Serialize};

use crate::Value;

/// The answer of one attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Step {
    /// The node's output.
    Done(Value),
    /// The node gives up its instance and continues in a new one.
    Pause(Pause),
}

/// A pause. The first wake that occurs ends it, and the host withdraws the other wakes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pause {
    /// The wakes that end the pause, at least one. `Now`, `Body`, `Each` and `Flow` must be the only wake of their
    /// pause. The runner has checked both rules.
    pub until: Vec<Wake>,
    /// The state that the node reads again after the pause.
    pub state: Value,
}

/// One event that ends a pause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Wake {
    /// A checkpoint: the host records the state, and the node continues at once in a new instance.
    Now,
    /// A timer ends after this many milliseconds.
    After(u64),
    /// A named event sent to the run.
    Event(Arc<str>),
    /// An answer to a question.
    Answer(Question),
    /// One pass through the node's body, with these variables (an object).
    Body(Value),
    /// One pass through the node's body for each item.
    Each(FanOut),
    /// The end of another flow, run as a child.
    Flow(FlowCall),
}

impl Wake {
    /// Returns the name of this kind of wake, which is also the member `wake` in
    /// [`Attempt::woken`](crate::Attempt::woken).
    pub fn name(&self) -> &'static str {
        match self {
            Wake::Now => "now",
            Wake::After(_) => "after",
            Wake::Event(_) => "event",
            Wake::Answer(_) => "answer",
            Wake::Body(_) => "body",
            Wake::Each(_) => "each",
            Wake::Flow(_) => "flow",
        }
    }

    /// Returns true if this wake must be the only wake of its pause.
    pub fn stands_alone(&self) -> bool {
        matches!(self, Wake::Now | Wake::Body(_) | Wake::Each(_) | Wake::Flow(_))
    }
}

/// A durable question to a person.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Question {
    /// The text of the question.
    pub prompt: String,
    /// The allowed answers. If empty, `allow_text` and `schema` decide.
    pub choices: Vec<Choice>,
    /// True if a text that is not one of the choices is an answer, too.
    pub allow_text: bool,
    /// The JSON Schema of the answer's content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Json>,
    /// The names of the people or roles that may answer. If empty, everyone who may answer for the run may answer.
    pub audience: Vec<String>,
}

/// One allowed answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// The value that the node receives.
    pub value: String,
    /// The text that a person sees, if it differs from `value`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// One pass through the body for each item of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FanOut {
    /// The items, a JSON array; the runner has checked that.
    pub items: Value,
    /// The number of concurrent passes. `None`: the host's default.
    pub concurrency: Option<u32>,
    /// True if the first failing pass ends the other passes. False if a failure becomes an item of the result.
    pub stop_on_failure: bool,
    /// The number of passes that may fail if a failure becomes an item of the result. With one more, the fan-out ends and
    /// fails. `None`: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_failures: Option<u32>,
}

/// Another flow, run as a child.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowCall {
    /// The flow's name.
    pub name: Arc<str>,
    /// The input of the child flow.
    pub input: Value,
}
