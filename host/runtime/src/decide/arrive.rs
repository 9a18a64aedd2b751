//! Handles the inputs of the deciders: answers of attempts, due timers, commands of people, ends of child runs.

use flowcell_contract::{Failure, Json, Pause, Step, StepResult, Value, Wake, code};
use flowcell_flow::graph::{Jitter, NodeIx, Retry, RetryOn};

use super::{Decider, Input, check_answer};
use crate::{
    command::{HubError, RunCommand},
    fact::{CancelReason, Fact, ParkReason, ScopeId, TaskKey, Write},
    limits::{MAX_KEPT_EVENT_BYTES, MAX_KEPT_EVENTS},
    outstanding::{self, Timer},
    question::{self, Closed, QuestionRef},
    state::Phase,
};

impl Decider<'_> {
    pub(super) fn arrive(&mut self, input: Input) -> Result<(), HubError> {
        if self.state.end.is_some() {
            return Err(HubError::RunEnded);
        }
        match input {
            Input::Start { input, seed } => self.start(input, seed),
            Input::Resume { by_hand, alone } => self.resume(by_hand, alone),
            Input::Accompanied => {
                if self.state.is_alone() {
                    self.emit(Fact::RunAccompanied);
                }
            }
            Input::Proceed => {}
            Input::Park { due, needs_attention } => {
                let reason = if needs_attention { ParkReason::NeedsAttention } else { ParkReason::Waiting };
                self.emit(Fact::RunParked { due, reason });
            }
            Input::Call { task, attempt, call, reply } => return self.call(task, attempt, call, reply),
            Input::CallAgain { task, attempt, ordinal } => self.call_again(task, attempt, ordinal),
            Input::CallEnded { task, attempt, ordinal, reply } => self.call_ended(task, (attempt, ordinal), reply),
            Input::Diverged { task, attempt, message } => self.diverged(task, attempt, message),
            Input::Answered { task, attempt, result, writes, heard } => {
                if self.state.is_running(task, attempt) {
                    self.apply_messages(task, &heard);
                    self.answered(task, result, writes);
                }
            }
            Input::Due(timer) => self.due(&timer),
            Input::ChildEnded { task, attempt, result } => self.child_ended(task, attempt, result),
            Input::Note { task, note } => {
                if self.state.find(task).is_some() {
                    self.emit(Fact::Noted { task, note: Box::new(note) });
                }
            }
            Input::Told { task, attempt, told, before } => self.agent_report(task, attempt, told, before),
            Input::Waits { task, attempt, due } => self.attempt_idle(task, attempt, due),
            Input::Waited { task, attempt } => self.attempt_busy(task, attempt),
            Input::Command(command) => return self.command(command),
        }
        Ok(())
    }

    fn command(&mut self, command: RunCommand) -> Result<(), HubError> {
        match command {
            RunCommand::Send { content } => self.emit(Fact::MessageSent { content }),
            RunCommand::Reply { gate, answer, question } => return self.reply(&gate, &answer, &question),
            RunCommand::Emit { name, payload } => return self.named_event(name, payload),
            RunCommand::Resolve { task, resolution } => return self.resolve(&task, resolution),
            RunCommand::Write { to, message, value } => return self.write_to(&to, message, value),
            RunCommand::CloseAgent { to } => return self.close_agent(&to),
            RunCommand::Cancel => self.cancel(CancelReason::Requested),
        }
        Ok(())
    }

    fn start(&mut self, input: Json, seed: u64) {
        let deadline = self.state.policy.total_timeout_ms.map(|total| self.now.saturating_add(total));
        self.emit(Fact::RunStarted { input, seed, deadline });
        self.emit(Fact::PhaseStarted);
        self.begin_scope(ScopeId::ROOT);
    }

    /// Resumes the run. Parks it at once if the store was restored from an older copy, or if processes died too often
    /// while they drove only this run. Otherwise such a run would repeatedly interrupt all other runs of its process.
    fn resume(&mut self, by_hand: bool, alone: bool) {
        self.emit(Fact::RunResumed { by_hand, alone });
        if let Some(reason) = self.state.park_reason() {
            self.emit(Fact::RunParked { due: None, reason });
        }
        self.lose_calls();
    }

    fn answered(&mut self, key: TaskKey, result: StepResult, writes: Vec<Write>) {
        self.abandon_calls(key);
        match result {
            Ok(Step::Done(output)) => {
                let output = match self.with_collected(key, output) {
                    Ok(output) => output,
                    Err(failure) => return self.attempt_failed(key, failure),
                };
                self.end_agents(key, None);
                self.emit(Fact::TaskSucceeded { task: key, output, received: None });
                self.ended.push_back(key);
            }
            Ok(Step::Pause(pause)) => self.paused(key, pause, writes),
            Err(failure) => self.attempt_failed(key, failure),
        }
    }

    fn paused(&mut self, key: TaskKey, pause: Pause, writes: Vec<Write>) {
        let node = self.state.graph.node(key.node);
        let body_less = node.body.is_none();
        if body_less && pause.until.iter().any(|wake| matches!(wake, Wake::Body(_) | Wake::Each(_))) {
            let message = format!("`{}` runs its body, but has none; give it `body:`", node.id);
            return self.attempt_failed(key, Failure::new("no_body", message));
        }
        let first = pause.until.first().cloned();
        let kept = pause.until.iter().enumerate().find_map(|(index, wake)| match wake {
            Wake::Event(name) => {
                self.state.kept.iter().find(|(kept, _)| **kept == **name).map(|kept| (index, kept.clone()))
            }
            _ => None,
        });
        self.emit(Fact::TaskPaused { task: key, pause: Box::new(pause), writes: writes.into(), received: None });
        match first {
            Some(Wake::Now) => self.wake(key, 0, Ok(Value::null())),
            Some(Wake::Body(variables)) => self.start_pass(key, variables.json().clone()),
            Some(Wake::Each(_)) => self.fill_fan_out(key),
            _ => {}
        }
        if let Some((index, (name, payload))) = kept {
            self.emit(Fact::EventTaken { name: name.clone() });
            self.wake(key, index as u32, Ok(event_value(&name, &payload)));
        }
    }

    pub(super) fn wake(&mut self, task: TaskKey, index: u32, outcome: Result<Value, Failure>) {
        self.emit(Fact::TaskWoken { task, index, outcome: outcome.map_err(Box::new) });
    }

    /// Decides whether a failed attempt is followed by another attempt or ends the task.
    fn attempt_failed(&mut self, key: TaskKey, failure: Failure) {
        let retry = &self.state.graph.node(key.node).policy.retry;
        let attempt = self.state.task(key).attempt;
        if attempt < retry.max_attempts && is_retried(retry, &failure) {
            let delay_ms = delay(retry, attempt, &failure, self.entropy.draw());
            self.abandon_calls(key);
            self.end_agents(key, Some(&failure));
            self.emit(Fact::TaskRetrying { task: key, failure: Box::new(failure), delay_ms, received: None });
            if delay_ms == 0 && !self.state.task(key).has_calls_in_progress() {
                self.emit(Fact::RetryDue { task: key });
            }
            return;
        }
        self.close_task(key, Some(failure));
    }

    fn due(&mut self, timer: &Timer) {
        if outstanding::due(self.state, timer).is_none_or(|due| due > self.now) {
            return;
        }
        match *timer {
            Timer::Attempt { task, .. } => {
                let limit = self.state.graph.node(task.node).policy.timeout_ms;
                let message = format!("the attempt ran longer than its timeoutMs of {limit}");
                self.attempt_failed(task, Failure::retryable(code::TIMEOUT, message));
            }
            Timer::Retry { task, .. } => self.emit(Fact::RetryDue { task }),
            Timer::After { task, index, .. } => {
                let since = self.state.task(task).since;
                let elapsed = Json::object([("elapsedMs", Json::from(self.now.saturating_sub(since)))]);
                self.wake(task, index, Ok(Value::from(elapsed)));
            }
            Timer::Total { task } => {
                let limit = self.state.graph.node(task.node).policy.total_timeout_ms.unwrap_or_default();
                let message = format!("the node took longer than its totalTimeoutMs of {limit}");
                self.close_task(task, Some(Failure::new(code::TOTAL_TIMEOUT, message)));
            }
            Timer::Grace { task } => {
                self.give_up_calls(task);
                self.finish_closing(task);
            }
            Timer::Idle { task, .. } => self.emit(Fact::TaskBusy { task }),
            Timer::Ask { task, attempt, ordinal } => self.decide_call(task, (attempt, ordinal), false, None),
            Timer::Flow => self.cancel(CancelReason::TotalTimeout),
        }
    }

    fn reply(&mut self, gate: &str, answer: &Json, named: &QuestionRef) -> Result<(), HubError> {
        if let Some((task, ordinal)) = gate.rsplit_once('#') {
            return self.reply_to_call(task, ordinal, answer, named);
        }
        let key = self.state.task_at(gate).ok_or(Closed::NoNode)?;
        let Some((index, question, asked)) = question::gate(self.state, key) else {
            return Err(question::why_closed(self.state, key, None, named).into());
        };
        named.check(&asked)?;
        let answer = check_answer(question, answer).map_err(HubError::AnswerRefused)?;
        let QuestionRef { attempt, digest } = asked;
        self.emit(Fact::Replied { task: key, answer: answer.clone(), attempt, digest });
        self.wake(key, index as u32, Ok(Value::from(answer)));
        Ok(())
    }

    /// Wakes every task that waits for a named event. If no task waits, the run keeps the event.
    fn named_event(&mut self, name: String, payload: Value) -> Result<(), HubError> {
        let waits = |key: &TaskKey| {
            let details = self.state.task(*key).details.as_ref()?;
            let until = &details.pause.as_ref()?.until;
            until.iter().position(|wake| matches!(wake, Wake::Event(wanted) if **wanted == *name))
        };
        let woken: Vec<_> = self.state.paused.iter().filter_map(|key| Some((*key, waits(key)?))).collect();
        if woken.is_empty() {
            let bytes = |name: &str, payload: &Value| name.len() + payload.text().len();
            let kept: usize = self.state.kept.iter().map(|(name, payload)| bytes(name, payload)).sum();
            let fits = kept + bytes(&name, &payload) <= MAX_KEPT_EVENT_BYTES;
            if self.state.kept.len() >= MAX_KEPT_EVENTS || !fits {
                return Err(HubError::TooManyEvents);
            }
            self.emit(Fact::EventKept { name: name.into(), payload });
            return Ok(());
        }
        for (key, index) in woken {
            self.wake(key, index as u32, Ok(event_value(&name, &payload)));
        }
        Ok(())
    }

    fn child_ended(&mut self, key: TaskKey, attempt: u32, result: Result<Value, Failure>) {
        let Some(task) = self.state.find(key).filter(|task| task.attempt == attempt) else { return };
        match task.phase {
            Phase::Paused if self.state.waits_for_child(key) => self.wake(key, 0, result),
            Phase::Closing => self.finish_closing(key),
            _ => {}
        }
    }

    /// Returns the input of a failed task, if an edge may carry it. If the input could not be rendered, returns those
    /// members that can be. Returns `None` for a task that never became ready.
    pub(super) fn input_for_edges(&self, node: NodeIx, key: TaskKey) -> Option<Json> {
        use flowcell_flow::graph::On;
        let graph = &self.state.graph;
        let carries = graph.node(node).outgoing.iter().any(|edge| graph.edge(*edge).on != On::Success);
        if !carries || self.state.task(key).phase == Phase::Waiting {
            return None;
        }
        let whole = crate::capture::render(self.state, key).map(|(input, _)| input);
        Some(whole.unwrap_or_else(|_| crate::capture::render_members(self.state, key)))
    }
}

