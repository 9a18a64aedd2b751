//! The fold: the effect of each fact on the state. The fold evaluates no expressions and makes no choices.
//!
//! If a fact names an item that does not exist in the state, a decider has a bug or the journal is corrupt. The fold
//! then panics, because the state would no longer follow from the facts.

mod cycles;
mod migrated;
mod passes;
mod undo;

use flowcell_contract::{Failure, Json, Pause, Value, Wake};
use flowcell_flow::graph::{BodyIx, EdgeIx};

use crate::{
    call_log::CallNumber,
    capture::{self, with_last},
    fact::{AgentFact, BlockReason, Fact, ParkReason, Resolution, RunEnd, ScopeId, SkipReason, TaskKey, Write},
    outcome, outstanding,
    state::{Deaths, Each, EdgeState, LastQuestion, Phase, RunState, Scope, Task},
};

impl RunState {
    /// Folds one fact, which happened at `ts` (milliseconds since 1970), into the state.
    pub fn apply(&mut self, fact: &Fact, ts: u64) {
        self.events += 1;
        self.bytes = self.bytes.saturating_add(fact.size());
        match fact {
            Fact::RunStarted { input, seed, deadline, about, loops, nested, hides_seed } => {
                (self.began, self.about) = (ts, about.as_deref().cloned());
                (self.loops, self.nested, self.hides_seed) = (*loops, *nested, *hides_seed);
                self.run_started(input, *seed, *deadline);
            }
            Fact::TaskReady { task, deadline } => self.task_ready(*task, *deadline, ts),
            Fact::TaskSkipped { task, reason } => self.task_skipped(*task, *reason),
            Fact::AttemptStarted { task } => self.attempt_started(*task, ts),
            Fact::TaskResumed { task } => self.task_resumed(*task, ts),
            Fact::TaskPaused { task, pause, writes, .. } => self.task_paused(*task, pause, writes, ts),
            Fact::TaskWoken { task, index, outcome } => self.task_woken(*task, *index, outcome, ts),
            Fact::TaskRetrying { task, delay_ms, .. } => self.task_retrying(*task, ts + delay_ms),
            Fact::RetryDue { task } => self.enqueue(*task, Phase::Ready),
            Fact::TaskSucceeded { task, output, .. } => {
                let input = self.task(*task).captured.clone();
                self.task_ended(*task, Phase::Succeeded, output.json().clone());
                undo::keep(self, *task, input, ts);
            }
            Fact::TaskFailed { task, failure, input, .. } => {
                let output = outcome::failed(failure, self.task(*task).tries());
                self.task_ended(*task, Phase::Failed, output);
                self.task_mut(*task).failed_input = input.clone();
            }
            Fact::TaskCancelled { task, .. } => self.task_ended(*task, Phase::Cancelled, outcome::cancelled()),
            Fact::TaskClosing { task, failure, .. } => {
                self.set_phase(*task, Phase::Closing);
                let task = self.task_mut(*task);
                task.since = ts;
                task.details().closing = failure.as_deref().cloned();
            }
            Fact::CallStarted { task, call } => {
                let task = self.task_mut(*task);
                let attempt = task.attempt;
                task.wait_until = None;
                task.calls().begin(attempt, call);
            }
            Fact::CallRepeated { task, attempt, ordinal } => {
                self.task_mut(*task).calls().mark_out((*attempt, *ordinal));
            }
            Fact::CallHeld { task, attempt, ordinal } => self.call_held(*task, (*attempt, *ordinal), ts),
            Fact::CallEnded { task, attempt, ordinal, reply } => {
                self.continue_attempt(*task, ts);
                let task = self.task_mut(*task);
                let current = task.attempt;
                task.calls().end(current, (*attempt, *ordinal), ts, reply);
            }
            Fact::TaskBlocked { task, reason, .. } => self.task_blocked(*task, reason, ts),
            Fact::TaskResolved { task, resolution } => self.task_resolved(*task, resolution, ts),
            Fact::AttemptRepeated { task } => {
                self.set_phase(*task, Phase::Running);
                self.task_mut(*task).since = ts;
            }
            Fact::EdgeSettled { scope, edge, fired } => self.edge_settled(*scope, *edge, *fired),
            Fact::FailureUnhandled { task } => self.failure_unhandled(*task),
            Fact::ScopeClosing { scope } => self.scope_mut(*scope).closing = true,
            Fact::PassStarted { scope, owner, index, variables, own, renewed } => {
                let before = || self.task(*owner).details.as_ref().map_or(Json::Null, |details| details.last.clone());
                let last = || own.as_ref().and_then(|own| own.get("last")).cloned().unwrap_or_else(before);
                let whole = || with_last(own.as_ref().unwrap_or(&Json::Null), last());
                let variables = variables.clone().unwrap_or_else(whole);
                passes::start(self, *scope, (*owner, *index), variables, *renewed);
            }
            Fact::PassEnded { scope, outcome } => {
                undo::release(self, *scope, ts);
                undo::hand_up(self, *scope);
                passes::end(self, *scope, outcome);
            }
            Fact::CyclePassStarted { scope, entry, pass } => cycles::begin_pass(self, *scope, *entry, *pass),
            Fact::CycleEnded { scope, entry } => cycles::end(self, *scope, *entry),
            Fact::UndosBegan { scope, end } => undo::begin(self, *scope, end, ts),
            Fact::UndoStarted { scope, within, value, .. } => undo::start(self, *scope, *within, value.clone()),
            Fact::UndoEnded { scope } => undo::end(self, *scope),
            Fact::EventKept { name, payload } => self.kept.push_back((name.clone(), payload.clone())),
            Fact::EventTaken { name } => {
                if let Some(at) = self.kept.iter().position(|(kept, _)| kept == name) {
                    self.kept.remove(at);
                }
            }
            Fact::Agent { task: key, agent_fact, before } => {
                let task = self.task_mut(*key);
                if !before.is_empty() {
                    task.calls().observe(before);
                }
                task.agents().apply(agent_fact);
                match **agent_fact {
                    AgentFact::Written { .. } | AgentFact::Closing { .. } => self.continue_attempt(*key, ts),
                    AgentFact::Opened { .. } | AgentFact::Told { .. } | AgentFact::Closed { .. } => {
                        task.wait_until = None
                    }
                    _ => {}
                }
            }
            Fact::TaskIdle { task, due } => {
                self.task_mut(*task).idle_from(ts, *due);
                self.running -= 1;
            }
            Fact::TaskBusy { task } => self.continue_attempt(*task, ts),
            Fact::CallDecided { task, attempt, ordinal, allowed, answer, .. } => {
                if *allowed {
                    self.continue_attempt(*task, ts);
                }
                self.task_mut(*task).calls().decide((*attempt, *ordinal), *allowed, answer.is_some());
            }
            Fact::PhaseStarted
            | Fact::PhaseEnded { .. }
            | Fact::MessageSent { .. }
            | Fact::Replied { .. }
            | Fact::Noted { .. } => {}
            Fact::Migrated { migration } => migrated::fold(self, migration),
            Fact::CancelRequested { reason } => self.cancel = Some(*reason),
            Fact::RunResumed { by_hand, alone } => self.run_resumed(*by_hand, *alone, ts),
            Fact::RunAccompanied => self.deaths.alone = false,
            Fact::QuotaReached(hold) => self.held_by = Some((**hold).clone()),
            Fact::QuotaRenewed => self.held_by = None,
            // A run that parks to wait has not harmed its process.
            Fact::RunParked { reason: ParkReason::CrashLoop, .. } => {}
            Fact::RunParked { reason: ParkReason::Restored, .. } => {
                (self.restored, self.parked_for) = (true, None);
            }
            Fact::RunParked { quota, .. } => {
                self.deaths = Deaths::default();
                self.parked_for = quota.as_deref().cloned();
            }
            Fact::RunEnded { end } => {
                self.ended = Some(ts);
                self.run_ended(end);
            }
        }
        if is_progress(fact) {
            self.deaths = Deaths::default();
        }
    }

