//! What a run gives: its status, its outputs, what it waits for.

use std::{sync::Arc, time::Duration};

use flowcell_contract::{Failure, Json, Question, RunId};

use crate::{event::Event, fact::BlockReason, question::QuestionRef};

/// How a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Something goes on.
    Running,
    /// Only people or events from outside can move it on.
    Parked,
    /// It ended well.
    Succeeded,
    /// A failure ended it.
    Failed,
    /// Somebody ended it.
    Cancelled,
    /// It asks what to do about a call that must not be repeated.
    NeedsAttention,
}

/// What a run gave.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// Which run.
    pub run_id: RunId,
    /// Of which flow.
    pub flow: Arc<str>,
    /// How it stands.
    pub status: RunStatus,
    /// Its outputs; of a run that did not succeed, what was recorded by then.
    pub outputs: Json,
    /// Everything that happened, in order.
    pub events: Vec<Event>,
    /// How long it took.
    pub duration: Duration,
    /// Why it failed.
    pub error: Option<RunError>,
    /// What it waits for, if it is parked.
    pub waiting: Vec<Waiting>,
}

/// Why a run failed.
#[derive(Clone, Debug, PartialEq)]
pub struct RunError {
    /// The failure.
    pub failure: Failure,
    /// The address of the task that failed, if one did.
    pub task: Option<String>,
}

/// What a parked run waits for.
#[derive(Clone, Debug, PartialEq)]
pub enum Waiting {
    /// An answer.
    Answer {
        /// The address to reply to.
        address: String,
        /// The question.
        question: Box<Question>,
        /// What an answer names to be for this question alone.
        asked: QuestionRef,
    },
    /// A decision: a task of it is blocked.
    Decision {
        /// The address of the task.
        address: String,
        /// Why it cannot go on.
        reason: Box<BlockReason>,
    },
    /// A message to an agent run.
    Message {
        /// The address of its task.
        address: String,
        /// Its id.
        agent_run: Arc<str>,
    },
    /// A named event.
    Event {
        /// The address of the task that waits.
        address: String,
        /// The event's name.
        name: String,
    },
}

/// Why a run does not move by itself.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rest {
    /// For people and events.
    pub(crate) waiting: Vec<Waiting>,
    /// When its next timer is due.
    pub(crate) due: Option<u64>,
}

impl Waiting {
    pub(crate) fn answer(address: String, question: Question, asked: QuestionRef) -> Waiting {
        Waiting::Answer { address, question: Box::new(question), asked }
    }

    /// The address of the task that waits.
    pub fn address(&self) -> &str {
        match self {
            Waiting::Answer { address, .. }
            | Waiting::Decision { address, .. }
            | Waiting::Message { address, .. }
            | Waiting::Event { address, .. } => address,
        }
    }

    /// Whether the run asks what to do about a blocked task.
    pub fn needs_attention(&self) -> bool {
        matches!(self, Waiting::Decision { .. })
    }

    /// The same as its parent sees it.
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
