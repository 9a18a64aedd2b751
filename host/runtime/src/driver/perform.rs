//! The effects of facts and commands: attempts, timers, calls, children.
//!
//! An attempt that waits for long has no sandbox ([`super::attempts`]). A call is recorded first, and then made.

use std::{future::ready, sync::Arc};

use flowcell_contract::{Failure, FlowCall, Outgoing, Step, StepResult, Value, Wake, code};
use flowcell_flow::graph::Graph;
use futures_util::FutureExt;
use tokio::sync::oneshot;

use super::{
    Driver, attempt,
    attempts::{Answered, AttemptNumber},
    calls::{CallKey, Ended, is_open, is_under_way},
    child,
    durability::OnDurable,
    options::Identity,
    outbox::conflict,
    parent::Parent,
};
use crate::{
    call_log::Reply,
    command::{HubError, RunCommand},
    decide::Input,
    fact::{AgentFact, CallRecord, Fact, Migrated, TaskKey, Write},
    hub::{Channel, Command},
    limits::{EVICT_MS, MAX_DEPTH},
    live::LivePermit,
    outstanding::{Outstanding, Timer, outstanding, timers_of},
    ports::{Record, StageError, Unit},
    publish::Projector,
    quota::QuotaHold,
    state::{Phase, Task},
};

impl Driver {
    /// Performs the effects of recorded facts.
    pub(super) fn perform(&mut self, unit: &Unit) {
        for fact in &unit.facts {
            match fact {
                Fact::RunStarted { .. } => self.clock.add(&self.state, Timer::Flow),
                Fact::TaskReady { task, .. } | Fact::TaskResolved { task, .. } => {
                    self.clock.add(&self.state, Timer::Total { task: *task });
                }
                Fact::AttemptStarted { task } | Fact::TaskResumed { task } | Fact::AttemptRepeated { task } => {
                    self.start(*task);
                }
                Fact::UndoStarted { scope, .. } => self.clock.hold(&self.state, *scope),
                Fact::UndoEnded { scope } => self.clock.release(&self.state, *scope),
                Fact::TaskPaused { task, pause, .. } => self.paused(*task, &pause.until),
                Fact::TaskRetrying { task, .. } => {
                    self.attempts.withdraw(*task);
                    self.add_timers(*task);
                }
                Fact::CallHeld { task, .. } => self.attempts.withdraw(*task),
                Fact::QuotaReached(_) => self.clock.add(&self.state, Timer::Quota),
                Fact::CallEnded { task, attempt, ordinal, reply } => {
                    self.deliver_reply((*task, *attempt, *ordinal), unit.ts, reply);
                }
                Fact::Agent { task, agent_fact, .. } => self.hand_message(*task, agent_fact),
                Fact::CallDecided { task, attempt, ordinal, allowed, .. } => {
                    self.call_decided((*task, *attempt, *ordinal), *allowed);
                }
                Fact::TaskIdle { task, .. } => self.add_timers(*task),
                Fact::TaskBusy { task } => {
                    self.add_timers(*task);
                    self.rehydrate(*task);
                }
                Fact::TaskFailed { task, .. } | Fact::TaskCancelled { task, .. } | Fact::TaskBlocked { task, .. } => {
                    self.attempts.withdraw(*task);
                }
                Fact::TaskClosing { task, .. } => {
                    self.attempts.withdraw(*task);
                    self.add_timers(*task);
                    child::cancel(self, *task);
                }
                Fact::RunEnded { .. } => {
                    self.attempts.clear();
                    self.calls.clear();
                    self.children.clear();
                }
                _ => {}
            }
        }
        self.site.endings.perform_unless(|task, attempt| self.state.is_running(task, attempt));
    }

