//! Doing what was decided: attempts, timers, calls.
//!
//! An attempt that waits for long has no instance ([`super::attempts`]). A call is recorded first, and then made.

use std::{panic::AssertUnwindSafe, sync::Arc};

use flowcell_contract::{Attempt, Effect, Failure, Json, Outgoing, Step, StepResult, Value, Wake, code};
use futures_util::FutureExt;

use super::{
    Answered, Deferred, Driver,
    attempts::Number,
    calls::{CallKey, Ended},
    conflict, mix,
};
use crate::{
    agents::InboxMessage,
    call_log::Reply,
    calls::{AttemptCalls, Attempting},
    command::RunCommand,
    decide::Input,
    event::LiveEvent,
    fact::{AgentFact, CallRecord, Fact, ScopeId, TaskKey, Write},
    hub::Command,
    limits::EVICT_MS,
    outstanding::Timer,
    ports::{StageError, Unit},
    publish::FLOW_STEP,
    question::QuestionRef,
    sabotage,
    state::{Phase, Task},
};

impl Driver {
    pub(super) fn perform(&mut self, unit: &Unit) {
        for fact in &unit.facts {
            match fact {
                Fact::RunStarted { .. } => self.clock.add(&self.state, Timer::Flow),
                Fact::TaskReady { task, .. } => self.clock.add(&self.state, Timer::Total { task: *task }),
                Fact::AttemptStarted { task } | Fact::TaskResumed { task } | Fact::AttemptRepeated { task } => {
                    self.start(*task);
                }
                Fact::TaskPaused { task, pause, .. } => self.paused(*task, &pause.until),
                Fact::TaskRetrying { task, .. } => {
                    self.attempts.withdraw(*task);
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
                    self.attempts.withdraw(*task);
                }
                Fact::TaskClosing { task, .. } => {
                    self.attempts.withdraw(*task);
                    self.add_timers(*task);
                    self.cancel_child(*task);
                }
                Fact::RunEnded { .. } => {
                    self.attempts.clear();
                    self.calls.clear();
                    self.children.clear();
                }
                _ => {}
            }
        }
    }