    pub(crate) fn scope_mut(&mut self, scope: ScopeId) -> &mut Scope {
        match self.scopes.get_mut(&scope) {
            Some(scope) => scope,
            None => panic!("the journal names scope {}, which is not live", scope.0),
        }
    }

    pub(crate) fn task_mut(&mut self, key: TaskKey) -> &mut Task {
        let slot = self.scope(key.scope).slot(&self.graph, key.node);
        &mut self.scope_mut(key.scope).tasks[slot]
    }

    fn run_started(&mut self, input: &Json, seed: u64, deadline: Option<u64>) {
        self.set_input(input);
        self.seed = seed;
        self.deadline = deadline;
        self.next_scope = 1;
        self.scopes.insert(ScopeId::ROOT, passes::new_scope(self, BodyIx::ROOT));
    }

    /// Counts the resumption if the run has work to do. If a person requested the resumption, resets the counts of
    /// deaths instead. `alone`: true if the process drives no other run; such a resumption also counts as a try
    /// alone. Restarts the clocks of the running attempts: the time during which no process drove the run does not
    /// count as their running time. Counts one more lost process for each call in progress, except for `once`
    /// calls.
    fn run_resumed(&mut self, by_hand: bool, alone: bool, ts: u64) {
        self.parked_for = None;
        self.restored &= !by_hand;
        let busy = outstanding::is_busy(self, ts);
        if by_hand {
            self.deaths = Deaths::default();
        } else if busy {
            // An idle run did not cause the death of its process, so only a busy run is counted.
            self.deaths.resumed += 1;
            self.deaths.lone += u32::from(self.deaths.alone);
        }
        self.deaths.tried += u32::from(alone);
        self.deaths.alone = alone && busy;
        for task in self.scopes.values_mut().flat_map(|scope| &mut scope.tasks) {
            if task.phase == Phase::Running && !task.idle {
                task.since = ts;
            }
            task.calls.iter_mut().for_each(|calls| calls.count_lost_process());
        }
    }

