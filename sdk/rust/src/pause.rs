//! Pauses. When a node pauses, its instance ends. When an event ends the pause, the node runs again in a new
//! instance.

use serde::Serialize;
use serde_json::Value;

use crate::{failure::Result, source::Source, wit::flowcell::node::types as wit};

/// The events that wake a node (its wakes), and the state that the node receives when it is woken. The first event ends
/// the pause; the host then cancels the other wakes.
///
/// ```
/// use flowcell_sdk::{Pause, Question};
///
/// let pause = Pause::answer(Question::new("Publish?").choice("yes").choice("no")).or_after_ms(60_000);
/// assert_eq!(pause.until.len(), 2);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Pause {
    /// The events. The first one to happen ends the pause.
    pub until: Vec<Wake>,
    /// The value that [`Task::state`](crate::Task::state) returns after the pause, at most 256 KiB as JSON.
    pub state: Value,
}

/// An event that ends a pause.
#[derive(Clone, Debug, PartialEq)]
pub enum Wake {
    /// Ends the pause at once. The host records the state, and the node continues in a new instance.
    Now,
    /// A timer, in milliseconds.
    After(u64),
    /// A named event that is sent to the run.
    Event(String),
    /// The answer of a person.
    Answer(Question),
    /// The end of one pass of the node's body. The nodes in the body can read these variables (an object).
    Body(Source),
    /// The end of all passes of the node's body, one for each item of a list.
    Each(FanOut),
    /// The end of a child run of another flow.
    Flow(FlowCall),
}

/// A durable question to a person. Without choices any text is an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Question {
    /// The text of the question.
    pub prompt: String,
    /// The answers to choose from: value and label.
    pub choices: Vec<(String, Option<String>)>,
    /// True if a text that is not one of the choices is accepted, too.
    pub allow_text: bool,
    /// JSON Schema of the answer's content.
    pub schema: Option<Value>,
    /// Names or roles of the people who may answer. Empty: all people who may answer for the run.
    pub audience: Vec<String>,
}

impl Question {
    /// Creates a question that accepts any text.
    pub fn new(prompt: impl Into<String>) -> Question {
        Question { prompt: prompt.into(), allow_text: true, ..Question::default() }
    }

    /// Adds a choice. Text other than the choices is then no longer accepted; see [`Question::allow_text`].
    #[must_use]
    pub fn choice(mut self, value: impl Into<String>) -> Question {
        self.choices.push((value.into(), None));
        self.allow_text = false;
        self
    }

    /// Sets whether a text that is not one of the choices is accepted, too.
    #[must_use]
    pub fn allow_text(self, allow_text: bool) -> Question {
        Question { allow_text, ..self }
    }

    fn into_wit(self) -> wit::Question {
        let choice = |(value, label)| wit::Choice { value, label };
        wit::Question {
            prompt: self.prompt,
            choices: self.choices.into_iter().map(choice).collect(),
            allow_text: self.allow_text,
            schema: self.schema.map(|schema| schema.to_string()),
            audience: self.audience,
        }
    }
}

/// A pass of the body for each item of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct FanOut {
    /// The list.
    pub items: Source,
    /// Maximum number of passes that run at the same time. With `None` the host decides.
    pub concurrency: Option<u32>,
    /// If true, the first pass that fails stops the other passes. If false, the failure becomes an item of the
    /// result.
    pub stop_on_failure: bool,
}

/// Another flow, run as a child.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowCall {
    /// The name of the flow.
    pub name: String,
    /// The input, an object.
    pub input: Source,
}

impl Pause {
    /// Creates a pause without state that ends with this event.
    pub fn until(wake: Wake) -> Pause {
        Pause { until: vec![wake], state: Value::Null }
    }

    /// Creates a pause that ends at once: the host records the state, and the node continues in a new instance.
    pub fn now() -> Pause {
        Pause::until(Wake::Now)
    }

    /// Creates a pause of `ms` milliseconds.
    pub fn after_ms(ms: u64) -> Pause {
        Pause::until(Wake::After(ms))
    }

    /// Creates a pause that ends when an event with this name is sent to the run.
    pub fn event(name: impl Into<String>) -> Pause {
        Pause::until(Wake::Event(name.into()))
    }

    /// Creates a pause that ends with the answer of a person.
    pub fn answer(question: Question) -> Pause {
        Pause::until(Wake::Answer(question))
    }

    /// Creates a pause during which the body runs once, with these variables (an object).
    pub fn body(variables: Source) -> Pause {
        Pause::until(Wake::Body(variables))
    }

    /// Creates a pause during which the body runs once for each item of a list.
    pub fn each(fan_out: FanOut) -> Pause {
        Pause::until(Wake::Each(fan_out))
    }

    /// Creates a pause during which another flow runs as a child.
    pub fn flow(name: impl Into<String>, input: Source) -> Pause {
        Pause::until(Wake::Flow(FlowCall { name: name.into(), input }))
    }

    /// Adds another event that may end the pause.
    #[must_use]
    pub fn or(mut self, wake: Wake) -> Pause {
        self.until.push(wake);
        self
    }

    /// Adds a timer that ends the pause after `ms` milliseconds at the latest.
    #[must_use]
    pub fn or_after_ms(self, ms: u64) -> Pause {
        self.or(Wake::After(ms))
    }

    /// Sets the state that [`Task::state`](crate::Task::state) returns in the next instance. Fails if `state` cannot
    /// be serialized.
    pub fn remember(self, state: impl Serialize) -> Result<Pause> {
        Ok(Pause { state: serde_json::to_value(state)?, ..self })
    }

    pub(crate) fn into_wit(self) -> wit::Pause {
        wit::Pause { until: self.until.into_iter().map(Wake::into_wit).collect(), state: self.state.to_string() }
    }
}

impl Wake {
    /// Returns the name of this kind of wake in the WIT and in [`Woken::wake`](crate::Woken).
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

    fn into_wit(self) -> wit::Wake {
        match self {
            Wake::Now => wit::Wake::Now,
            Wake::After(ms) => wit::Wake::After(ms),
            Wake::Event(name) => wit::Wake::Event(name),
            Wake::Answer(question) => wit::Wake::Answer(question.into_wit()),
            Wake::Body(variables) => wit::Wake::Body(variables.into_wit()),
            Wake::Each(fan_out) => wit::Wake::Each(wit::FanOut {
                items: fan_out.items.into_wit(),
                concurrency: fan_out.concurrency,
                stop_on_failure: fan_out.stop_on_failure,
            }),
            Wake::Flow(call) => wit::Wake::Flow(wit::FlowCall { name: call.name, input: call.input.into_wit() }),
        }
    }
}
