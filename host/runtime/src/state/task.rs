//! One task of a run: its phase, its attempts, and everything that later attempts need.

use std::{collections::BTreeSet, sync::Arc};

use flowcell_contract::{Failure, Json, Pause, Value};
use flowcell_flow::graph::EdgeIx;

use super::fan_out::Each;
use crate::{
    agents::Agents,
    call_log::CallLog,
    fact::{BlockReason, ScopeId, Write},
};

/// One execution of a node in one scope.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Task {
    pub(crate) phase: Phase,
    /// Number of incoming edges that are not settled.
    pub(crate) pending: u32,
    /// Number of incoming edges that fired.
    pub(crate) fired: u32,
    /// The incoming edge that fired first. A join `any` takes its value from this edge.
    pub(crate) first_fired: Option<EdgeIx>,
    /// Number of attempts begun.
    pub(crate) attempt: u32,
    /// Number of these attempts before the task started anew, because the run moved to another version or because a cycle
    /// began another pass. They do not count for the retries.
    pub(crate) earlier: u32,
    /// Number of resumes of this attempt.
    pub(crate) resumes: u32,
    /// Milliseconds that this attempt ran before its last resume.
    pub(crate) ran_ms: u64,
    /// The time at which the task last began to run or wait, for its timers.
    pub(crate) since: u64,
    /// The time that the task's attempt sees. It is the same each time the attempt is repeated.
    pub(crate) clock: u64,
    pub(crate) deadline: Option<u64>,
    pub(crate) captured: Option<Arc<Captured>>,
    /// The recorded output, for every kind of end.
    pub(crate) output: Option<Json>,
    /// The input of a failed task, for its error edges.
    pub(crate) failed_input: Option<Json>,
    /// The details that only tasks with a pause or a retry have.
    pub(crate) details: Option<Box<TaskDetails>>,
    /// The task's calls that leave the host.
    pub(crate) calls: Option<Box<CallLog>>,
    /// How the task's last question ended. `None`: no question of the task has ended since its last pause or attempt
    /// began.
    pub(crate) last_question: Option<LastQuestion>,
    /// True if the task waits only for people.
    pub(crate) idle: bool,
    /// True if the task has called a flow.
    pub(crate) has_called: bool,
    /// The time (milliseconds since 1970) at which the present or latest wait of the task's attempt ends at the latest.
    /// `None`: the wait has no limit, or the attempt has not waited.
    pub(crate) wait_until: Option<u64>,
    /// The agent runs of the task.
    pub(crate) agents: Option<Box<Agents>>,
    /// The reason why the task cannot continue, and the phase that the task had when it was blocked.
    pub(crate) blocked: Option<Box<(BlockReason, Phase)>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TaskDetails {
    pub(crate) pause: Option<Pause>,
    /// The live passes of the task's body.
    pub(crate) passes: BTreeSet<ScopeId>,
    /// Number of passes begun in this attempt.
    pub(crate) passes_begun: u32,
    /// The outcome of the previous pass.
    pub(crate) last: Json,
    /// The variables of the latest pass.
    pub(crate) variables: Json,
    pub(crate) each: Option<Each>,
    /// The outcomes of the passes of this attempt, in order, if the node collects them.
    pub(crate) collected: Vec<Json>,
    /// The state that the component kept in its pause.
    pub(crate) state: Option<Value>,
    /// The state writes of the attempt before its pause. Other runs do not see them yet.
    pub(crate) writes: Box<[Write]>,
    /// The wake that ended the pause.
    pub(crate) woken: Option<Value>,
    /// The end of the delay before the next attempt (milliseconds since 1970).
    pub(crate) retry_due: u64,
    /// The failure of a closing task. `None`: the task was cancelled.
    pub(crate) closing: Option<Failure>,
}

/// The values to which a task's input and config refer, as of the moment when the task became ready. `None`: the
/// value is missing, in a strict flow.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Captured {
    pub(crate) input: Box<[Option<Json>]>,
    pub(crate) config: Box<[Option<Json>]>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    Waiting,
    /// The task waits in the queue to begin an attempt.
    Ready,
    /// The task waits in the queue to continue an attempt.
    Woken,
    Running,
    Paused,
    /// The task waits between two attempts.
    Delayed,
    /// The task waits until a person has decided how it continues.
    Blocked,
    /// The task waits in the queue to repeat its attempt.
    Resolved,
    /// The task is about to end, but its passes, child or calls have to end first.
    Closing,
    Succeeded,
    Failed,
    Skipped,
    Cancelled,
}

impl Phase {
    pub(crate) fn is_end(self) -> bool {
        matches!(self, Phase::Succeeded | Phase::Failed | Phase::Skipped | Phase::Cancelled)
    }
}

/// The end of a question of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastQuestion {
    /// A person answered.
    Answered,
    /// Another wake ended the pause.
    OtherWake,
}

impl Task {
    /// Returns true if calls of the task are in progress.
    pub(crate) fn has_calls_in_progress(&self) -> bool {
        self.calls.as_ref().is_some_and(|calls| calls.under_way().next().is_some())
    }

    /// Returns the number of attempts that count for the retries.
    pub(crate) fn tries(&self) -> u32 {
        self.attempt - self.earlier
    }

    pub(crate) fn calls(&mut self) -> &mut CallLog {
        self.calls.get_or_insert_default()
    }

    /// Marks the attempt as waiting only for people, until `due` at the latest. Adds to `ran_ms` the time for which the
    /// attempt has run since it began or last continued.
    pub(crate) fn idle_from(&mut self, ts: u64, due: Option<u64>) {
        self.ran_ms += ts.saturating_sub(self.since);
        (self.idle, self.wait_until) = (true, due);
    }

    pub(crate) fn agents(&mut self) -> &mut Agents {
        self.agents.get_or_insert_default()
    }

    pub(crate) fn details(&mut self) -> &mut TaskDetails {
        self.details.get_or_insert_default()
    }
}