    fn run_ended(&mut self, end: &RunEnd) {
        self.end = Some(end.clone());
        self.end_names_places = outcome::end_names_places(self);
        self.scopes.clear();
        self.queue.clear();
        self.paused.clear();
        self.running = 0;
    }

    /// Moves a task to another phase. Updates the scope's counts, the number of running tasks and the queue
    /// accordingly.
    fn set_phase(&mut self, key: TaskKey, phase: Phase) {
        let task = self.task_mut(key);
        let before = std::mem::replace(&mut task.phase, phase);
        let idle = std::mem::take(&mut task.idle);
        let scope = self.scope_mut(key.scope);
        let active = |phase: Phase| !phase.is_end() && phase != Phase::Waiting;
        scope.waiting -= u32::from(before == Phase::Waiting);
        scope.active += u32::from(active(phase));
        scope.active -= u32::from(active(before));
        if phase.is_end() {
            cycles::task_ended(self, key);
        }
        self.running += u32::from(phase == Phase::Running);
        self.running -= u32::from(before == Phase::Running && !idle);
        if before == Phase::Paused {
            self.paused.remove(&key);
        }
        if phase == Phase::Paused {
            self.paused.insert(key);
        }
        let queued = |phase: Phase| matches!(phase, Phase::Ready | Phase::Woken | Phase::Resolved);
        if queued(before) {
            // The front of the queue gets the next permit; only a cancelled task leaves from another position.
            if self.queue.front() == Some(&key) {
                self.queue.pop_front();
            } else {
                self.queue.retain(|queued| *queued != key);
            }
        }
        if queued(phase) {
            self.queue.push_back(key);
        }
    }

    /// Continues an attempt that has waited only for people. Such an attempt holds no permit; now it gets one again,
    /// even if all permits are in use.
    fn continue_attempt(&mut self, key: TaskKey, ts: u64) {
        let task = self.task_mut(key);
        if std::mem::take(&mut task.idle) {
            task.since = ts;
            self.running += 1;
        }
    }

    fn enqueue(&mut self, key: TaskKey, phase: Phase) {
        self.set_phase(key, phase);
    }