    /// Resumes the run: begins every outstanding item again. Before any item begins, the record of the resumption is
    /// durable. So if the run kills its process, the next process counts this death.
    pub(super) async fn resume(&mut self, by_hand: bool) {
        if self.state.end().is_some() {
            return;
        }
        let _ = self.apply_input(Input::Resume { by_hand, alone: self.options.alone });
        self.flush().await;
        if self.state.park_reason().is_some() {
            return;
        }
        for undo in self.state.scopes.iter().filter(|(_, scope)| scope.undoing.is_some()).map(|(id, _)| *id) {
            self.clock.hold(&self.state, undo);
        }
        for outstanding in outstanding(&self.state) {
            match outstanding {
                // An attempt that waits for people begins again when an event arrives for it.
                Outstanding::Attempt { task, attempt, resumes } if self.state.task(task).idle => {
                    self.attempts.keep_evicted(task, (attempt, resumes));
                }
                Outstanding::Attempt { task, .. } => self.start(task),
                Outstanding::Timer(timer, _) => self.clock.add(&self.state, timer),
                Outstanding::Child { task, name, input, cancelled, .. } => {
                    self.request_child(task, &FlowCall { name, input });
                    if cancelled {
                        child::cancel(self, task);
                    }
                }
                Outstanding::Question { task, .. } => self.reply_early(self.options.answers.to_gate(&self.state, task)),
                Outstanding::Permission { task, ordinal, .. } => {
                    self.reply_early(self.options.answers.to_call(&self.state, task, ordinal));
                }
                // The driver makes a call again when its attempt reaches it again.
                Outstanding::Event { .. }
                | Outstanding::Messages { .. }
                | Outstanding::Decision { .. }
                | Outstanding::Call { .. } => {}
            }
        }
        let _ = self.apply_input(Input::Proceed);
    }

    /// Handles a command of an attempt, a child or a person.
    pub(super) fn handle(&mut self, command: Command) {
        match command {
            Command::Stop => self.stop(),
            // A shutdown would interrupt a call that begins during it. The repeated attempt makes it again.
            Command::Call { .. } | Command::CallAgain { .. } if self.shutdown.is_requested() => {}
            Command::Input(input) => _ = self.apply_input(*input),
            Command::Call { task, attempt, record, outgoing, reply } => {
                self.call(task, attempt, record, outgoing, reply);
            }
            Command::CallAgain { task, attempt, ordinal, outgoing } => {
                self.call_again((task, attempt, ordinal), outgoing);
            }
            Command::AttemptIdle { task, attempt, due, heard } => {
                self.attempt_waits_for_people(task, attempt, due, heard)
            }
            Command::Live { task, kind, members } => {
                if self.state.find(task).is_some_and(|task| task.phase == Phase::Running) {
                    self.outbox.publish_live(self.clock.now(), self.state.graph.node(task.node), kind, &members);
                }
            }
            Command::Run(command, answer) => self.request(command, None, answer),
            Command::Deliver(message, command, answer) => self.request(command, Some(message), answer),
            Command::Attach { channel, to_child } => self.attach(&channel, to_child),
            Command::Unattended => self.options.parks = true,
            // The caller may have stopped waiting.
            Command::Waiting(answer) => _ = answer.send(self.children.are_idle().then(|| self.waiting())),
            Command::Settle(answer) => {
                self.outbox.acknowledge(answer, Ok(()));
                self.catch_up();
            }
            Command::ChildEnded { task, attempt, result } => {
                // The child publishes its remaining events before this run publishes the end of the child.
                if let Some(driving) = self.children.remove(task) {
                    self.outbox.hold(OnDurable::Follow(driving));
                }
                let _ = self.apply_input(Input::ChildEnded { task, attempt, result });
            }
            // The run tree is driven as a whole, so all of it stops.
            Command::ChildPanicked(panic) => std::panic::resume_unwind(panic),
            Command::ChildPermit { task, attempt, permit } => {
                if let Some(queued) = self.children.take_queued(task, Some(attempt)) {
                    self.start_child((task, attempt), &queued.call, permit);
                }
            }
            Command::ChildIdle { task, idle, confirmed } => self.children.set_child_idle(task, idle, confirmed),
            Command::Confirm => self.parent.iter_mut().for_each(Parent::confirm_command),
        }
    }

    /// Handles a command to the run. `delivered` is the number of the message in the store's inbox, if the command came
    /// from there.
    pub(super) fn request(
        &mut self,
        command: RunCommand,
        delivered: Option<u64>,
        answer: oneshot::Sender<Result<(), HubError>>,
    ) {
        if command.is_too_large() {
            let _ = answer.send(Err(HubError::TooLarge));
            return;
        }
        if let Some((task, inner)) = command.for_child() {
            return self.children.pass_on(self.state.task_at(&task), inner, delivered, answer);
        }
        self.outbox.delivered = delivered;
        let outcome = self.apply_input(Input::Command(command));
        self.outbox.delivered = None;
        self.outbox.acknowledge(answer, outcome);
        self.catch_up();
    }

