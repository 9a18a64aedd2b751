//! What a node answers with: done, or a pause and what ends it.

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
    /// The node gives up its instance and comes back in a new one.
    Pause(Pause),
}

/// A pause: the first wake wins, the others are withdrawn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pause {
    /// What ends it. `Now`, `Body`, `Each` and `Flow` stand alone; the runner has checked that, and that there is one.
    pub until: Vec<Wake>,
    /// Read again by the node as part `state`.
    pub state: Value,
}

/// One thing that ends a pause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Wake {
    /// A checkpoint: continue at once.
    Now,
    /// A timer, in milliseconds.
    After(u64),
    /// A named event sent to the run.
    Event(Arc<str>),
    /// An answer to a question.
    Answer(Question),
    /// One pass through the node's body, with these variables (an object).
    Body(Value),
    /// One pass through the node's body for every item.
    Each(FanOut),
    /// Another flow, as a child.
    Flow(FlowCall),
}

impl Wake {
    /// The name under which `woken` tells of it.
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

    /// Whether this wake may not have others beside it.
    pub fn stands_alone(&self) -> bool {
        matches!(self, Wake::Now | Wake::Body(_) | Wake::Each(_) | Wake::Flow(_))
    }
}

/// A durable question to a person.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Question {
    /// What is asked.
    pub prompt: String,
    /// Allowed answers; empty: any answer that `allow_text` and `schema` admit.
    pub choices: Vec<Choice>,
    /// Whether free text is an answer too.
    pub allow_text: bool,
    /// JSON Schema of the answer's content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Json>,
    /// Who may answer (names of people or roles); empty: whoever may answer for the run.
    pub audience: Vec<String>,
}

/// One allowed answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// What the node receives.
    pub value: String,
    /// What a person sees, if it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// One pass through the body for every item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FanOut {
    /// An array; the runner has checked that.
    pub items: Value,
    /// Passes at a time; none: the host's default.
    pub concurrency: Option<u32>,
    /// The first failing pass ends the rest; else its failure is an item of the result.
    pub stop_on_failure: bool,
}

/// Another flow, run as a child.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowCall {
    /// The flow's name.
    pub name: Arc<str>,
    /// Its input.
    pub input: Value,
}
