//! What happens to agent runs.

use std::sync::Arc;

use flowcell_contract::{Failure, Json, Value};
use serde::{Deserialize, Serialize};

/// Something about an agent run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum AgentFact {
    /// It began.
    Opened {
        /// What the attempt has told, counted.
        mark: u32,
        /// Its id.
        id: Arc<str>,
        /// What people are shown of it.
        about: Json,
    },
    /// Its component told something.
    Told {
        /// What the attempt has told, counted.
        mark: u32,
        /// Its id.
        id: Arc<str>,
        /// `state`, or a name with a dot.
        kind: Box<str>,
        /// What it told.
        data: Json,
    },
    /// It ended.
    Closed {
        /// What the attempt has told, counted; 0: the host ended it.
        mark: u32,
        /// Its id.
        id: Arc<str>,
        /// Its result.
        outcome: Result<Json, Box<Failure>>,
        /// Messages that it never saw.
        discarded: Box<[Arc<str>]>,
    },
    /// Somebody wrote to it.
    Written {
        /// Its id.
        id: Arc<str>,
        /// What the message is recognised by.
        message: Arc<str>,
        /// What it says.
        value: Value,
    },
    /// It has acted on a message.
    Applied {
        /// Its id.
        id: Arc<str>,
        /// Which message; none: that somebody asked it to finish.
        message: Option<Arc<str>>,
    },
    /// Somebody asked it to finish.
    Closing {
        /// Its id.
        id: Arc<str>,
    },
    /// Its model has answered; the answer is the reply of the call.
    Spoke {
        /// Its id.
        id: Arc<str>,
        /// Which call.
        ordinal: u32,
    },
    /// What the answer took.
    Used {
        /// Its id.
        id: Arc<str>,
        /// Tokens and cost.
        usage: Json,
    },
    /// It calls a tool.
    ToolStarted {
        /// Its id.
        id: Arc<str>,
        /// Which call.
        ordinal: u32,
    },
    /// Somebody has to allow the tool's call; the question is the call's.
    ToolAsked {
        /// Its id.
        id: Arc<str>,
        /// Which call.
        ordinal: u32,
    },
    /// Its tool has answered; the answer is the reply of the call.
    ToolEnded {
        /// Its id.
        id: Arc<str>,
        /// Which call.
        ordinal: u32,
    },
}