    /// Moves the run to another version of its flow, and parks it. `graph` is the graph that the run uses then.
    pub(crate) async fn migrate(
        &mut self,
        graph: Arc<Graph>,
        record: Record,
        migration: Migrated,
    ) -> Result<(), HubError> {
        self.state.later.push_back(graph);
        // The store writes the record and the facts in one commit.
        self.outbox.record = Some(record);
        self.apply_input(Input::Migrate(Box::new(migration)))?;
        self.flush().await;
        if self.is_refused() { Err(HubError::RunEnded) } else { Ok(()) }
    }

    /// Returns true if the store lists the run as parked.
    pub(crate) fn is_parked(&self) -> bool {
        self.outbox.is_parked()
    }

    /// Attaches a late channel to the run and to its children.
    fn attach(&mut self, channel: &Arc<dyn Channel>, to_child: bool) {
        self.catch_up();
        if !to_child {
            channel.on_start(&self.hub);
        }
        let (tenant, run_id) = (self.identity.tenant.clone(), self.identity.run_id.clone());
        let projector = Projector::new(tenant, run_id, self.state.graph.clone());
        self.outbox.attach(channel.clone(), projector, &*self.world.journal);
        for hub in self.children.hubs() {
            let (hub, channel) = (hub.clone(), channel.clone());
            tokio::spawn(async move { hub.attach_from_above(channel).await });
        }
    }

    fn add_timers(&mut self, task: TaskKey) {
        let timers = timers_of(&self.state, task).into_iter().filter(|timer| !matches!(timer, Timer::Total { .. }));
        timers.for_each(|timer| self.clock.add(&self.state, timer));
    }

    /// Starts or resumes an attempt, if no later fact in the same unit has ended it.
    fn start(&mut self, key: TaskKey) {
        let Some(task) = self.state.find(key).filter(|task| task.phase == Phase::Running) else { return };
        let number = (task.attempt, task.resumes);
        let attempt = attempt::render(&self.identity, &self.state, key, self.attempts.are_none_live());
        let config = attempt.as_ref().map_or_else(|_| Value::null(), |attempt| attempt.config.clone());
        let calls = Arc::new(attempt::calls(&self.site, &self.state, key, config));
        self.add_timers(key);
        let kept = self.options.kept_outputs.get(&key.node).filter(|_| self.state.may_keep_output(key)).cloned();
        let received = self.attempts.remember(key, &attempt, kept.is_some());
        let result = match attempt {
            Ok(_) if kept.is_some() => ready(Ok(Step::Done(kept.unwrap_or_default()))).boxed(),
            Ok(attempt) => self.world.runner.run(attempt, calls.clone()),
            Err(failure) => ready(StepResult::Err(failure)).boxed(),
        };
        self.attempts.begin((key, number), calls, received, result);
    }

    /// If an attempt was evicted, begins it again, because a message, a reply or an answer has arrived for it, or
    /// its wait for people has reached its time limit.
    fn rehydrate(&mut self, task: TaskKey) {
        if self.attempts.rehydrate(task) {
            self.start(task);
        }
    }

    /// Schedules a check whether an attempt still waits after [`EVICT_MS`].
    fn check_later(&mut self, task: TaskKey, attempt: AttemptNumber) {
        self.attempts.check_at(self.clock.now().saturating_add(EVICT_MS), task, attempt);
    }

    /// Evicts attempts that have waited for [`EVICT_MS`] and have nothing open, such as a stream.
    pub(super) fn evict_waiting(&mut self) {
        let now = self.clock.now();
        while let Some((task, attempt)) = self.attempts.next_waiting(now) {
            match self.state.is_running(task, attempt) {
                true if self.site.endings.has(task, attempt) => self.check_later(task, attempt),
                true => self.attempts.evict(task, attempt),
                false => {}
            }
        }
    }

    /// Records that an attempt waits for people. Does nothing if something has arrived for the attempt since it began
    /// to wait: `heard` is the number of its arrivals at that time.
    fn attempt_waits_for_people(&mut self, task: TaskKey, attempt: AttemptNumber, due: Option<u64>, heard: u64) {
        if self.attempts.calls_of(task).is_some_and(|calls| calls.events_arrived() == heard) {
            let _ = self.apply_input(Input::AttemptIdle { task, attempt, due });
            self.check_later(task, attempt);
        }
    }

