//! Doing what was decided: attempts, timers, children.

use std::sync::Arc;

use flowcell_contract::{Attempt, Failure, FlowCall, Json, RunId, Step, StepResult, Value, Wake, code};
use futures_util::{FutureExt, future::abortable};

use super::{Answered, Begin, Child, Deferred, Dozing, Driver, Identity, Live, merge, mix};
use crate::{
    calls::{AttemptCalls, Attempting},
    fact::{Fact, RunEnd, ScopeId, TaskKey},
    hub::{Command, Hub, Request},
    limits::MAX_DEPTH,
    outstanding::Timer,
    ports::{Record, Unit},
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
                Fact::TaskFailed { task, .. } | Fact::TaskCancelled { task } | Fact::TaskBlocked { task, .. } => {
                    self.withdraw(*task);
                }
                Fact::TaskClosing { task, .. } => {
                    self.withdraw(*task);
                    self.add_timers(*task);
                    self.cancel_child(*task);
                }
                Fact::RunEnded { .. } => {
                    self.live.clear();
                    // Runs that calls were making are free for whoever ends them.
                    self.leaving.clear();
                    self.calls.clear();
                    self.dozing = Dozing::default();
                    self.asked.clear();
                    self.children.clear();
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
        let given = self.given.get(&key.node).filter(|_| key.scope == ScopeId::ROOT);
        let answer = match attempt {
            Ok(_) if given.is_some() => std::future::ready(Ok(Step::Done(given.cloned().unwrap_or_default()))).boxed(),
            Ok(attempt) => self.world.runner.run(attempt, calls.clone()),
            Err(failure) => std::future::ready(StepResult::Err(failure)).boxed(),
        };
        let done = calls.clone();
        let (answered, abort) = abortable(async move {
            let result = answer.await;
            done.finish(&result).await;
            Answered { task: key, attempt: number, result, writes: done.take_writes(), heard: done.take_heard() }
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
                Wake::Flow(call) => self.start_child(key, call),
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
        let (told, _) = tokio::sync::oneshot::channel();
        self.notes_to_self.push_back(Command::Request(Request::Reply { gate: address, answer }, told));
    }

    pub(super) fn cancel_child(&mut self, key: TaskKey) {
        if let Some(child) = self.children.get_mut(&key) {
            // Whatever it waited for, it moves now.
            child.rest = None;
            let hub = child.hub.clone();
            tokio::spawn(async move { hub.abort().await });
        }
    }

    pub(super) fn start_child(&mut self, key: TaskKey, call: &FlowCall) {
        if self.stopping.is_some() {
            return;
        }
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
        driver.parent = Some((commands.clone(), key));
        let driving = tokio::spawn(async move {
            driver.drive(begin, false).await;
            if driver.is_refused() || driver.has_stopped() {
                // Whoever drives the tree now goes on with this run too.
                return;
            }
            let _ = commands.send(end(child_result(driver.state.end()))).await;
            driver.leave().await;
        });
        self.children.insert(key, Child { hub, rest: None, driving: Some(driving) });
    }

    /// The id of the run that a task calls, the same whenever it is asked for.
    pub(super) fn child_id(&self, key: TaskKey, attempt: u32) -> RunId {
        let call = self.nth_call(key);
        RunId::from(format!("{}.{}.{attempt}{call}", self.identity.run_id, self.state.address(key)))
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
        if identity.depth > MAX_DEPTH {
            return Err(Failure::new(code::TOO_DEEP, format!("flows may call flows at most {MAX_DEPTH} deep")));
        }
        let known = self.world.journal.find(&identity.tenant, &identity.run_id)?;
        let new = known.is_none();
        let (flow, policy) = match known {
            Some(Record { pin, policy, .. }) => (Pinned { graph: self.world.flows.pinned(&pin)?, pin }, policy),
            None => {
                let flow = self.world.flows.resolve(&call.name)?;
                let policy = flow.graph.policy.clone();
                (flow, policy)
            }
        };
        let input = merge(&flow.graph.input, call.input.json());
        if new {
            self.world.flows.check_input(&flow.graph, &input)?;
        }
        let (mut driver, hub) = Driver::new(&self.world, identity, flow, policy);
        let prefix = format!("{address}/");
        let below = |(gate, answer): (&String, &Json)| Some((gate.strip_prefix(&prefix)?.to_owned(), answer.clone()));
        driver.answers = self.answers.iter().filter_map(below).collect();
        driver.patience_ms = self.patience_ms;
        driver.channels.clone_from(&self.channels);
        hub.start_session();
        let again = driver.recover(true)?;
        Ok((driver, hub, again.unwrap_or(Begin::New(input))))
    }

    /// A child has ended. What this run tells of that comes after what the child still has to tell.
    pub(super) fn child_leaves(&mut self, key: TaskKey) {
        if let Some(leaving) = self.children.remove(&key).and_then(Child::leave) {
            self.trail.add(self.next_seq, Deferred::Follow(leaving));
        }
    }

    /// Tells the parent, once for each change, that this run does not move by itself.
    pub(super) async fn tell_parent(&mut self, rest: Rest) {
        let Some((commands, task)) = &self.parent else { return };
        if self.told.as_ref() != Some(&rest) {
            self.told = Some(rest.clone());
            let _ = commands.send(Command::ChildRests { task: *task, rest: Some(rest) }).await;
        }
    }
}

fn child_result(end: Option<&RunEnd>) -> Result<Value, Failure> {
    match end {
        Some(RunEnd::Succeeded { outputs }) => Ok(Value::from(Json::object([("outputs", outputs.clone())]))),
        Some(RunEnd::Failed { failure, .. }) => Err(failure.clone()),
        Some(RunEnd::Cancelled { .. }) | None => Err(Failure::new(code::CANCELLED, "the child run was cancelled")),
    }
}