    fn task_ready(&mut self, key: TaskKey, deadline: Option<u64>, ts: u64) {
        let captured = match &self.scope(key.scope).undoing {
            Some(undoing) => {
                let captured = undoing.undoable.captured.as_deref();
                capture::complete(&self.graph, key.node, captured, (undoing.value.as_ref(), ts))
            }
            None => capture::capture(self, key, ts),
        };
        self.set_phase(key, Phase::Ready);
        let task = self.task_mut(key);
        task.captured = captured;
        task.deadline = deadline;
    }

    fn task_skipped(&mut self, key: TaskKey, _reason: SkipReason) {
        self.set_phase(key, Phase::Skipped);
        self.task_mut(key).output = Some(outcome::skipped());
    }

    fn attempt_started(&mut self, key: TaskKey, ts: u64) {
        self.set_phase(key, Phase::Running);
        let task = self.task_mut(key);
        task.attempt += 1;
        task.resumes = 0;
        task.last_question = None;
        task.ran_ms = 0;
        task.since = ts;
        task.clock = ts;
        // A new attempt starts without the passes and pauses of the attempt before it.
        task.details = None;
        task.agents = None;
        task.calls.iter_mut().for_each(|calls| calls.new_attempt());
    }

    fn task_resumed(&mut self, key: TaskKey, ts: u64) {
        self.set_phase(key, Phase::Running);
        let task = self.task_mut(key);
        task.resumes += 1;
        task.since = ts;
        task.clock = ts;
    }

    fn task_paused(&mut self, key: TaskKey, pause: &Pause, writes: &[Write], ts: u64) {
        self.set_phase(key, Phase::Paused);
        let task = self.task_mut(key);
        task.last_question = None;
        task.ran_ms += ts.saturating_sub(task.since);
        task.since = ts;
        task.calls.iter_mut().for_each(|calls| calls.checkpoint());
        task.agents.iter_mut().for_each(|agents| agents.checkpoint());
        task.has_called |= pause.until.iter().any(|wake| matches!(wake, Wake::Flow(_)));
        let details = task.details();
        details.state = Some(pause.state.clone());
        details.writes = writes.into();
        details.woken = None;
        if let [Wake::Each(fan_out)] = pause.until.as_slice() {
            details.each = Some(Each::new(fan_out.clone()));
        }
        details.pause = Some(pause.clone());
    }

    fn task_woken(&mut self, key: TaskKey, index: u32, outcome: &Result<Value, Box<Failure>>, ts: u64) {
        self.enqueue(key, Phase::Woken);
        let details = self.task_mut(key).details();
        let pause = details.pause.take();
        let asked = pause.iter().flat_map(|pause| &pause.until).any(|wake| matches!(wake, Wake::Answer(_)));
        let wake = pause.and_then(|pause| pause.until.get(index as usize).map(Wake::name)).unwrap_or("now");
        details.each = None;
        details.woken = Some(Value::from(outcome::wake_to_json(index, wake, outcome)));
        if wake == "body"
            && let Ok(value) = outcome
        {
            details.last = value.json().clone();
        }
        if asked {
            self.task_mut(key).last_question =
                Some(if wake == "answer" { LastQuestion::Answered } else { LastQuestion::OtherWake });
        }
        if self.graph.node(key.node).rebinds {
            let captured = capture::recapture(self, key, ts);
            self.task_mut(key).captured = captured;
        }
    }

    fn task_retrying(&mut self, key: TaskKey, due: u64) {
        self.set_phase(key, Phase::Delayed);
        let task = self.task_mut(key);
        task.details = None;
        task.details().retry_due = due;
        task.calls.iter_mut().for_each(|calls| calls.new_attempt());
    }

    fn task_ended(&mut self, key: TaskKey, phase: Phase, output: Json) {
        self.set_phase(key, phase);
        self.keep_once_replies(key);
        let task = self.task_mut(key);
        task.output = Some(output);
        task.details = None;
        task.calls = None;
        task.agents = None;
        task.blocked = None;
        // No expression reads the captured values after the task has ended. Kept, they would hold every earlier
        // version of the referenced values in memory.
        task.captured = None;
    }

