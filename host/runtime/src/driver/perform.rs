//! Doing what was decided: attempts, timers, children.

use std::sync::Arc;

use flowcell_contract::{Attempt, Failure, FlowCall, Json, RunId, Step, StepResult, Value, Wake, code};
use futures_util::{FutureExt, future::abortable};

use super::{Answered, Begin, Child, Deferred, Dozing, Driver, Identity, Live, merge, mix};
use crate::{
    calls::{AttemptCalls, Attempting},
    fact::{Fact, RunEnd, ScopeId, TaskKey},
    hub::{Command, Hub, Request},
    limits::MAX_REPEATS,
    live::Place,
    outcome,
    outstanding::Timer,
    ports::{Record, Unit},
    question::QuestionRef,
    result::Rest,
    sabotage,
    state::Phase,
    world::Pinned,
};

impl Driver {
    pub(super) fn perform(&mut self, unit: &Unit) {
        for fact in &unit.facts {
            match fact {
                Fact::RunStarted { .. } => self.timers.add(&self.state, Timer::Flow),
                Fact::TaskReady { task, .. } => self.timers.add(&self.state, Timer::Total { task: *task }),
                Fact::AttemptStarted { task } | Fact::TaskResumed { task } | Fact::AttemptRepeated { task } => {
                    self.start(*task);
                }
                Fact::TaskPaused { task, pause, .. } => self.paused(*task, &pause.until),
                Fact::TaskRetrying { task, .. } => {
                    self.withdraw(*task);
                    self.add_timers(*task);
                }
                Fact::CallEnded { task, attempt, ordinal, reply } => {
                    self.tell_end((*task, *attempt, *ordinal), unit.ts, reply);
                }
                Fact::Agent { task, told, .. } => self.hand_letter(*task, told),
                Fact::CallDecided { task, attempt, ordinal, allowed, .. } => {
                    self.call_decided(*task, *attempt, *ordinal, *allowed);
                }
                Fact::TaskIdle { task, .. } => self.add_timers(*task),
                Fact::TaskBusy { task } => {
                    self.add_timers(*task);
                    self.rouse(*task);
                }
                Fact::TaskFailed { task, .. } | Fact::TaskCancelled { task, .. } | Fact::TaskBlocked { task, .. } => {
                    self.withdraw(*task);
                }
                Fact::TaskClosing { task, .. } => {
                    self.withdraw(*task);
                    self.add_timers(*task);
                    self.cancel_child(*task);
                }
                Fact::RunEnded { .. } => {
                    self.live.clear();
                    self.received.clear();
                    // Runs that calls were making are free for whoever ends them.
                    self.leaving.clear();
                    self.calls.clear();
                    self.dozing = Dozing::default();
                    self.asked.clear();
                    self.children.clear();
                    self.queued.clear();
                }
                _ => {}
            }
        }
    }

    /// Drops an attempt that is running; what it would answer is of no meaning any more.
    pub(super) fn withdraw(&mut self, task: TaskKey) {
        self.dozing.dropped.remove(&task);
        if let Some(live) = self.live.remove(&task) {
            live.abort.abort();
        }
    }

    pub(super) fn add_timers(&mut self, task: TaskKey) {
        for timer in self.state.timers_of(task) {
            if !matches!(timer, Timer::Total { .. }) {
                self.timers.add(&self.state, timer);
            }
        }
    }

    /// Starts an attempt, or goes on with it, if nothing later in the same unit has ended it.
    pub(super) fn start(&mut self, key: TaskKey) {
        let Some(task) = self.state.find(key).filter(|task| task.phase == Phase::Running) else { return };
        let number = (task.attempt, task.resumes);
        let writes = task.rest.as_deref().map(|rest| rest.writes.to_vec()).unwrap_or_default();
        let attempt = self.attempt(key);
        let config = attempt.as_ref().map_or_else(|_| Value::null(), |attempt| attempt.config.clone());
        let scope = self.state.scope(key.scope).path.clone();
        let attempting = Attempting { task: key, scope, number, now_ms: task.clock, config };
        let calls = Arc::new(AttemptCalls::new(
            self.site.clone(),
            attempting,
            writes,
            task.calls.as_deref().filter(|_| !sabotage::deduplication_is_off()),
            task.agents.as_deref(),
        ));
        calls.wait_until(task.wait_until);
        self.add_timers(key);
        let given = self.given.get(&key.node).filter(|_| key.scope == ScopeId::ROOT).cloned();
        let long = self.remember(key, &attempt, given.is_some());
        let answer = match attempt {
            Ok(_) if given.is_some() => std::future::ready(Ok(Step::Done(given.unwrap_or_default()))).boxed(),
            Ok(attempt) => self.world.runner.run(attempt, calls.clone()),
            Err(failure) => std::future::ready(StepResult::Err(failure)).boxed(),
        };
        let done = calls.clone();
        let (answered, abort) = abortable(async move {
            let result = answer.await;
            done.finish(&result).await;
            let received = match long {
                Some(long) => Some(long.await),
                None => None,
            };
            let (writes, heard) = (done.take_writes(), done.take_heard());
            Answered { task: key, attempt: number, result, writes, heard, received }
        });
        self.live.insert(key, Live { abort, calls });
        self.attempts.push(answered.boxed());
    }

