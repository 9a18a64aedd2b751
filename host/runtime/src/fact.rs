//! The facts of a run, in the form of the journal.
//!
//! A fact is the typed form of an event. It refers to nodes and edges by indices, which have a meaning only with the
//! graphs of the run ([`crate::versions`]). [`crate::publish`] makes the events for subscribers from facts.

mod about;
mod agent;
mod block;
mod call;
mod end;
mod migrated;
mod note;
mod received;
mod size;
mod waits;

use flowcell_contract::{Failure, Json, Pause, Value};
use flowcell_flow::graph::{EdgeIx, NodeIx};
use serde::{Deserialize, Serialize};

use crate::quota::QuotaHold;

pub use about::AboutRun;
pub use agent::AgentFact;
pub use block::{BlockReason, Resolution};
pub use call::{Asked, CallDigest, CallRecord, ForAgent, Observed};
pub use end::{CancelReason, PassOutcome, RunEnd, Unsuccessful};
pub use migrated::{Migrated, Restarted};
pub use note::Note;
pub(crate) use size::value_bytes;
pub use waits::{ParkReason, WaitReason, WaitsFor};

/// One pass through a body, or the flow itself. The number is unique within a run and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ScopeId(pub u32);

impl ScopeId {
    /// The scope of the flow itself.
    pub const ROOT: ScopeId = ScopeId(0);
}

/// One execution of a node in one scope. The key is unique within a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TaskKey {
    /// The pass that contains the task.
    pub scope: ScopeId,
    /// The node that the task executes.
    pub node: NodeIx,
}