    /// Keeps the replies of a task's `once` calls until no owner around it can be tried again: in the next attempt of
    /// the owner, the same node must not make the same call again.
    fn keep_once_replies(&mut self, key: TaskKey) {
        self.once_replies.remove(&key);
        let Some(owner) = self.retried_owner(key.scope) else { return };
        let calls = self.task_mut(key).calls.take();
        let replies = calls.map(|calls| calls.once).filter(|replies| !replies.is_empty());
        if let Some(replies) = replies {
            self.once_replies.entry(owner).or_default().extend(replies);
        }
    }

    fn task_blocked(&mut self, key: TaskKey, reason: &BlockReason, ts: u64) {
        let before = self.task(key).phase;
        self.set_phase(key, Phase::Blocked);
        let task = self.task_mut(key);
        if before == Phase::Running {
            task.ran_ms += ts.saturating_sub(task.since);
        }
        task.blocked = Some(Box::new((reason.clone(), before)));
        if reason.is_undo_failed() {
            // The time of the person's decision does not count.
            (task.deadline, task.details) = (None, None);
            task.calls.iter_mut().for_each(|calls| calls.new_attempt());
        }
    }

    /// Takes back a call that has not left. If its attempt runs, the task waits for a permit to repeat the attempt.
    fn call_held(&mut self, key: TaskKey, call: CallNumber, ts: u64) {
        let task = self.task_mut(key);
        let current = task.attempt;
        task.calls().repeat(current, call);
        if task.phase == Phase::Running {
            if !task.idle {
                task.ran_ms += ts.saturating_sub(task.since);
            }
            self.set_phase(key, Phase::Resolved);
        }
    }

    fn task_resolved(&mut self, key: TaskKey, resolution: &Resolution, ts: u64) {
        let limit = self.graph.node(key.node).policy.total_timeout_ms;
        let task = self.task_mut(key);
        let current = task.attempt;
        let Some(blocked) = task.blocked.take() else { panic!("the journal resolves a task that is not blocked") };
        let next = match (&blocked.0, resolution) {
            // Another fact records the end of the task.
            (_, Resolution::Output(_) | Resolution::Fail(_)) => return,
            (BlockReason::UndoFailed { .. }, _) => {
                task.earlier = task.attempt;
                task.deadline = limit.map(|limit| ts.saturating_add(limit));
                Phase::Ready
            }
            (BlockReason::Nondeterministic { .. }, _) => {
                task.calls().new_attempt();
                Phase::Ready
            }
            (BlockReason::Ambiguous { attempt, ordinal, .. }, resolution) => {
                let call = (*attempt, *ordinal);
                match resolution {
                    Resolution::Reply(reply) => task.calls().settle(current, call, ts, reply.clone()),
                    _ => task.calls().repeat(current, call),
                }
                let ran = matches!(blocked.1, Phase::Running | Phase::Resolved);
                if ran { Phase::Resolved } else { Phase::Ready }
            }
        };
        self.enqueue(key, next);
    }

    fn edge_settled(&mut self, scope: ScopeId, edge: EdgeIx, fired: bool) {
        let graph = self.graph.clone();
        let line = graph.edge(edge);
        let slot = graph.node(line.to).slot as usize;
        let goes_back = self.goes_back(edge);
        let scope = self.scope_mut(scope);
        scope.edges[line.slot as usize] = if fired { EdgeState::Fired } else { EdgeState::Skipped };
        if goes_back {
            return;
        }
        let target = &mut scope.tasks[slot];
        target.pending -= 1;
        if fired {
            target.fired += 1;
            target.first_fired.get_or_insert(edge);
        }
    }

    fn failure_unhandled(&mut self, key: TaskKey) {
        let error = self.task(key).output.as_ref().and_then(|output| output.get("error")).cloned();
        let failure = outcome::read_failure(error.as_ref());
        self.scope_mut(key.scope).failure.get_or_insert((key, failure));
    }
}

/// Returns true if a fact shows that the run makes progress.
fn is_progress(fact: &Fact) -> bool {
    matches!(
        fact,
        Fact::TaskSucceeded { .. }
            | Fact::TaskFailed { .. }
            | Fact::TaskPaused { .. }
            | Fact::TaskRetrying { .. }
            | Fact::CallEnded { .. }
            | Fact::CallDecided { .. }
            | Fact::Agent { .. }
    )
}