    fn paused(&mut self, key: TaskKey, until: &[Wake]) {
        if self.state.find(key).is_none_or(|task| task.phase != Phase::Paused) {
            return;
        }
        self.add_timers(key);
        for wake in until {
            match wake {
                Wake::Flow(call) => self.request_child(key, call),
                Wake::Answer(_) => self.reply_early(self.options.answers.to_gate(&self.state, key)),
                _ => {}
            }
        }
    }

    /// Queues a reply that the options of the run gave in advance, if there is one.
    fn reply_early(&mut self, reply: Option<RunCommand>) {
        let (answer, _) = oneshot::channel();
        self.notes_to_self.extend(reply.map(|reply| Command::Run(reply, answer)));
    }

    /// Handles the answer of an attempt.
    pub(super) fn answered(&mut self, answered: Answered) {
        let Answered { task, attempt, result, writes, heard, received } = answered;
        self.attempts.remove(task);
        if !self.state.is_running(task, attempt) {
            return;
        }
        if let Some(received) = received {
            self.attempts.set_received(task, received);
        }
        let (result, writes) = match result {
            Ok(Step::Done(output)) => (self.stage_output(writes).map(|()| Step::Done(output)), Vec::new()),
            other => (other, writes),
        };
        let _ = self.apply_input(Input::Answered { task, attempt, result, writes, heard });
    }

    /// Makes an attempt's state writes visible together with its outcome.
    fn stage_output(&mut self, writes: Vec<Write>) -> Result<(), Failure> {
        self.outbox.stage(&*self.world.state, &self.state.graph.name, writes).map_err(|error| match error {
            StageError::Conflict(key) => Failure::retryable(code::STATE_CONFLICT, conflict(&key)),
            StageError::Store(error) => error.into(),
        })
    }

    /// Passes a message or a request to finish to the attempt of the agent run. If the attempt is evicted, begins it
    /// again.
    fn hand_message(&mut self, task: TaskKey, agent_fact: &AgentFact) {
        let Some(message) = attempt::message_of(agent_fact) else { return };
        match self.attempts.calls_of(task) {
            Some(calls) => calls.receive(message),
            None => self.rehydrate(task),
        }
        self.add_timers(task);
    }

    /// Records a call and schedules it, unless it has a reply already.
    fn call(
        &mut self,
        task: TaskKey,
        attempt: AttemptNumber,
        call: Box<CallRecord>,
        outgoing: Box<Outgoing>,
        reply: Option<Reply>,
    ) {
        let (key, asks) = ((task, attempt.0, call.ordinal), call.ask.is_some());
        // The deciders refuse a call of an attempt that has ended, and end a call that has a recorded reply.
        let refused = self.apply_input(Input::Call { task, attempt, call, reply }).is_err();
        if refused || !self.state.find(task).is_some_and(|task| is_open(task, key)) {
            return;
        }
        if asks {
            self.calls.ask(key, outgoing);
            self.add_timers(task);
            self.reply_early(self.options.answers.to_call(&self.state, task, key.2));
        } else {
            self.schedule_dispatch(key, outgoing);
        }
        self.check_later(task, attempt);
    }

    /// Repeats a call without a recorded end, because the repeated attempt has reached the call. Does nothing if the
    /// call is still in progress.
    fn call_again(&mut self, key: CallKey, mut outgoing: Box<Outgoing>) {
        if self.calls.is_dispatched(key) {
            return;
        }
        let (task, attempt, ordinal) = key;
        let _ = self.apply_input(Input::CallAgain { task, attempt, ordinal });
        // A call of an attempt that was withdrawn meanwhile does not leave.
        let running = |task: &&Task| task.phase == Phase::Running && task.attempt == attempt;
        let Some(found) = self.state.find(task).filter(running) else { return };
        outgoing.lost = found.calls.as_ref().map_or(0, |calls| calls.lost_processes((attempt, ordinal)));
        if is_under_way(found, key) {
            self.schedule_dispatch(key, outgoing);
        } else if found.calls.iter().any(|calls| calls.asked().any(|(call, ..)| call == (attempt, ordinal))) {
            self.calls.ask(key, outgoing);
        }
    }

