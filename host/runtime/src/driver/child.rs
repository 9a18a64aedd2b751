//! Runs that tasks call: their ids, their flows, and driving them.

use std::{panic::AssertUnwindSafe, sync::Arc};

use flowcell_contract::{Failure, FlowCall, Json, RunId, Value, code};
use futures_util::FutureExt;
use tokio::{sync::mpsc, task::JoinHandle};

use super::{
    Driver,
    options::{Begin, DriveOptions, Identity, merge},
    parent::Parent,
};
use crate::{
    fact::{RunEnd, TaskKey},
    hub::{Channel, Command, Hub},
    limits::MAX_REPEATS,
    live::LivePermit,
    outcome,
    ports::{Pin, Record, StoreError},
    state::RunState,
    versions::SCOPE_MARK,
    world::{Pinned, World},
};

/// Returns the id of the child run that a task of this run calls. The id depends only on the run, the task, the attempt
/// and its resumes. After a move of the run to another version of its flow, a body may start anew, and the numbers of its
/// passes and attempts begin again. They also begin again in a later attempt of the owner of the body. So the id names
/// the scope of the pass, too, if the pass began after a move or in a later attempt.
pub(super) fn run_id(state: &RunState, run: &RunId, key: TaskKey, attempt: u32) -> RunId {
    let began = key.scope.0;
    let moved = state.moved_at > 0 && began >= state.moved_at;
    let scope = if moved || state.scope(key.scope).renewed { format!("{SCOPE_MARK}{began}") } else { String::new() };
    RunId::from(format!("{}{scope}", plain_run_id(state, run, key, attempt)))
}

/// Returns the id of the child run that a task would call if the run had not moved to another version of its flow, and if
/// the owners around the task were in their first attempt.
fn plain_run_id(state: &RunState, run: &RunId, key: TaskKey, attempt: u32) -> RunId {
    let call = nth_call(state, key);
    RunId::from(format!("{run}.{}.{attempt}{call}", state.address(key)))
}

/// Returns a suffix that distinguishes the calls of one attempt, which may call several flows one after another.
fn nth_call(state: &RunState, key: TaskKey) -> String {
    match state.task(key).resumes {
        0 => String::new(),
        resumes => format!("-{resumes}"),
    }
}

/// The parts of a run that its children depend on.
pub(super) struct Caller<'a> {
    pub(super) state: &'a RunState,
    pub(super) identity: &'a Identity,
    pub(super) pin: &'a Pin,
    pub(super) world: &'a Arc<World>,
    /// The run that the calling run repeats.
    pub(super) repeats: Option<&'a RunId>,
    pub(super) options: &'a DriveOptions,
    pub(super) channels: &'a [Arc<dyn Channel>],
}

impl Caller<'_> {
    /// Prepares the run that a task calls: continues the run if the journal already has it, and creates a new run
    /// otherwise.
    pub(super) fn open(&self, key: TaskKey, call: &FlowCall) -> Result<(Driver, Hub, Begin), Failure> {
        let (address, attempt) = (self.state.address(key), self.state.task(key).attempt);
        let run = run_id(self.state, &self.identity.run_id, key, attempt);
        let known = self.world.journal.find(&self.identity.tenant, &run)?;
        let is_new = known.is_none();
        let (graph, record) = match known {
            Some(record) => (self.world.flows.pinned(&record.pin)?, record),
            None => {
                let (flow, repeats) = self.callee(key, attempt, &call.name)?;
                let record = flow.record(flow.graph.policy.clone());
                (flow.graph, Record { called: Some(call.name.clone()), repeats, ..record })
            }
        };
        let record = Record {
            depth: self.identity.depth + 1,
            parent: Some(self.identity.run_id.clone()),
            root: format!("{}/{}{}", self.identity.root, self.state.key_address(key), nth_call(self.state, key)).into(),
            ..record
        };
        let input = merge(&graph.input, call.input.json());
        if is_new {
            self.world.flows.check_input(&graph, &input)?;
        }
        let (mut driver, hub) = Driver::new(self.world, run, graph, record);
        driver.options.answers = self.options.answers.below(&address);
        driver.options.patience_ms = self.options.patience_ms;
        driver.set_channels(self.channels.to_vec());
        hub.start_session();
        let again = driver.recover(true)?;
        Ok((driver, hub, again.unwrap_or(Begin::New(input))))
    }

    /// Finds the flow of a new child.
    ///
    /// The calling run may repeat an earlier run, in which the same task has called a flow by this name. Then the
    /// function returns that flow, made ready for the repetition by
    /// [`Flows::called_again`](crate::world::Flows::called_again), and the child run of the earlier task. It looks for
    /// such a call in the earlier run, then in the run that the earlier run repeats, and so on. It stops at a run that
    /// was removed, and after [`MAX_REPEATS`] runs. If there is no such call, it returns the flow that the library has
    /// under this name, and `None`.
    fn callee(&self, key: TaskKey, attempt: u32, name: &Arc<str>) -> Result<(Pinned, Option<RunId>), Failure> {
        let (mut repeats, mut left) = (self.repeats.cloned(), MAX_REPEATS);
        while let Some(before) = repeats.take().filter(|_| left > 0) {
            left -= 1;
            for attempt in [attempt, 1] {
                let run = plain_run_id(self.state, &before, key, attempt);
                let record = self.world.journal.find(&self.identity.tenant, &run)?;
                let Some(record) = record.filter(|record| record.called.as_ref().unwrap_or(&record.flow) == name)
                else {
                    continue;
                };
                return Ok((self.world.flows.called_again(name, self.pin, &record.pin)?, Some(run)));
            }
            repeats = match self.world.journal.find(&self.identity.tenant, &before) {
                Err(error) if error == StoreError::removed(&before) => {
                    let run = &self.identity.run_id;
                    tracing::warn!(
                        "the run `{run}` calls the present version of `{name}`, because the run `{before}`, which it \
                         repeats, was removed"
                    );
                    None
                }
                found => found?.and_then(|record| record.calls_as().cloned()),
            };
        }
        Ok((self.world.flows.resolve(name, self.pin)?, None))
    }
}

