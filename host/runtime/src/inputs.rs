//! The inputs of attempts, rendered again from the journal and compared with the digests in it.
//!
//! Inputs are not stored. [`RunState::apply`] folds the journal once. At the end of each attempt, the function that
//! rendered the input for the attempt renders it again from the state. The time is proportional to the length of the
//! journal; the memory is that of the run itself.

mod page;
mod probe;

use std::{
    collections::HashMap,
    ops::ControlFlow,
    panic::{self, AssertUnwindSafe},
    sync::Arc,
};

use flowcell_contract::{Failure, Json, RunId, Tenant, VALUE_BYTES, Value};
use serde::Serialize;

pub use self::{
    page::{Absence, AttemptInput, Input, TaskInputs, Window},
    probe::{Moment, ProbedValues},
};

use crate::{
    capture,
    fact::{Fact, Migrated, Received, ScopeId, TaskKey},
    limits::MAX_READ_UNITS,
    ports::{Journal, Record, StoreError},
    state::RunState,
    versions::RunGraphs,
};

/// The comparison of a rendered input with its digest in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum InputDigest {
    /// The digests are equal.
    Matches,
    /// The digests differ: the journal or the flow was changed, or another version renders it differently.
    Differs,
    /// The journal has no digest for the attempt, for one of these reasons: an older version of Flowcell wrote the
    /// journal; the process of the attempt ended, and the attempt did not run again; the input could not be rendered,
    /// or is too large to be hashed.
    NotRecorded,
    /// The attempt has not ended.
    NotEnded,
    /// The node did not run: its output comes from the run that this one repeats.
    NotRun,
}

/// Maximum number of bytes of a call's reply, as JSON text, that is shown whole.
const MAX_REPLY_BYTES: u64 = 4 << 10;

/// The reply of a call, as far as it is shown.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all_fields = "camelCase", untagged)]
pub enum Reply {
    /// The whole reply.
    Whole {
        /// The reply.
        reply: Json,
    },
    /// The beginning of a large reply.
    Cut {
        /// Its size and its beginning.
        reply_cut: CutText,
    },
}

/// The beginning of a large value.
#[derive(Clone, Debug, Serialize)]
pub struct CutText {
    /// The size of the whole value in bytes, as JSON text.
    pub bytes: usize,
    /// The first characters of the JSON text.
    pub start: String,
}

impl CutText {
    /// The number of characters of `start`.
    pub const CHARS: usize = 1_000;

    /// Returns the beginning of a value.
    pub fn of(value: &Json) -> CutText {
        let text = value.to_text();
        CutText { bytes: text.len(), start: text.chars().take(CutText::CHARS).collect() }
    }
}

impl Reply {
    /// Returns the reply with its beginning only, if it is large and not the wanted one.
    fn new(reply: &Json, is_wanted: bool) -> Reply {
        if is_wanted || reply.measure(MAX_REPLY_BYTES).is_ok_and(|bytes| bytes <= MAX_REPLY_BYTES) {
            return Reply::Whole { reply: reply.clone() };
        }
        Reply::Cut { reply_cut: CutText::of(reply) }
    }

    fn bytes(&self) -> u64 {
        match self {
            Reply::Whole { reply } => reply.measure(VALUE_BYTES).unwrap_or(VALUE_BYTES).max(MAX_REPLY_BYTES),
            Reply::Cut { reply_cut } => reply_cut.start.len() as u64,
        }
    }
}

/// A call that left the host.
#[derive(Clone, Debug, Serialize)]
pub struct MadeCall {
    /// The number of the call in its attempt, from 1.
    pub call: u32,
    /// The capability of the call.
    pub interface: Arc<str>,
    /// The function of the capability.
    pub function: Arc<str>,
    /// The description of the call for people.
    pub about: Json,
    /// The arguments, with long texts cut.
    #[serde(skip_serializing_if = "Json::is_null")]
    pub preview: Json,
    /// The error of a failed call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Json>,
    /// The reply of a call that succeeded.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub reply: Option<Reply>,
}

