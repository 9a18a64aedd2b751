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
    /// The task undoes another one, and has failed after all its attempts.
    UndoFailed {
        /// The code of the failure.
        code: Box<str>,
        /// The message of the failure.
        message: Box<str>,
    },
}

impl BlockReason {
    /// Returns true if the task is an undo that has failed. Then its attempt has ended.
    pub(crate) fn is_undo_failed(&self) -> bool {
        matches!(self, BlockReason::UndoFailed { .. })
    }

    /// Returns `ambiguous`, `nondeterministic` or `undo_failed`.
    pub fn name(&self) -> &'static str {
        match self {
            BlockReason::Ambiguous { .. } => "ambiguous",
            BlockReason::Nondeterministic { .. } => "nondeterministic",
            BlockReason::UndoFailed { .. } => "undo_failed",
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
            BlockReason::UndoFailed { code, message } => write!(formatter, "the undo failed: {code}: {message}"),
        }
    }
}

/// A decision about a blocked task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Resolution {
    /// The call did not happen, and is made again. For a component that was not deterministic, and for an undo that has
    /// failed, a new attempt begins.
    Repeat,
    /// The call happened, and this is its reply.
    Reply(Value),
    /// The task ends with this output.
    Output(Value),
    /// The task fails without another attempt. An undo that fails leaves its task as it is, and the next undo begins.
    Fail(Box<str>),
}