/// Drives a child with its live permit, and reports its end to the run that called it. If the driver of the child
/// panics, so does the driver of the caller. Otherwise the caller would wait forever.
pub(super) fn drive(
    mut driver: Driver,
    begin: Begin,
    permit: LivePermit,
    (task, attempt): (TaskKey, u32),
    commands: mpsc::Sender<Command>,
) -> JoinHandle<()> {
    driver.set_permit(permit);
    driver.parent = Some(Parent::new(commands.clone(), task));
    tokio::spawn(async move {
        if let Err(panic) = AssertUnwindSafe(driver.drive(begin, false)).catch_unwind().await {
            let _ = commands.send(Command::ChildPanicked(panic)).await;
            return;
        }
        if driver.is_refused() || driver.has_stopped() {
            // The process that now drives the run tree resumes this run too.
            return;
        }
        let result = result_of(&driver.identity.run_id, &driver.state);
        // The next child may begin while this one waits for the journal.
        driver.children.release_permit();
        let _ = commands.send(Command::ChildEnded { task, attempt, result }).await;
        driver.commands.close();
        while let Some(command) = driver.commands.recv().await {
            // The run that called this one parks, so nothing else forces the journal.
            if let Command::Settle(answer) = command {
                driver.outbox.acknowledge(answer, Ok(()));
            }
        }
        driver.flush().await;
    })
}

fn result_of(run: &RunId, state: &RunState) -> Result<Value, Failure> {
    match state.end() {
        Some(RunEnd::Succeeded { outputs }) => Ok(Value::from(Json::object([("outputs", outputs.clone())]))),
        Some(RunEnd::Failed { failure, task, .. }) => {
            let failure = outcome::leaving(failure, state.end_names_places);
            // The id of the deepest run includes the ids of all runs above it.
            if failure.details.as_ref().is_some_and(|details| details.get("child").is_some()) {
                return Err(failure);
            }
            let mut place = vec![("run", Json::from(run.as_str()))];
            place.extend(task.as_ref().map(|task| ("task", Json::from(task.as_str()))));
            Err(outcome::add_place(failure, "child", place))
        }
        Some(RunEnd::Cancelled { .. }) | None => Err(Failure::new(code::CANCELLED, "the child run was cancelled")),
    }
}

/// Cancels the run that a task has called, or that waits for a live permit.
pub(super) fn cancel(driver: &mut Driver, task: TaskKey) {
    if let Some(queued) = driver.children.take_queued(task, None) {
        let failure = Failure::new(code::CANCELLED, "the child run was cancelled before it began");
        driver.child_failed(task, queued.attempt, failure);
    }
    if let Some(child) = driver.children.wake(task) {
        tokio::spawn(child.cancel());
    }
}
