//! The result of a run: its status, its outputs and its open questions.

use std::{sync::Arc, time::Duration};

use flowcell_contract::{Failure, Json, Question, RunId};

use crate::{
    event::Event,
    fact::{BlockReason, WaitReason, WaitsFor},
    limits::MAX_COLUMN_BYTES,
    question::QuestionRef,
    quota::QuotaHold,
};

/// The status of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Work is in progress.
    Running,
    /// Only people or events from outside can continue the run.
    Parked,
    /// The run has ended with its outputs.
    Succeeded,
    /// The run has ended with a failure.
    Failed,
    /// A person or a program cancelled the run.
    Cancelled,
    /// A person has to decide about a blocked task.
    NeedsAttention,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// The id of the run.
    pub run_id: RunId,
    /// The name of the flow.
    pub flow: Arc<str>,
    /// The status of the run.
    pub status: RunStatus,
    /// The outputs of the run. For a run that did not succeed, the outputs recorded so far.
    pub outputs: Json,
    /// All events of the run, in order.
    pub events: Vec<Event>,
    /// The duration of the run.
    pub duration: Duration,
    /// The error of a failed run.
    pub error: Option<RunError>,
    /// The people and events that a parked run waits for.
    pub waiting: Vec<Waiting>,
    /// The quota for which the run is parked until it renews.
    pub quota: Option<QuotaHold>,
}

/// The error of a failed run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunError {
    /// The failure of the run.
    pub failure: Failure,
    /// The address of the failed task, if a task failed.
    pub task: Option<String>,
}

/// An item that a parked run waits for.
#[derive(Clone, Debug, PartialEq)]
pub enum Waiting {
    /// A person has to answer a question.
    Answer {
        /// The address for the reply.
        address: String,
        /// The question that is open.
        question: Box<Question>,
        /// The reference to the question. An answer with this reference counts for no other question.
        asked: QuestionRef,
    },
    /// A person has to decide about a blocked task.
    Decision {
        /// The address of the task.
        address: String,
        /// The reason why the task cannot continue.
        reason: Box<BlockReason>,
    },
    /// An agent run waits for a message.
    Message {
        /// The address of the agent run's task.
        address: String,
        /// The id of the agent run.
        agent_run: Arc<str>,
    },
    /// A task waits for a named event.
    Event {
        /// The address of the task that waits.
        address: String,
        /// The name of the event.
        name: String,
    },
}

/// What an idle run waits for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Idle {
    /// The people and events that the run waits for.
    pub(crate) waiting: Vec<Waiting>,
    /// The time at which the run's next timer is due (milliseconds since 1970). `None`: no timer.
    pub(crate) due: Option<u64>,
    /// The quota because of which tasks of the run wait.
    pub(crate) quota: Option<QuotaHold>,
}

impl Idle {
    /// Returns the state of a run that only a timer continues, which is due at this time (milliseconds since 1970).
    pub(crate) fn until(due: u64) -> Idle {
        Idle { due: Some(due), ..Idle::default() }
    }

    /// Returns the first item that the run waits for: a blocked task if there is one, else the first wait.
    pub(crate) fn first_wait(&self) -> Option<WaitsFor> {
        let blocked = self.waiting.iter().find(|waiting| waiting.needs_attention());
        let first = blocked.or(self.waiting.first())?;
        let reason = match first {
            Waiting::Answer { .. } => WaitReason::Gate,
            Waiting::Message { .. } => WaitReason::Message,
            Waiting::Event { .. } => WaitReason::Event,
            Waiting::Decision { reason, .. } => match **reason {
                BlockReason::Ambiguous { .. } => WaitReason::Ambiguous,
                BlockReason::Nondeterministic { .. } => WaitReason::Nondeterministic,
                BlockReason::UndoFailed { .. } => WaitReason::UndoFailed,
            },
        };
        let others = u32::try_from(self.waiting.len() - 1).unwrap_or(u32::MAX);
        Some(WaitsFor { reason, task: Some(cut_address(first.address()).into()), others })
    }
}

/// Cuts an address to the size of its column.
fn cut_address(address: &str) -> &str {
    &address[..address.floor_char_boundary(MAX_COLUMN_BYTES)]
}

impl Waiting {
    pub(crate) fn answer(address: String, question: Question, asked: QuestionRef) -> Waiting {
        Waiting::Answer { address, question: Box::new(question), asked }
    }

    /// Returns the address of the waiting task.
    pub fn address(&self) -> &str {
        match self {
            Waiting::Answer { address, .. }
            | Waiting::Decision { address, .. }
            | Waiting::Message { address, .. }
            | Waiting::Event { address, .. } => address,
        }
    }

    /// Returns true if a person has to decide about a blocked task.
    pub fn needs_attention(&self) -> bool {
        matches!(self, Waiting::Decision { .. })
    }

    /// Returns the same item with the address that the parent run uses.
    pub(crate) fn within(&self, prefix: &str) -> Waiting {
        let mut waiting = self.clone();
        let (Waiting::Answer { address, .. }
        | Waiting::Decision { address, .. }
        | Waiting::Message { address, .. }
        | Waiting::Event { address, .. }) = &mut waiting;
        *address = format!("{prefix}/{address}");
        waiting
    }
}
