//! The runs that tasks call: their places, their flows, and what becomes of them.

use std::sync::Arc;

use flowcell_contract::{Failure, FlowCall, Json, RunId, Value, code};
use futures_util::FutureExt;

use super::{Begin, Deferred, Driver, Identity, Parent, children::Queued, merge};
use crate::{
    fact::{RunEnd, TaskKey},
    hub::{Command, Hub},
    limits::{MAX_DEPTH, MAX_REPEATS},
    live::Place,
    outcome,
    ports::Record,
    result::Rest,
    world::Pinned,
};

impl Driver {
    pub(super) fn cancel_child(&mut self, key: TaskKey) {
        self.cancel_queued(key);
        if let Some(hub) = self.children.wake(key) {
            tokio::spawn(async move { hub.abort().await });
        }
    }

    /// Starts the run that a task calls, in its place.
    fn start_child(&mut self, key: TaskKey, call: &FlowCall, place: Place) {
        let attempt = self.state.task(key).attempt;
        let commands = self.site.commands.clone();
        let end = move |result| Command::ChildEnded { task: key, attempt, result };
        let (mut driver, hub, begin) = match self.child(key, attempt, call) {
            Ok(child) => child,
            Err(failure) => {
                self.notes_to_self.push_back(end(Err(failure)));
                return;
            }
        };
        self.has_called = true;
        driver.take(place);
        driver.parent = Some(Parent { commands: commands.clone(), task: key, told: None });
        let driving = tokio::spawn(async move {
            driver.drive(begin, false).await;
            if driver.is_refused() || driver.has_stopped() {
                // Whoever drives the tree now goes on with this run too.
                return;
            }
            let ended = child_result(&driver.identity.run_id, driver.state.end());
            // The next child may begin while this one waits for the journal.
            driver.children.give_place();
            let _ = commands.send(end(ended)).await;
            driver.leave().await;
        });
        self.children.add(key, hub, driving);
    }

    /// The id of the run that a task calls, the same whenever it is asked for.
    pub(super) fn child_id(&self, key: TaskKey, attempt: u32) -> RunId {
        self.child_of_run(&self.identity.run_id, key, attempt)
    }

    /// The id of the child that a run of this flow has at a task.
    fn child_of_run(&self, run: &RunId, key: TaskKey, attempt: u32) -> RunId {
        let call = self.nth_call(key);
        RunId::from(format!("{run}.{}.{attempt}{call}", self.state.address(key)))
    }

    /// An attempt may call one flow after the other.
    fn nth_call(&self, key: TaskKey) -> String {
        match self.state.task(key).resumes {
            0 => String::new(),
            resumes => format!("-{resumes}"),
        }
    }

    /// A driver for the flow that a task calls: of a new run, or of the one that the journal knows.
    fn child(&self, key: TaskKey, attempt: u32, call: &FlowCall) -> Result<(Driver, Hub, Begin), Failure> {
        let address = self.state.address(key);
        let identity = Identity {
            tenant: self.identity.tenant.clone(),
            run_id: self.child_id(key, attempt),
            depth: self.identity.depth + 1,
            parent: Some(self.identity.run_id.clone()),
            root: format!("{}/{address}{}", self.identity.root, self.nth_call(key)).into(),
        };
        let known = self.world.journal.find(&identity.tenant, &identity.run_id)?;
        let new = known.is_none();
        let (flow, policy, repeats) = match known {
            Some(Record { pin, policy, repeats, .. }) => {
                (Pinned { graph: self.world.flows.pinned(&pin)?, pin }, policy, repeats)
            }
            None => {
                let (flow, repeats) = self.callee(key, attempt, &call.name)?;
                let policy = flow.graph.policy.clone();
                (flow, policy, repeats)
            }
        };
        let input = merge(&flow.graph.input, call.input.json());
        if new {
            self.world.flows.check_input(&flow.graph, &input)?;
        }
        let (mut driver, hub) = Driver::new(&self.world, identity, flow, policy);
        driver.called_as(&call.name, repeats);
        let prefix = format!("{address}/");
        let below = |(gate, answer): (&String, &Json)| Some((gate.strip_prefix(&prefix)?.to_owned(), answer.clone()));
        driver.answers = self.answers.iter().filter_map(below).collect();
        driver.patience_ms = self.patience_ms;
        driver.set_channels(self.outbox.channels().to_vec());
        hub.start_session();
        let again = driver.recover(true)?;
        Ok((driver, hub, again.unwrap_or(Begin::New(input))))
    }