    pub(super) fn add_timers(&mut self, task: TaskKey) {
        for timer in self.state.timers_of(task) {
            if !matches!(timer, Timer::Total { .. }) {
                self.clock.add(&self.state, timer);
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
        let long = self.attempts.remember(key, &attempt, given.is_some());
        let answer = match attempt {
            Ok(_) if given.is_some() => std::future::ready(Ok(Step::Done(given.unwrap_or_default()))).boxed(),
            Ok(attempt) => self.world.runner.run(attempt, calls.clone()),
            Err(failure) => std::future::ready(StepResult::Err(failure)).boxed(),
        };
        let done = calls.clone();
        let answered = async move {
            // Before the node runs, as the virtual time of a test stands still only while a node runs.
            let received = match long {
                Some(long) => Some(long.await),
                None => None,
            };
            let result = answer.await;
            done.finish(&result).await;
            let (writes, heard) = (done.take_writes(), done.take_heard());
            Answered { task: key, attempt: number, result, writes, heard, received }
        };
        self.attempts.begin(key, calls, answered);
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
        self.notes_to_self.push_back(Command::Run(RunCommand::Reply { gate: address, answer, question }, told));
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
        self.notes_to_self.push_back(Command::Run(RunCommand::Reply { gate, answer, question }, told));
    }

    /// An attempt has answered.
    pub(super) fn answered(&mut self, answered: Answered) {
        let Answered { task, attempt, result, writes, heard, received } = answered;
        self.attempts.ended(task);
        if !self.state.is_running(task, attempt) {
            return;
        }
        if let Some(received) = received {
            self.attempts.was_given(task, received);
        }
        let (result, writes) = match result {
            Ok(Step::Done(output)) => (self.stage_output(writes).map(|()| Step::Done(output)), Vec::new()),
            other => (other, writes),
        };
        let _ = self.bring(Input::Answered { task, attempt, result, writes, heard });
    }

    /// Makes an attempt's state writes visible together with its outcome.
    fn stage_output(&mut self, writes: Vec<Write>) -> Result<(), Failure> {
        if writes.is_empty() {
            return Ok(());
        }
        self.outbox.staged = Some(self.stage(writes).map_err(|error| match error {
            StageError::Conflict(key) => Failure::retryable(code::STATE_CONFLICT, conflict(&key)),
            StageError::Store(error) => error.into(),
        })?);
        Ok(())
    }

    /// Looks later whether an attempt still waits.
    fn look_later(&mut self, task: TaskKey, attempt: Number) {
        self.attempts.look_at(self.clock.now().saturating_add(EVICT_MS), task, attempt);
    }

    /// Drops the instances of attempts that have waited for long.
    pub(super) fn drop_waiting(&mut self) {
        let now = self.clock.now();
        while let Some((task, attempt)) = self.attempts.waiting(now) {
            if self.state.is_running(task, attempt) {
                self.attempts.drop_instance(task, attempt);
            }
        }
    }

    /// Something has arrived for an attempt. Begins it again if it was dropped.
    fn rouse(&mut self, task: TaskKey) {
        if self.attempts.rouse(task) {
            self.start(task);
        }
    }

    /// An attempt says that it waits for people.
    pub(super) fn waits(&mut self, task: TaskKey, attempt: Number, due: Option<u64>, heard: u64) {
        if self.attempts.calls_of(task).is_some_and(|calls| calls.heard() == heard) {
            let _ = self.bring(Input::Waits { task, attempt, due });
            self.look_later(task, attempt);
        }
    }

    /// Hands a message to its attempt.
    fn hand_letter(&mut self, task: TaskKey, told: &AgentFact) {
        let entry = match told {
            AgentFact::Written { id, message, value } => {
                InboxMessage { run: id.clone(), id: Some(message.clone()), value: value.clone(), applied: false }
            }
            AgentFact::Closing { id } => {
                InboxMessage { run: id.clone(), id: None, value: Value::null(), applied: false }
            }
            _ => return,
        };
        match self.attempts.calls_of(task) {
            Some(calls) => calls.receive(entry),
            None => self.rouse(task),
        }
        self.add_timers(task);
    }

    /// Tells those who watch what is not recorded.
    pub(super) fn tell_live(&self, task: TaskKey, kind: Box<str>, members: &Json) {
        let is_running = |task: &Task| task.phase == Phase::Running;
        if self.outbox.channels().is_empty() || !self.state.find(task).is_some_and(is_running) {
            return;
        }
        let node = self.state.graph.node(task.node);
        let mut data = vec![("nodeId".into(), Json::from(node.id.0.clone()))];
        data.extend(node.labels.get(FLOW_STEP).map(|step| (FLOW_STEP.into(), step.clone())));
        data.extend(members.as_object().into_iter().flatten().map(|(name, value)| (name.clone(), value.clone())));
        self.outbox.tell_live(&LiveEvent {
            ts: self.clock.now(),
            tenant: self.identity.tenant.clone(),
            run_id: self.identity.run_id.clone(),
            kind,
            data: Json::object(data),
        });
    }

    /// Records a call and lets it leave once the record is durable, unless it has a reply already.
    pub(super) fn call(
        &mut self,
        task: TaskKey,
        attempt: Number,
        call: Box<CallRecord>,
        outgoing: Box<Outgoing>,
        reply: Option<Reply>,
    ) {
        let key = (task, attempt.0, call.ordinal);
        let leaves = reply.is_none();
        let asks = call.ask.is_some();
        // Refused is what an attempt asks for that is over.
        if self.bring(Input::Call { task, attempt, call, reply }).is_ok() && leaves {
            match asks {
                true => {
                    self.calls.ask(key, outgoing);
                    self.add_timers(task);
                    self.allow_early(task, key.2);
                }
                false => self.let_leave(key, outgoing),
            }
            self.look_later(task, attempt);
        }
    }

    /// A repeated attempt is back at a call that has no recorded end: it is made again, unless it is still under way.
    pub(super) fn call_again(&mut self, key: CallKey, mut outgoing: Box<Outgoing>) {
        if !self.calls.leaves(key) {
            let (task, attempt, ordinal) = key;
            let _ = self.bring(Input::CallAgain { task, attempt, ordinal });
            // What an attempt asks for that was withdrawn meanwhile does not leave.
            let running = |task: &&Task| task.phase == Phase::Running && task.attempt == attempt;
            let Some(found) = self.state.find(task).filter(running) else { return };
            outgoing.lost = found.calls.as_ref().map_or(0, |calls| calls.lost((attempt, ordinal)));
            if under_way(found, key) {
                self.let_leave(key, outgoing);
            } else if found.calls.iter().any(|calls| calls.asked().any(|(call, ..)| call == (attempt, ordinal))) {
                self.calls.ask(key, outgoing);
            }
        }
    }

    /// A call may leave, or not: somebody has said so.
    fn call_decided(&mut self, task: TaskKey, attempt: u32, ordinal: u32, allowed: bool) {
        let key = (task, attempt, ordinal);
        let outgoing = self.calls.decided(key);
        if let Some(calls) = self.attempts.calls_of(task) {
            calls.allowed(ordinal);
        }
        match outgoing {
            Some(outgoing) if allowed => self.let_leave(key, outgoing),
            _ => self.rouse(task),
        }
        self.add_timers(task);
    }

    fn let_leave(&mut self, key: CallKey, outgoing: Box<Outgoing>) {
        self.calls.wait(key);
        self.outbox.hold_and_hurry(Deferred::Leave(key, outgoing));
        self.catch_up();
    }

    /// The record is durable: the call is made, if somebody still wants its end.
    pub(super) fn leaves(&mut self, key: CallKey, outgoing: Outgoing) {
        let wanted = self.state.find(key.0).is_some_and(|task| under_way(task, key));
        let capability = self.world.capabilities.get(&outgoing.call.interface);
        let Some(capability) = capability.filter(|_| wanted) else { return self.calls.forget(key) };
        let effect = outgoing.effect;
        self.has_called = true;
        // A panic in a capability is one call's.
        let performed = AssertUnwindSafe(capability.perform(outgoing)).catch_unwind();
        let reply = performed.map(move |reply| reply.unwrap_or_else(|_| Err(broken(effect))).map_err(Box::new));
        self.calls.make(key, reply);
    }

    pub(super) fn call_ended(&mut self, ended: Ended) {
        let (task, attempt, ordinal) = ended.call;
        self.calls.forget(ended.call);
        let _ = self.bring(Input::CallEnded { task, attempt, ordinal, reply: ended.reply });
    }

    /// What the journal now knows of a call's end is told to its attempt.
    fn tell_end(&mut self, key: CallKey, ts: u64, reply: &Reply) {
        let (task, attempt, ordinal) = key;
        self.calls.settle(key);
        let meant = self.state.find(task).is_some_and(|task| task.attempt == attempt);
        match self.attempts.calls_of(task).filter(|_| meant) {
            Some(calls) => calls.arrive(ordinal, ts, reply.clone()),
            None if meant => self.rouse(task),
            None => {}
        }
        self.add_timers(task);
    }
}

fn under_way(task: &Task, (_, attempt, ordinal): CallKey) -> bool {
    task.calls.as_ref().is_some_and(|calls| calls.is_under_way((attempt, ordinal)))
}

fn broken(effect: Effect) -> Failure {
    let message = "the capability panicked";
    match effect {
        Effect::Once => Failure::new(code::AMBIGUOUS, message),
        _ => Failure::retryable(code::LOST_WORKER, message),
    }
}