fn event_value(name: &str, payload: &Value) -> Value {
    Value::from(Json::object([("name", Json::from(name)), ("payload", payload.json().clone())]))
}

fn is_retried(retry: &Retry, failure: &Failure) -> bool {
    let always = matches!(failure.code.as_str(), code::TIMEOUT | code::LOST_WORKER);
    match retry.on {
        RetryOn::Any => true,
        RetryOn::Retryable => failure.retryable || always,
    }
}

/// Returns the delay before the next attempt: exponential, capped and spread. If the failure requests a longer delay,
/// that delay applies, up to the cap.
fn delay(retry: &Retry, attempt: u32, failure: &Failure, random: u64) -> u64 {
    let grown = retry.backoff_ms as f64 * retry.factor.powi(attempt as i32 - 1);
    let whole = grown.min(retry.max_backoff_ms as f64) as u64;
    let spread = match retry.jitter {
        Jitter::None => whole,
        Jitter::Full => random % (whole + 1),
    };
    failure.retry_after_ms.map_or(spread, |wish| wish.max(spread).min(retry.max_backoff_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thousand runs that fail at the same moment, because their server is down, do not retry at the same moment.
    #[test]
    fn r29_the_next_tries_of_many_runs_are_spread() {
        let retry = Retry { backoff_ms: 1_000, ..Retry::default() };
        let failure = Failure::retryable("down", "the server is down");
        for attempt in 1..4 {
            let most = 1_000 << (attempt - 1);
            let mut tenths = [0_u32; 10];
            for run in 0..1_000_u64 {
                let random = run.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11;
                let delay = delay(&retry, attempt, &failure, random);
                assert!(delay <= most, "{delay}");
                tenths[(delay * 10 / (most + 1)) as usize] += 1;
            }
            assert!(tenths.iter().all(|count| (50..200).contains(count)), "{tenths:?}");
        }
    }
}
