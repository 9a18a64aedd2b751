//! The result of a node: an output, or a pause.

use serde::Serialize;

use crate::{failure::Result, pause::Pause, source::Source, wit::flowcell::node::types as wit};

/// The result of a node.
#[derive(Debug)]
pub enum Step {
    /// The task is done.
    Done(Output),
    /// The instance ends. The task continues in a new instance when an event wakes it.
    Pause(Pause),
}

/// The output of a task.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// One value.
    One(Source),
    /// An object that the host builds from these members.
    Object(Vec<(String, Source)>),
}

impl Output {
    /// Creates an output from a new value.
    pub fn value(value: impl Serialize) -> Result<Output> {
        Source::value(value).map(Output::One)
    }

    /// Creates an output that refers to the part of the input at a JSON Pointer.
    pub fn input(pointer: impl Into<String>) -> Output {
        Output::One(Source::input(pointer))
    }

    /// Creates an output that refers to the part of the wake at a JSON Pointer.
    pub fn woken(pointer: impl Into<String>) -> Output {
        Output::One(Source::woken(pointer))
    }

    /// Creates an object without members.
    pub fn object() -> Output {
        Output::Object(Vec::new())
    }

    /// Adds a member. A single value is replaced with an object that has only this member.
    #[must_use]
    pub fn with(self, key: impl Into<String>, source: Source) -> Output {
        let mut members = match self {
            Output::Object(members) => members,
            Output::One(_) => Vec::new(),
        };
        members.push((key.into(), source));
        Output::Object(members)
    }

    fn into_wit(self) -> wit::Output {
        match self {
            Output::One(source) => wit::Output::One(source.into_wit()),
            Output::Object(members) => {
                wit::Output::Object(members.into_iter().map(|(key, source)| (key, source.into_wit())).collect())
            }
        }
    }
}

impl Step {
    /// Ends the task with a new value.
    pub fn value(value: impl Serialize) -> Result<Step> {
        Output::value(value).map(Step::Done)
    }

    pub(crate) fn into_wit(self) -> wit::Step {
        match self {
            Step::Done(output) => wit::Step::Done(output.into_wit()),
            Step::Pause(pause) => wit::Step::Pause(pause.into_wit()),
        }
    }
}

impl From<Output> for Step {
    fn from(output: Output) -> Step {
        Step::Done(output)
    }
}

impl From<Pause> for Step {
    fn from(pause: Pause) -> Step {
        Step::Pause(pause)
    }
}
