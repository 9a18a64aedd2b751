//! The facts about agent runs.

use std::sync::Arc;

use flowcell_contract::{Failure, Json, Value};
use serde::{Deserialize, Serialize};

/// A fact about an agent run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum AgentFact {
    /// The agent run began.
    Opened {
        /// The number of this report among the attempt's reports on agent runs, from 1.
        mark: u32,
        /// The id of the agent run.
        id: Arc<str>,
        /// The description of the agent run for people.
        about: Json,
    },
    /// The component reported on its agent run: a new state of the agent run, or anything else that `kind` names.
    Told {
        /// The number of this report among the attempt's reports on agent runs, from 1.
        mark: u32,
        /// The id of the agent run.
        id: Arc<str>,
        /// The kind of the report: `state`, or a name with a dot.
        kind: Box<str>,
        /// The data of the report.
        data: Json,
    },
    /// The agent run ended.
    Closed {
        /// The number of this report among the attempt's reports on agent runs, from 1. 0: the host ended the agent
        /// run.
        mark: u32,
        /// The id of the agent run.
        id: Arc<str>,
        /// The result of the agent run.
        outcome: Result<Json, Box<Failure>>,
        /// The messages that the agent run never received.
        discarded: Box<[Arc<str>]>,
    },
    /// A person wrote to the agent run.
    Written {
        /// The id of the agent run.
        id: Arc<str>,
        /// The id by which the run recognises a repeated message.
        message: Arc<str>,
        /// The content of the message.
        value: Value,
    },
    /// The agent run has taken a message from its inbox.
    Applied {
        /// The id of the agent run.
        id: Arc<str>,
        /// The id of the message. `None`: the request to finish.
        message: Option<Arc<str>>,
    },
    /// A person asked the agent run to finish.
    Closing {
        /// The id of the agent run.
        id: Arc<str>,
    },
    /// The model of the agent run has answered. The answer is the reply of the call `ordinal`.
    Spoke {
        /// The id of the agent run.
        id: Arc<str>,
        /// The number of the call in its attempt.
        ordinal: u32,
    },
    /// The usage of one answer of the model.
    Used {
        /// The id of the agent run.
        id: Arc<str>,
        /// The tokens and the cost.
        usage: Json,
    },
    /// The agent run calls a tool.
    ToolStarted {
        /// The id of the agent run.
        id: Arc<str>,
        /// The number of the call in its attempt.
        ordinal: u32,
    },
    /// A person has to allow the call of the tool; the record of the call has the question.
    ToolAsked {
        /// The id of the agent run.
        id: Arc<str>,
        /// The number of the call in its attempt.
        ordinal: u32,
    },
    /// The tool has answered. The answer is the reply of the call `ordinal`.
    ToolEnded {
        /// The id of the agent run.
        id: Arc<str>,
        /// The number of the call in its attempt.
        ordinal: u32,
    },
}