    fn attempt(&self, key: TaskKey) -> Result<Attempt, Failure> {
        let state = &self.state;
        let (input, config) = crate::capture::render(state, key)?;
        let node = state.graph.node(key.node);
        let task = state.task(key);
        let rest = task.rest.as_deref();
        let pack = node.node_type.pack.clone().ok_or_else(|| {
            Failure::new(code::BAD_PACK, format!("node type `{}` belongs to no pack", node.node_type.name))
        })?;
        let salt = (u64::from(key.scope.0) << 32 | u64::from(key.node.0)) ^ mix(u64::from(task.attempt));
        Ok(Attempt {
            tenant: self.identity.tenant.clone(),
            run_id: self.identity.run_id.clone(),
            flow: state.graph.name.clone(),
            node_id: node.id.clone(),
            node_type: node.node_type.name.clone(),
            pack,
            scope: state.scope(key.scope).path.clone(),
            attempt: task.attempt,
            resumes: task.resumes,
            input: Value::from(input),
            config: Value::from(config),
            state: rest.and_then(|rest| rest.state.clone()),
            woken: rest.and_then(|rest| rest.woken.clone()),
            has_body: node.body.is_some(),
            grants: node.grants.clone(),
            now_ms: task.clock,
            seed: mix(state.seed ^ mix(salt)),
        })
    }

    fn paused(&mut self, key: TaskKey, until: &[Wake]) {
        if self.state.find(key).is_none_or(|task| task.phase != Phase::Paused) {
            return;
        }
        self.add_timers(key);
        for wake in until {
            match wake {
                Wake::Flow(call) => self.place_child(key, call),
                Wake::Answer(_) => self.answer_early(key),
                _ => {}
            }
        }
    }

    /// Uses an answer that was given before the question was asked.
    pub(super) fn answer_early(&mut self, key: TaskKey) {
        let address = self.state.address(key);
        let id = self.state.graph.node(key.node).id.as_str();
        let Some(answer) = self.answers.get(&address).or_else(|| self.answers.get(id)).cloned() else { return };
        let question = self.state.gate(key).map(|(_, _, asked)| asked).unwrap_or_default();
        let (told, _) = tokio::sync::oneshot::channel();
        self.notes_to_self.push_back(Command::Request(Request::Reply { gate: address, answer, question }, told));
    }

    /// Uses an answer that was given before an agent asked whether a call may leave. It counts for the first attempt.
    pub(super) fn allow_early(&mut self, key: TaskKey, ordinal: u32) {
        if self.state.find(key).is_none_or(|task| task.attempt != 1) {
            return;
        }
        let gate = format!("{}#{ordinal}", self.state.address(key));
        let of_node = format!("{}#{ordinal}", self.state.graph.node(key.node).id);
        let Some(answer) = self.answers.get(&gate).or_else(|| self.answers.get(&of_node)).cloned() else { return };
        let (told, _) = tokio::sync::oneshot::channel();
        let question = QuestionRef::default();
        self.notes_to_self.push_back(Command::Request(Request::Reply { gate, answer, question }, told));
    }

    pub(super) fn cancel_child(&mut self, key: TaskKey) {
        self.cancel_queued(key);
        if let Some(child) = self.children.get_mut(&key) {
            // Whatever it waited for, it moves now.
            child.rest = None;
            let hub = child.hub.clone();
            tokio::spawn(async move { hub.abort().await });
        }
    }

    /// Starts the run that a task calls, in its place.
    pub(super) fn start_child(&mut self, key: TaskKey, call: &FlowCall, place: Place) {
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
        driver.parent = Some((commands.clone(), key));
        let driving = tokio::spawn(async move {
            driver.drive(begin, false).await;
            if driver.is_refused() || driver.has_stopped() {
                // Whoever drives the tree now goes on with this run too.
                return;
            }
            let ended = child_result(&driver.identity.run_id, driver.state.end());
            // The next child may begin while this one waits for the journal.
            driver.place = None;
            let _ = commands.send(end(ended)).await;
            driver.leave().await;
        });
        self.children.insert(key, Child { hub, rest: None, driving: Some(driving) });
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
        driver.channels.clone_from(&self.channels);
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
        if let Some(leaving) = self.children.remove(&key).and_then(Child::leave) {
            self.trail.add(self.next_seq, Deferred::Follow(leaving));
        }
    }

    /// Tells the parent, once for each change, that this run does not move by itself.
    pub(super) async fn tell_parent(&mut self, rest: Rest) {
        self.rests();
        let Some((commands, task)) = &self.parent else { return };
        if self.told.as_ref() != Some(&rest) {
            self.told = Some(rest.clone());
            let _ = commands.send(Command::ChildRests { task: *task, rest: Some(rest) }).await;
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