    /// Handles the decision whether a call may leave. Schedules an allowed call. If the call was denied, or if the
    /// driver no longer has it, begins the call's attempt again in case the attempt is evicted.
    fn call_decided(&mut self, key: CallKey, allowed: bool) {
        let (task, _, ordinal) = key;
        let outgoing = self.calls.take_asked(key);
        if let Some(calls) = self.attempts.calls_of(task) {
            calls.question_closed(ordinal);
        }
        match outgoing {
            Some(outgoing) if allowed => self.schedule_dispatch(key, outgoing),
            _ => self.rehydrate(task),
        }
        self.add_timers(task);
    }

    /// Makes a call as soon as its record is durable.
    fn schedule_dispatch(&mut self, key: CallKey, outgoing: Box<Outgoing>) {
        self.calls.set_leaving(key);
        self.outbox.hold_and_hurry(OnDurable::Dispatch(key, outgoing));
        self.catch_up();
    }

    /// Makes a call whose record is durable, if the run still needs its end and no quota holds it.
    pub(super) fn dispatch(&mut self, key: CallKey, outgoing: Outgoing) {
        let is_wanted = self.state.find(key.0).is_some_and(|task| is_under_way(task, key));
        let capability = self.world.capabilities.get(&outgoing.call.interface);
        let Some(capability) = capability.filter(|_| is_wanted) else { return self.calls.forget(key) };
        if let Some(hold) = self.world.hold(&self.state) {
            self.calls.forget(key);
            let (task, attempt, ordinal) = key;
            let _ = self.apply_input(Input::CallHeld { task, attempt, ordinal, hold });
            return;
        }
        self.has_called = true;
        self.calls.make(key, capability, outgoing);
    }

    /// Records the end of a call, or that a quota holds it.
    pub(super) fn call_ended(&mut self, ended: Ended) {
        let (task, attempt, ordinal) = ended.call;
        self.calls.forget(ended.call);
        let held = ended.reply.as_ref().err().and_then(|failure| QuotaHold::of(failure, self.clock.now()));
        if let Some(hold) = held {
            let _ = self.apply_input(Input::CallHeld { task, attempt, ordinal, hold });
            return;
        }
        let _ = self.apply_input(Input::CallEnded { task, attempt, ordinal, reply: ended.reply });
    }

    /// Passes the recorded end of a call to its attempt.
    fn deliver_reply(&mut self, key: CallKey, ts: u64, reply: &Reply) {
        let (task, attempt, ordinal) = key;
        self.calls.settle(key);
        if self.state.find(task).is_some_and(|task| task.attempt == attempt) {
            match self.attempts.calls_of(task) {
                Some(calls) => calls.deliver_reply(ordinal, ts, reply.clone()),
                None => self.rehydrate(task),
            }
        }
        self.add_timers(task);
    }

    /// Starts the run that a task calls, at once or when a live permit for it is free.
    fn request_child(&mut self, task: TaskKey, call: &FlowCall) {
        if self.shutdown.is_requested() {
            return;
        }
        let attempt = self.state.task(task).attempt;
        let Identity { tenant, run_id, depth, .. } = &self.identity;
        if *depth >= MAX_DEPTH {
            let message = format!("flows may call flows at most {MAX_DEPTH} deep");
            return self.child_failed(task, attempt, Failure::new(code::TOO_DEEP, message));
        }
        let (run, live) = (child::run_id(&self.state, run_id, task, attempt), &self.world.live);
        let enter = || live.enter(tenant, run_id);
        if let Some(permit) = self.children.request_permit((task, attempt), call, &run, enter, &self.site.commands) {
            self.start_child((task, attempt), call, permit);
        }
    }

    /// Starts the run that a task calls. Without a live permit the call fails.
    fn start_child(&mut self, (task, attempt): (TaskKey, u32), call: &FlowCall, permit: Result<LivePermit, Failure>) {
        let opened = permit.and_then(|permit| Ok((permit, self.caller().open(task, call)?)));
        match opened {
            Ok((permit, (driver, hub, begin))) => {
                self.has_called = true;
                let driving = child::drive(driver, begin, permit, (task, attempt), self.site.commands.clone());
                self.children.add(task, hub, driving);
            }
            Err(failure) => self.child_failed(task, attempt, failure),
        }
    }

    pub(super) fn child_failed(&mut self, task: TaskKey, attempt: u32, failure: Failure) {
        self.notes_to_self.push_back(Command::ChildEnded { task, attempt, result: Err(failure) });
    }
}
