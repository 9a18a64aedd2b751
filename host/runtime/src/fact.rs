//! What happened in a run, as the journal holds it.
//!
//! A fact is the typed form of an event: it names nodes and edges by index, which mean something together with the graph
//! that the run has pinned. What subscribers see is made from facts in [`crate::publish`].

mod agent;
mod block;
mod call;
mod received;
mod size;

use flowcell_contract::{Failure, Json, Pause, Value};
use flowcell_flow::graph::{EdgeIx, NodeIx};
use serde::{Deserialize, Serialize};

pub use agent::AgentFact;
pub use block::{BlockReason, Resolution};
pub use call::{Asked, CallDigest, CallRecord, ForAgent, Observed};
pub(crate) use size::value_bytes;

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
        /// Nothing else was driven in the process when it began.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        alone: bool,
    },
    /// Other runs began in the process of a run that was alone there.
    RunAccompanied,
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
        /// What its attempt was given; none: a version that did not record it has written the fact, or the attempt was lost.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        received: Option<Received>,
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
        /// What its attempt was given; none: a version that did not record it has written the fact, or the attempt was lost.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        received: Option<Received>,
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
        /// What its attempt was given; none: a version that did not record it has written the fact, or the attempt was lost.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        received: Option<Received>,
    },
    /// A task failed for good.
    TaskFailed {
        /// Which.
        task: TaskKey,
        /// Why.
        failure: Box<Failure>,
        /// The input that it had, if an edge may carry it on.
        input: Option<Json>,
        /// What its attempt was given; none: a version that did not record it has written the fact, or the attempt was lost.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        received: Option<Received>,
    },
    /// A task was cancelled.
    TaskCancelled {
        /// Which.
        task: TaskKey,
        /// What its attempt was given; none: a version that did not record it has written the fact, or the attempt was lost.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        received: Option<Received>,
    },
    /// A task is over, but passes or a child of it have to end first.
    TaskClosing {
        /// Which.
        task: TaskKey,
        /// What it ends with; none: cancelled.
        failure: Option<Box<Failure>>,
        /// What its attempt was given; none: a version that did not record it has written the fact, or the attempt was lost.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        received: Option<Received>,
    },
    /// A running attempt begins a call that leaves the host.
    CallStarted {
        /// Whose.
        task: TaskKey,
        /// Which call.
        call: Box<CallRecord>,
    },
    /// A call that a person said had not happened leaves again.
    CallRepeated {
        /// Whose.
        task: TaskKey,
        /// In which attempt it was begun.
        attempt: u32,
        /// Which of its calls.
        ordinal: u32,
    },
    /// A call has ended.
    CallEnded {
        /// Whose.
        task: TaskKey,
        /// In which attempt it was begun.
        attempt: u32,
        /// Which of its calls.
        ordinal: u32,
        /// The reply.
        reply: Result<Value, Box<Failure>>,
    },
    /// A task cannot go on before a person has decided.
    TaskBlocked {
        /// Which.
        task: TaskKey,
        /// Why.
        reason: Box<BlockReason>,
    },
    /// A person has decided how a blocked task goes on.
    TaskResolved {
        /// Which.
        task: TaskKey,
        /// What was decided.
        resolution: Box<Resolution>,
    },
    /// A resolved task got a permit and goes through its attempt again, with the calls that it has recorded.
    AttemptRepeated {
        /// Which.
        task: TaskKey,
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
        /// The owner's variables in this pass, an object: all of them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        variables: Option<Json>,
        /// Those without `last`, which is what the pass before gave.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        own: Option<Json>,
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
        /// The attempt that had asked; none: a version that did not record it has written the fact.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attempt: Option<u32>,
        /// The digest of the question.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<Box<str>>,
    },
    /// A task wrote to the log, or measured something.
    Noted {
        /// Which task.
        task: TaskKey,
        /// What.
        note: Box<Note>,
    },
    /// Something about an agent run of a task.
    Agent {
        /// Whose.
        task: TaskKey,
        /// What.
        told: Box<AgentFact>,
        /// What the attempt had been told since its last recorded call, if it is what the attempt itself tells.
        #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
        before: Box<[Observed]>,
    },
    /// An attempt waits for people alone: the time is not its own, and nothing of it need be in memory.
    TaskIdle {
        /// Whose.
        task: TaskKey,
        /// How long it waits at most.
        due: Option<u64>,
    },
    /// It has waited as long as it wanted to.
    TaskBusy {
        /// Whose.
        task: TaskKey,
    },
    /// Somebody has said whether a call may leave, or nobody has in time.
    CallDecided {
        /// Whose.
        task: TaskKey,
        /// In which attempt it was begun.
        attempt: u32,
        /// Which of its calls.
        ordinal: u32,
        /// Whether it may.
        allowed: bool,
        /// What was answered; none: the time was up.
        answer: Option<Json>,
        /// The digest of the question; none: a version that did not record it has written the fact.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<Box<str>>,
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

/// What an attempt was given, as the record of its end tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Received {
    /// SHA-256 of its input and its config as compact JSON texts, each followed by a zero byte: the first 128 bits in
    /// hexadecimal.
    Digest(Box<str>),
    /// Nothing: the node did not run, since its output was kept from the run that this one repeats.
    Nothing,
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
    /// A task of it is blocked.
    NeedsAttention,
    /// The store was brought back from an older copy: what the run had done after that, nobody knows.
    Restored,
}

/// Why a run is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelReason {
    /// Somebody asked for it, or the parent ended.
    Requested,
    /// `totalTimeoutMs` of the flow is over.
    TotalTimeout,
    /// It has more events than a run may have, or larger ones.
    TooLarge,
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