/// One attempt of a task. `state` is the state of the run when the attempt ended or paused, or at the end of the
/// journal.
pub struct Visited<'a> {
    state: &'a RunState,
    key: TaskKey,
    /// The time of the last event, in milliseconds since 1970.
    now: u64,
    /// The outcome: `succeeded`, `failed`, `cancelled`, `paused`, `retried`, `abandoned` or `running`.
    pub status: &'static str,
    recorded: Option<&'a Received>,
    ended: bool,
    /// The output of the attempt, or its failure. `None`: it has neither, or not yet.
    pub result: Option<Result<&'a Value, &'a Failure>>,
    /// True for a task that ended as `skipped` or `cancelled` without an attempt.
    ended_without_attempt: bool,
    /// The attempt's calls that left the host.
    pub calls: &'a [MadeCall],
}

/// The input of an attempt, rendered again.
pub struct Rendered {
    /// The input and the config. If one of them cannot be rendered: the failure, and the members of the input that can
    /// be rendered.
    pub parts: Result<(Value, Value), (Failure, Value)>,
    /// The digest of the rendered input and config. `None`: they are too large to be written as text, or cannot be
    /// rendered.
    pub received: Option<Received>,
    /// The comparison with the digest in the journal.
    pub digest: InputDigest,
}

impl Visited<'_> {
    /// Returns the address of the task.
    pub fn address(&self) -> String {
        self.state.address(self.key)
    }

    /// Returns the type of the node.
    pub fn node_type(&self) -> &Arc<str> {
        &self.state.graph.node(self.key.node).node_type.name
    }

    /// Returns the number of the attempt, from 1, and its number of resumes.
    pub fn number(&self) -> (u32, u32) {
        let task = self.state.task(self.key);
        (task.attempt, task.resumes)
    }

    /// Returns the time at which the attempt began or was resumed, in milliseconds since 1970.
    pub fn began(&self) -> u64 {
        self.state.task(self.key).clock
    }

    /// Returns the time at which the attempt ended or paused, in milliseconds since 1970. `None`: it has not.
    pub fn ended_at(&self) -> Option<u64> {
        self.ended.then_some(self.now)
    }

    /// Renders the input and config, and compares them with the journal.
    pub fn render(&self) -> Rendered {
        let parts = capture::render(self.state, self.key)
            .map(|(input, config)| (Value::from(input), Value::from(config)))
            .map_err(|failure| (failure, Value::from(capture::render_members(self.state, self.key))));
        let received = parts.as_ref().ok().and_then(|(input, config)| Received::digest_of(input, config));
        let digest = match self.recorded {
            Some(Received::Nothing) => InputDigest::NotRun,
            Some(recorded) if received.as_ref() == Some(recorded) => InputDigest::Matches,
            Some(_) => InputDigest::Differs,
            None if self.ended => InputDigest::NotRecorded,
            None => InputDigest::NotEnded,
        };
        Rendered { parts, received, digest }
    }

    fn is_at(&self, place: &TaskPosition<'_>) -> bool {
        self.state.path_of(self.key).as_str() == place.scope
    }
}

/// The address of a task in two parts: the pass, and the node in it.
#[derive(Clone, Copy, Debug)]
pub struct TaskPosition<'a> {
    /// The address of the pass, such as `process[3]`. Empty for a task of the flow itself.
    pub scope: &'a str,
    /// The id of the node.
    pub node: &'a str,
}