/// One fact of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Fact {
    /// The run was accepted, with its whole input.
    RunStarted {
        /// The input members that the caller set, and the defaults of the flow for all others.
        input: Json,
        /// The seed of the random streams of attempts.
        seed: u64,
        /// The time at which the run ends at the latest (milliseconds since 1970).
        deadline: Option<u64>,
        /// The facts about the run that expressions can read. `None`: an older version wrote the fact.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        about: Option<Box<AboutRun>>,
        /// True if cycles of edges repeat their nodes. False: the flow has none, or an older version wrote the fact.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        loops: bool,
        /// True if a node behind nested cycles reads the pass of each one that was left. False: the cycles are not nested,
        /// or an older version wrote the fact. The nodes of its run then read inner cycles as before.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        nested: bool,
        /// True if the seeds of attempts do not show that of the run. False: an older version wrote the fact.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        hides_seed: bool,
    },
    /// A driver resumed the run after it was parked, or after its process had ended. Attempts that were running begin
    /// again.
    RunResumed {
        /// True if a person requested the resumption.
        by_hand: bool,
        /// True if the process drove no other run when the resumption began.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        alone: bool,
    },
    /// The process of the run, which had driven only this run, began to drive other runs.
    RunAccompanied,
    /// The driver parked the run until an event wakes it.
    RunParked {
        /// The time at which the run's next timer is due (milliseconds since 1970).
        due: Option<u64>,
        /// The reason for parking.
        reason: ParkReason,
        /// The first item that the run waits for. `None`: only a timer, or an older version wrote the fact.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        waits_for: Option<Box<WaitsFor>>,
        /// The quota that is used up, if it is the reason for parking.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        quota: Option<Box<QuotaHold>>,
    },
    /// A quota of the tenant is used up. No attempt begins and no call leaves until it renews.
    QuotaReached(Box<QuotaHold>),
    /// The quota has renewed, or the operator has raised it.
    QuotaRenewed,
    /// A phase of the run began. There is only one phase: "Run Flow".
    PhaseStarted,
    /// The phase of the run ended.
    PhaseEnded {
        /// True if the whole phase succeeded.
        success: bool,
    },
    /// The join of a waiting task opened: its input is captured now.
    TaskReady {
        /// The task whose join opened.
        task: TaskKey,
        /// The time at which the task ends at the latest (milliseconds since 1970).
        deadline: Option<u64>,
    },
    /// A waiting task will not run.
    TaskSkipped {
        /// The task that was skipped.
        task: TaskKey,
        /// The reason for the skip.
        reason: SkipReason,
    },
    /// A ready task got a permit and begins its next attempt.
    AttemptStarted {
        /// The task that begins the attempt.
        task: TaskKey,
    },
    /// A woken task got a permit and continues its attempt.
    TaskResumed {
        /// The task that continues.
        task: TaskKey,
    },
    /// A running task paused and released its sandbox.
    TaskPaused {
        /// The task that paused.
        task: TaskKey,
        /// The events that end the pause, and the state that the task keeps for itself.
        pause: Box<Pause>,
        /// The state writes of the attempt so far. Other runs do not see them yet.
        #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
        writes: Box<[Write]>,
        /// The digest of the input, or [`Received::Nothing`]. `None`: an older version wrote the fact, or the attempt
        /// was lost.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        received: Option<Received>,
    },
    /// The pause of a task ended; the task waits for a permit.
    TaskWoken {
        /// The task that was woken.
        task: TaskKey,
        /// The index of the wake among the wakes of the task's pause.
        index: u32,
        /// The value or failure that the wake delivered.
        outcome: Result<Value, Box<Failure>>,
    },
    /// A running task failed and will get another attempt.
    TaskRetrying {
        /// The task that failed.
        task: TaskKey,
        /// The reason for the retry.
        failure: Box<Failure>,
        /// The delay before the next attempt in milliseconds.
        delay_ms: u64,
        /// The digest of the input, or [`Received::Nothing`]. `None`: an older version wrote the fact, or the attempt
        /// was lost.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        received: Option<Received>,
    },
    /// The delay of a task has ended; the task waits for a permit.
    RetryDue {
        /// The task that waited.
        task: TaskKey,
    },
    /// A running task ended with an output.
    TaskSucceeded {
        /// The task that succeeded.
        task: TaskKey,
        /// The output of the task.
        output: Value,
        /// The digest of the input, or [`Received::Nothing`]. `None`: an older version wrote the fact, or the attempt
        /// was lost.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        received: Option<Received>,
    },
    /// A task failed without a further attempt.
    TaskFailed {
        /// The task that failed.
        task: TaskKey,
        /// The reason for the failure.
        failure: Box<Failure>,
        /// The input of the task, if an outgoing edge has `on: error` or `on: end`: the edge offers it to its target as
        /// `inbound.input`.
        input: Option<Json>,
        /// The digest of the input, or [`Received::Nothing`]. `None`: an older version wrote the fact, or the attempt
        /// was lost.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        received: Option<Received>,
    },
    /// A task was cancelled.
    TaskCancelled {
        /// The task that was cancelled.
        task: TaskKey,
        /// The digest of the input, or [`Received::Nothing`]. `None`: an older version wrote the fact, or the attempt
        /// was lost.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        received: Option<Received>,
    },
    /// A task is about to end, but its passes, its child or its calls have to end first.
    TaskClosing {
        /// The task that is closing.
        task: TaskKey,
        /// The failure that the task ends with. `None`: the task ends as cancelled.
        failure: Option<Box<Failure>>,
        /// The digest of the input, or [`Received::Nothing`]. `None`: an older version wrote the fact, or the attempt
        /// was lost.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        received: Option<Received>,
    },
    /// A running attempt begins a call that leaves the host.
    CallStarted {
        /// The task that makes the call.
        task: TaskKey,
        /// The recorded form of the call.
        call: Box<CallRecord>,
    },
    /// A call is made again, after a person decided that it had not happened.
    CallRepeated {
        /// The task that makes the call.
        task: TaskKey,
        /// The attempt that began the call.
        attempt: u32,
        /// The number of the call in its attempt.
        ordinal: u32,
    },
    /// A call did not leave, because a quota of the tenant is used up. Its attempt waits for a permit, and is repeated.
    CallHeld {
        /// The task that makes the call.
        task: TaskKey,
        /// The attempt that began the call.
        attempt: u32,
        /// The number of the call in its attempt.
        ordinal: u32,
    },
    /// A call has ended.
    CallEnded {
        /// The task that made the call.
        task: TaskKey,
        /// The attempt that began the call.
        attempt: u32,
        /// The number of the call in its attempt.
        ordinal: u32,
        /// The reply to the call.
        reply: Result<Value, Box<Failure>>,
    },
    /// A task cannot continue before a person has decided.
    TaskBlocked {
        /// The task that is blocked.
        task: TaskKey,
        /// The reason for the block.
        reason: Box<BlockReason>,
        /// For an undo that has failed: the digest of the input. `None`: another reason, or the attempt was lost.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        received: Option<Received>,
    },
    /// A person has decided how a blocked task continues.
    TaskResolved {
        /// The task that was blocked.
        task: TaskKey,
        /// The decision of the person.
        resolution: Box<Resolution>,
    },
    /// A resolved task got a permit and repeats its attempt, with the recorded calls.
    AttemptRepeated {
        /// The task that repeats its attempt.
        task: TaskKey,
    },
    /// An edge was settled.
    EdgeSettled {
        /// The pass that contains the edge.
        scope: ScopeId,
        /// The edge that was settled.
        edge: EdgeIx,
        /// True if the edge fired; false if it was skipped.
        fired: bool,
    },
    /// No edge or policy handles the failure of this task: its scope has failed.
    FailureUnhandled {
        /// The task that failed.
        task: TaskKey,
    },
    /// The unfinished tasks of a scope have to end.
    ScopeClosing {
        /// The scope that is closing.
        scope: ScopeId,
    },
    /// A pass through a body began.
    PassStarted {
        /// The scope of the pass.
        scope: ScopeId,
        /// The task whose body the pass runs through.
        owner: TaskKey,
        /// The number of the pass, from 0.
        index: u32,
        /// All variables of the owner in this pass, as an object.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        variables: Option<Json>,
        /// The variables without `last`. When the fact is applied, `last` is added: the output of the previous pass.
        /// The fact has either `own` or `variables`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        own: Option<Json>,
        /// True if the pass belongs to a later attempt of its owner, or of an owner around it: passes at the same
        /// address may have called child runs.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        renewed: bool,
    },
    /// A pass ended, and its contents leave memory.
    PassEnded {
        /// The scope of the pass.
        scope: ScopeId,
        /// The outcome of the pass.
        outcome: PassOutcome,
    },
    /// Another pass of a cycle of edges began: the tasks of its nodes start anew.
    CyclePassStarted {
        /// The scope of the cycle.
        scope: ScopeId,
        /// The entry of the cycle.
        entry: NodeIx,
        /// The number of the pass, from 0. The first pass has no fact of its own.
        pass: u32,
    },
    /// The last pass of a cycle of edges ended.
    CycleEnded {
        /// The scope of the cycle.
        scope: ScopeId,
        /// The entry of the cycle.
        entry: NodeIx,
    },
    /// A scope that failed or was cancelled begins to undo its succeeded tasks, the one that succeeded last first.
    UndosBegan {
        /// The scope: the flow itself, or a pass.
        scope: ScopeId,
        /// The end of the scope, after its undos.
        end: Box<Unsuccessful>,
    },
    /// An undo began: the task that undoes another one waits in a scope of its own.
    UndoStarted {
        /// The scope of the undo.
        scope: ScopeId,
        /// The scope that undoes its tasks.
        within: ScopeId,
        /// The task that is undone.
        undone: TaskKey,
        /// The node that undoes it.
        undo: NodeIx,
        /// The path of the pass of that task, which may have ended.
        path: Box<str>,
        /// The value of `undo` in expressions. `None`: the node that undoes the task does not use it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value: Option<Json>,
    },
    /// An undo ended: its task succeeded, or a person decided that it fails.
    UndoEnded {
        /// The scope of the undo.
        scope: ScopeId,
    },
    /// A named event arrived that no task waits for yet.
    EventKept {
        /// The name of the event.
        name: Box<str>,
        /// The value of the event.
        payload: Value,
    },
    /// A task that now waits received a kept event.
    EventTaken {
        /// The name of the event.
        name: Box<str>,
    },
    /// A person sent a message to the run.
    MessageSent {
        /// The content of the message.
        content: Value,
    },
    /// A person answered a question.
    Replied {
        /// The task that asked.
        task: TaskKey,
        /// The answer: `{ "content", "choice"? }`.
        answer: Json,
        /// The attempt that asked. `None`: an older version wrote the fact.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attempt: Option<u32>,
        /// The digest of the question.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<Box<str>>,
    },
    /// A task wrote to the log, or recorded a measurement.
    Noted {
        /// The task that wrote it.
        task: TaskKey,
        /// The log line or measurement.
        note: Box<Note>,
    },
    /// A fact about an agent run of a task.
    Agent {
        /// The task of the agent run.
        task: TaskKey,
        /// The fact about the agent run.
        #[serde(rename = "told")]
        agent_fact: Box<AgentFact>,
        /// The observations of the attempt since its last recorded call. Empty unless the attempt itself reported the
        /// fact.
        #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
        before: Box<[Observed]>,
    },
    /// An attempt waits only for people. The wait does not count towards the timeout of the attempt, and holds no
    /// permit. The driver may evict the attempt.
    TaskIdle {
        /// The task whose attempt waits.
        task: TaskKey,
        /// The time at which the wait ends at the latest (milliseconds since 1970).
        due: Option<u64>,
    },
    /// The time limit of the wait has passed: the attempt continues.
    TaskBusy {
        /// The task whose attempt waited.
        task: TaskKey,
    },
    /// A person decided whether a call may leave, or the time to decide ended.
    CallDecided {
        /// The task that makes the call.
        task: TaskKey,
        /// The attempt that began the call.
        attempt: u32,
        /// The number of the call in its attempt.
        ordinal: u32,
        /// True if the call may leave.
        allowed: bool,
        /// The answer of the person. `None`: the time to decide ended.
        answer: Option<Json>,
        /// The digest of the question. `None`: an older version wrote the fact.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<Box<str>>,
    },
    /// The run moved to another version of its flow.
    Migrated {
        /// The new version, and the nodes that start anew.
        migration: Box<Migrated>,
    },
    /// The run has to end.
    CancelRequested {
        /// The reason for the cancellation.
        reason: CancelReason,
    },
    /// The run ended.
    RunEnded {
        /// The outcome of the run, with its outputs.
        end: Box<RunEnd>,
    },
}

/// The recorded form of an attempt's input, stored in the fact that ends or pauses the attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Received {
    /// SHA-256 of the input and the config as compact JSON texts, each followed by a zero byte: the first 128 bits in
    /// hexadecimal.
    Digest(Box<str>),
    /// The node did not run: its output comes from the run that this one repeats.
    Nothing,
}

/// The reason why a task was skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// The task's own `when` is false.
    When,
    /// The task's join can no longer open.
    Join,
    /// The task waits on a cycle that can no longer be entered.
    Unreached,
}

/// One buffered write of an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Write {
    /// The key that the attempt writes.
    pub key: String,
    /// The new value.
    pub value: Value,
    /// The version that the key must have before this write. `None`: any version. 0: the key must be absent.
    pub expected: Option<u64>,
}
