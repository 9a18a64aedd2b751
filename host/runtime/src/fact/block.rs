//! Blocked tasks: the reasons, and the decisions that end them.

use std::{fmt, sync::Arc};

use flowcell_contract::{Json, Value};
use serde::{Deserialize, Serialize};

/// The reason for which a task cannot continue by itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum BlockReason {
    /// It is unknown whether a call happened, and the call must not be repeated.
    Ambiguous {
        /// The attempt that began the call.
        attempt: u32,
        /// The number of the call within the attempt.
        ordinal: u32,
        /// The capability of the call.
        interface: Arc<str>,
        /// The function of the capability.
        function: Arc<str>,
        /// The description of the call for people.
        about: Json,
    },
    /// The component made other calls than when the attempt first ran.
    Nondeterministic {
        /// The difference between the calls.
        message: Box<str>,
    },
}

impl BlockReason {
    /// Returns `ambiguous` or `nondeterministic`.
    pub fn name(&self) -> &'static str {
        match self {
            BlockReason::Ambiguous { .. } => "ambiguous",
            BlockReason::Nondeterministic { .. } => "nondeterministic",
        }
    }
}

impl fmt::Display for BlockReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BlockReason::Ambiguous { interface, function, about, .. } => {
                write!(formatter, "it is unknown whether `{interface}.{function}` happened")?;
                if about.is_null() { Ok(()) } else { write!(formatter, ": {}", about.to_text()) }
            }
            BlockReason::Nondeterministic { message } => {
                write!(formatter, "the component made another call than the first time: {message}")
            }
        }
    }
}

/// A decision about a blocked task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Resolution {
    /// The call did not happen, and is made again. For a component that was not deterministic, a new attempt begins.
    Repeat,
    /// The call happened, and this is its reply.
    Reply(Value),
    /// The task ends with this output.
    Output(Value),
    /// The task fails without another attempt.
    Fail(Box<str>),
}