impl<'a> TaskPosition<'a> {
    /// Parses an address such as `process[3].pay`.
    pub fn parse(address: &'a str) -> TaskPosition<'a> {
        let (scope, node) = address.rsplit_once('.').unwrap_or(("", address));
        TaskPosition { scope, node }
    }
}

/// Visits the attempts of a run in the order of their ends, until the visitor stops.
///
/// With a node, it visits only the attempts of this node, and collects their calls. It then also visits the node's
/// tasks that ended without an attempt. `end` is the number of the first event that does not count.
pub fn each_attempt(
    journal: &dyn Journal,
    graphs: &RunGraphs,
    record: &Record,
    (tenant, run): (&Tenant, &RunId),
    (node, end): (Option<&str>, u64),
    visit: &mut dyn FnMut(&Visited<'_>) -> ControlFlow<()>,
) -> Result<(), StoreError> {
    each_attempt_with(journal, graphs, record, (tenant, run), (node, None, end), visit)
}

/// Visits the attempts of a run, as [`each_attempt`] does. The calls with the number `whole_call` have their whole reply, also a
/// large one.
fn each_attempt_with(
    journal: &dyn Journal,
    graphs: &RunGraphs,
    record: &Record,
    (tenant, run): (&Tenant, &RunId),
    (node, whole_call, end): (Option<&str>, Option<u32>, u64),
    visit: &mut dyn FnMut(&Visited<'_>) -> ControlFlow<()>,
) -> Result<(), StoreError> {
    let state = graphs.state(record.policy.clone());
    let mut walk = Walk { state, now: 0, node, whole_call, open: HashMap::new(), visit };
    if fold_units(journal, graphs, (tenant, run), end, &mut |facts, ts| walk.unit(facts, ts))?.is_continue() {
        walk.visit_unended();
    }
    Ok(())
}

/// Passes the facts of each unit of a journal to `fold`, with the time of the unit, until `fold` breaks. Stops before the
/// event with the number `end`, also in the middle of a unit, and before a move to a version that `graphs` does not have:
/// the run has moved since the caller read its record.
fn fold_units(
    journal: &dyn Journal,
    graphs: &RunGraphs,
    (tenant, run): (&Tenant, &RunId),
    end: u64,
    fold: &mut dyn FnMut(&[Fact], u64) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, StoreError> {
    let (mut from, mut moves) = (0, graphs.moves());
    while from < end {
        let units = journal.read(tenant, run, from, MAX_READ_UNITS)?;
        let Some(last) = units.last() else { break };
        from = last.next_seq();
        for unit in units.iter().filter(|unit| unit.first_seq < end) {
            let facts = unit.facts_before(end);
            let moved = facts.iter().filter(|fact| matches!(fact, Fact::Migrated { .. })).count();
            let Some(left) = moves.checked_sub(moved) else { return Ok(ControlFlow::Continue(())) };
            moves = left;
            // The fold panics on facts that do not fit the state. The panic becomes an error of this run alone.
            let folded = panic::catch_unwind(AssertUnwindSafe(|| fold(facts, unit.ts)));
            match folded {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return Ok(ControlFlow::Break(())),
                Err(_) => {
                    let why = format!("the journal of run `{run}` does not fit its flow");
                    return Err(StoreError::damaged(why));
                }
            }
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// The fold of a journal, with the attempts that have begun and not ended.
struct Walk<'a> {
    state: RunState,
    /// The time of the unit that is being folded, in milliseconds since 1970.
    now: u64,
    node: Option<&'a str>,
    /// The number of the calls whose replies are shown whole.
    whole_call: Option<u32>,
    open: HashMap<TaskKey, Vec<MadeCall>>,
    visit: &'a mut dyn FnMut(&Visited<'_>) -> ControlFlow<()>,
}

impl Walk<'_> {
    fn unit(&mut self, facts: &[Fact], ts: u64) -> ControlFlow<()> {
        self.now = ts;
        for fact in facts {
            self.before(fact)?;
            self.state.apply(fact, ts);
            self.after(fact);
        }
        ControlFlow::Continue(())
    }

    /// Visits the attempt that a fact ends, while the state still has its input.
    fn before(&mut self, fact: &Fact) -> ControlFlow<()> {
        let (task, status, received) = match fact {
            Fact::TaskPaused { task, received, .. } => (task, "paused", received),
            Fact::TaskRetrying { task, received, .. } => (task, "retried", received),
            Fact::TaskSucceeded { task, received, .. } => (task, "succeeded", received),
            Fact::TaskFailed { task, received, .. } => (task, "failed", received),
            Fact::TaskCancelled { task, received } => (task, "cancelled", received),
            Fact::TaskClosing { task, failure: Some(_), received } => (task, "failed", received),
            Fact::TaskClosing { task, received, .. } => (task, "cancelled", received),
            Fact::TaskBlocked { task, reason, received } if reason.is_undo_failed() => (task, "failed", received),
            // An attempt that was not deterministic ends without a record of its own.
            Fact::AttemptStarted { task } => (task, "abandoned", &None),
            Fact::TaskSkipped { task, .. } => (task, "skipped", &None),
            Fact::Migrated { migration } => return self.migrated(migration),
            _ => return ControlFlow::Continue(()),
        };
        let result = match fact {
            Fact::TaskSucceeded { output, .. } => Some(Ok(output)),
            Fact::TaskFailed { failure, .. }
            | Fact::TaskRetrying { failure, .. }
            | Fact::TaskClosing { failure: Some(failure), .. } => Some(Err(&**failure)),
            _ => None,
        };
        match self.open.remove(task) {
            Some(calls) => self.visit(*task, status, (received.as_ref(), true, result), &calls),
            None => self.ended_without_attempt(*task, status),
        }
    }

    /// Visits the attempts of the nodes that are gone or start anew in another version.
    fn migrated(&mut self, migration: &Migrated) -> ControlFlow<()> {
        for node in &migration.dropped {
            let task = TaskKey { scope: ScopeId::ROOT, node: *node };
            if let Some(calls) = self.open.remove(&task) {
                self.visit(task, "abandoned", (None, true, None), &calls)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Visits a task of the wanted node that ends before its first attempt.
    fn ended_without_attempt(&mut self, key: TaskKey, status: &'static str) -> ControlFlow<()> {
        let is_over = matches!(status, "skipped" | "cancelled");
        let is_wanted = self.node.is_some() && self.is_wanted(key);
        if !is_over || !is_wanted || self.state.find(key).is_some_and(|task| task.attempt > task.earlier) {
            return ControlFlow::Continue(());
        }
        let (state, now, recorded, ended) = (&self.state, self.now, None, true);
        let end =
            Visited { state, key, now, status, recorded, ended, result: None, ended_without_attempt: true, calls: &[] };
        (self.visit)(&end)
    }

    fn after(&mut self, fact: &Fact) {
        match fact {
            Fact::AttemptStarted { task } | Fact::TaskResumed { task } if self.is_wanted(*task) => {
                self.open.insert(*task, Vec::new());
            }
            Fact::CallStarted { task, call } if self.node.is_some() => {
                if let Some(calls) = self.open.get_mut(task) {
                    let (interface, function) = (call.interface.clone(), call.function.clone());
                    calls.push(MadeCall {
                        call: call.ordinal,
                        interface,
                        function,
                        about: call.about.clone(),
                        preview: call.preview.clone(),
                        error: None,
                        reply: None,
                    });
                }
            }
            Fact::CallEnded { task, ordinal, reply, .. } => {
                let calls = self.open.get_mut(task).into_iter().flatten();
                for call in calls.filter(|call| call.call == *ordinal) {
                    match reply {
                        Ok(reply) => call.reply = Some(Reply::new(reply.json(), self.whole_call == Some(*ordinal))),
                        Err(failure) => call.error = Some(failure.to_json()),
                    }
                }
            }
            _ => {}
        }
    }

    /// Visits the attempts that have not ended.
    fn visit_unended(&mut self) {
        let mut open: Vec<_> = std::mem::take(&mut self.open).into_iter().collect();
        open.sort_unstable_by_key(|(task, _)| *task);
        for (task, calls) in open {
            if self.state.find(task).is_some() && self.visit(task, "running", (None, false, None), &calls).is_break() {
                return;
            }
        }
    }

    fn is_wanted(&self, task: TaskKey) -> bool {
        self.node.is_none_or(|node| self.state.graph.node(task.node).id.as_str() == node)
    }

    fn visit(
        &mut self,
        key: TaskKey,
        status: &'static str,
        (recorded, ended, result): (Option<&Received>, bool, Option<Result<&Value, &Failure>>),
        calls: &[MadeCall],
    ) -> ControlFlow<()> {
        let (state, now) = (&self.state, self.now);
        (self.visit)(&Visited { state, key, now, status, recorded, ended, result, ended_without_attempt: false, calls })
    }
}