    /// Finds the flow of a new child. In a run that repeats another one it is the flow that this one called at the same place,
    /// if that was by the same name; the run that it made there is returned, too.
    fn callee(&self, key: TaskKey, attempt: u32, name: &Arc<str>) -> Result<(Pinned, Option<RunId>), Failure> {
        let (mut repeats, mut left) = (self.repeats.clone(), MAX_REPEATS);
        while let Some(before) = repeats.take().filter(|_| left > 0) {
            left -= 1;
            for attempt in [attempt, 1] {
                let run = self.child_of_run(&before, key, attempt);
                let record = self.world.journal.find(&self.identity.tenant, &run)?;
                let Some(record) = record.filter(|record| record.called.as_ref().unwrap_or(&record.flow) == name)
                else {
                    continue;
                };
                return Ok((self.world.flows.called_again(name, &self.pin, &record.pin)?, Some(run)));
            }
            repeats = self.world.journal.find(&self.identity.tenant, &before)?.and_then(|record| record.repeats);
        }
        Ok((self.world.flows.resolve(name, &self.pin)?, None))
    }

    /// A child has ended. What this run tells of that comes after what the child still has to tell.
    pub(super) fn child_leaves(&mut self, key: TaskKey) {
        if let Some(leaving) = self.children.ended(key) {
            self.outbox.hold(Deferred::Follow(leaving));
        }
    }

    /// Tells the parent, once for each change, that this run does not move by itself.
    pub(super) async fn tell_parent(&mut self, rest: Rest) {
        self.children.rests(true);
        let Some(parent) = &mut self.parent else { return };
        if parent.told.as_ref() != Some(&rest) {
            parent.told = Some(rest.clone());
            let _ = parent.commands.send(Command::ChildRests { task: parent.task, rest: Some(rest) }).await;
        }
    }

    /// Something has arrived: the run may move.
    pub(super) fn moves(&mut self) {
        if let Some(parent) = &mut self.parent {
            parent.told = None;
        }
        self.children.rests(false);
    }

    /// Starts the run that a task calls, now or as soon as there is a place for it.
    pub(super) fn place_child(&mut self, key: TaskKey, call: &FlowCall) {
        if self.stopping.is_some() {
            return;
        }
        let attempt = self.state.task(key).attempt;
        if self.identity.depth >= MAX_DEPTH {
            let message = format!("flows may call flows at most {MAX_DEPTH} deep");
            return self.child_refused(key, attempt, Failure::new(code::TOO_DEEP, message));
        }
        let run = self.child_id(key, attempt);
        let (live, identity) = (&self.world.live, &self.identity);
        let place = self.children.place(|| live.enter(&identity.tenant, &identity.run_id));
        let mut waiting = place.below(&run);
        if let Some(place) = (&mut waiting).now_or_never() {
            return self.place_found(key, attempt, call, place);
        }
        let commands = self.site.commands.clone();
        let waiting = tokio::spawn(async move {
            let place = waiting.await;
            // A run that is over needs no place.
            let _ = commands.send(Command::ChildPlaced { task: key, attempt, place }).await;
        });
        self.children.queue(key, Queued { attempt, call: call.clone(), waiting });
    }

    /// A run that waited has a place, or will get none.
    pub(super) fn child_placed(&mut self, key: TaskKey, attempt: u32, place: Result<Place, Failure>) {
        if let Some(queued) = self.children.leave_queue(key, Some(attempt)) {
            self.place_found(key, attempt, &queued.call, place);
        }
    }

    fn place_found(&mut self, key: TaskKey, attempt: u32, call: &FlowCall, place: Result<Place, Failure>) {
        match place {
            Ok(place) => self.start_child(key, call, place),
            Err(failure) => self.child_refused(key, attempt, failure),
        }
    }

    fn child_refused(&mut self, task: TaskKey, attempt: u32, failure: Failure) {
        self.notes_to_self.push_back(Command::ChildEnded { task, attempt, result: Err(failure) });
    }

    /// A run that waits for a place is not wanted any more.
    fn cancel_queued(&mut self, key: TaskKey) {
        if let Some(queued) = self.children.leave_queue(key, None) {
            let failure = Failure::new(code::CANCELLED, "the child run was cancelled before it began");
            self.child_refused(key, queued.attempt, failure);
        }
    }
}

fn child_result(run: &RunId, end: Option<&RunEnd>) -> Result<Value, Failure> {
    match end {
        Some(RunEnd::Succeeded { outputs }) => Ok(Value::from(Json::object([("outputs", outputs.clone())]))),
        // The id of the run furthest below names all that are above it.
        Some(RunEnd::Failed { failure, .. })
            if failure.details.as_ref().is_some_and(|details| details.get("child").is_some()) =>
        {
            Err(failure.clone())
        }
        Some(RunEnd::Failed { failure, task, .. }) => {
            let mut place = vec![("run", Json::from(run.as_str()))];
            place.extend(task.as_ref().map(|task| ("task", Json::from(task.as_str()))));
            Err(outcome::placed(failure.clone(), "child", place))
        }
        Some(RunEnd::Cancelled { .. }) | None => Err(Failure::new(code::CANCELLED, "the child run was cancelled")),
    }
}
