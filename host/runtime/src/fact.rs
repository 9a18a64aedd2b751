//! What happened in a run, as the journal holds it.
//!
//! A fact is the typed form of an event: it names nodes and edges by index, which mean something together with the graph
//! that the run has pinned. What subscribers see is made from facts in [`crate::publish`].

use flowcell_contract::{Failure, Json, Pause, Value};
use flowcell_flow::graph::{EdgeIx, NodeIx};
use serde::{Deserialize, Serialize};

/// One pass through a body, or the flow itself; unique within a run and never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ScopeId(pub u32);

impl ScopeId {
    /// The flow itself.
    pub const ROOT: ScopeId = ScopeId(0);
}

/// One execution of a node in one scope; unique within a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TaskKey {
    /// In which pass.
    pub scope: ScopeId,
    /// Which node.
    pub node: NodeIx,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Fact {
    /// The run was accepted, with its whole input.
    RunStarted {
        /// Defaults and the caller's members.
        input: Json,
        /// From which attempts derive their random streams.
        seed: u64,
        /// When the run is over at the latest.
        deadline: Option<u64>,
    },
    /// Somebody went on driving the run, after it was parked or its process had ended. Attempts that were running are
    /// begun again.
    RunResumed {
        /// A person asked for it.
        by_hand: bool,
    },
    /// Nobody drives the run any more, until something moves it on.
    RunParked {
        /// When its next timer is due.
        due: Option<u64>,
        /// Why.
        reason: ParkReason,
    },
    /// A phase of the run began. There is one: "Run Flow".
    PhaseStarted,
    /// The phase ended.
    PhaseEnded {
        /// Whether everything in it went well.
        success: bool,
    },
    /// A waiting task's join opened: its input is captured now.
    TaskReady {
        /// Which.
        task: TaskKey,
        /// When the task is over at the latest.
        deadline: Option<u64>,
    },
    /// A waiting task will not run.
    TaskSkipped {
        /// Which.
        task: TaskKey,
        /// Why.
        reason: SkipReason,
    },
    /// A ready task got a permit and begins its next attempt.
    AttemptStarted {
        /// Which.
        task: TaskKey,
    },
    /// A woken task got a permit and goes on with its attempt.
    TaskResumed {
        /// Which.
        task: TaskKey,
    },
    /// A running task gave up its instance.
    TaskPaused {
        /// Which.
        task: TaskKey,
        /// Until when, and what it leaves for itself.
        pause: Box<Pause>,
        /// The state that its attempt has written so far, for nobody else to see yet.
        #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
        writes: Box<[Write]>,
    },
    /// A paused task's pause ended; it waits for a permit.
    TaskWoken {
        /// Which.
        task: TaskKey,
        /// Which of its wakes.
        index: u32,
        /// What the wake brought.
        outcome: Result<Value, Box<Failure>>,
    },
    /// A running task failed and will be tried again.
    TaskRetrying {
        /// Which.
        task: TaskKey,
        /// Why.
        failure: Box<Failure>,
        /// The delay that was chosen.
        delay_ms: u64,
    },
    /// A task's delay is over; it waits for a permit.
    RetryDue {
        /// Which.
        task: TaskKey,
    },
    /// A running task ended with an output.
    TaskSucceeded {
        /// Which.
        task: TaskKey,
        /// Its output.
        output: Value,
    },
    /// A task failed for good.
    TaskFailed {
        /// Which.
        task: TaskKey,
        /// Why.
        failure: Box<Failure>,
        /// The input that it had, if an edge may carry it on.
        input: Option<Json>,
    },
    /// A task was cancelled.
    TaskCancelled {
        /// Which.
        task: TaskKey,
    },
    /// A task is over, but passes or a child of it have to end first.
    TaskClosing {
        /// Which.
        task: TaskKey,
        /// What it ends with; none: cancelled.
        failure: Option<Box<Failure>>,
    },
    /// An edge was settled.
    EdgeSettled {
        /// In which pass.
        scope: ScopeId,
        /// Which.
        edge: EdgeIx,
        /// Whether it fired, or was skipped.
        fired: bool,
    },
    /// Nobody handles the failure of this task: its scope has failed.
    FailureUnhandled {
        /// Which task.
        task: TaskKey,
    },
    /// What is left of a scope is to end.
    ScopeClosing {
        /// Which.
        scope: ScopeId,
    },
    /// A pass through a body began.
    PassStarted {
        /// Which.
        scope: ScopeId,
        /// Whose body.
        owner: TaskKey,
        /// Which pass, from 0.
        index: u32,
        /// The owner's variables in this pass, an object.
        variables: Json,
    },
    /// A pass ended, and what is inside it leaves memory.
    PassEnded {
        /// Which.
        scope: ScopeId,
        /// What it gave.
        outcome: PassOutcome,
    },
    /// A named event came that nobody waits for yet.
    EventKept {
        /// Its name.
        name: Box<str>,
        /// What it brought.
        payload: Value,
    },
    /// A kept event was taken by the wait that came later.
    EventTaken {
        /// Its name.
        name: Box<str>,
    },
    /// Somebody said something to the run.
    MessageSent {
        /// What.
        content: Value,
    },
    /// A person answered a question.
    Replied {
        /// Who had asked.
        task: TaskKey,
        /// `{ "content", "choice"? }`.
        answer: Json,
    },
    /// A task wrote to the log, or measured something.
    Noted {
        /// Which task.
        task: TaskKey,
        /// What.
        note: Box<Note>,
    },
    /// The run is to end.
    CancelRequested {
        /// Why.
        reason: CancelReason,
    },
    /// The run ended.
    RunEnded {
        /// How, and with what.
        end: Box<RunEnd>,
    },
}

/// Why a task was skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// Its own `when` does not hold.
    When,
    /// Its join cannot open any more.
    Join,
    /// It waits on a cycle that nothing enters any more.
    Unreached,
}

/// How a pass ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum PassOutcome {
    /// With a value.
    Done(Json),
    /// With a failure that nothing inside handled.
    Failed(Box<Failure>),
    /// From outside.
    Cancelled,
}

/// One buffered write of an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Write {
    /// Which key.
    pub key: String,
    /// The new value.
    pub value: Value,
    /// The version that the writer has seen and relies on: none if it does not care, 0 if the key must be absent.
    pub expected: Option<u64>,
}

/// Why a run is parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParkReason {
    /// It waits for people, events from outside, or a timer.
    Waiting,
    /// Its process has died again and again, and the run had not moved on.
    CrashLoop,
}

/// Why a run is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelReason {
    /// Somebody asked for it, or the parent ended.
    Requested,
    /// `totalTimeoutMs` of the flow is over.
    TotalTimeout,
}

/// What a task tells besides its outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Note {
    /// A line of text for people.
    Log {
        /// `trace` … `error`.
        level: String,
        /// The line.
        message: String,
    },
    /// A measurement.
    Metric {
        /// What was measured.
        name: String,
        /// The measure.
        value: Json,
        /// By what it is told apart.
        tags: Json,
    },
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RunEnd {
    /// With outputs.
    Succeeded {
        /// The outputs.
        outputs: Json,
    },
    /// With a failure that nothing handled.
    Failed {
        /// The outputs, as far as they are there.
        outputs: Json,
        /// The failure.
        failure: Failure,
        /// The address of the task that failed, if one did.
        task: Option<String>,
    },
    /// Because somebody asked for it.
    Cancelled {
        /// The outputs, as far as they are there.
        outputs: Json,
    },
}
