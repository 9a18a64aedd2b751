//! Handles the inputs of the deciders: answers of attempts, due timers, commands of people, ends of child runs.

use flowcell_contract::{Failure, Json, Pause, Step, StepResult, Value, Wake, code};
use flowcell_flow::graph::{Jitter, Retry, RetryOn};

use super::{Decider, Input, agents, call_ends, calls, check_answer, close, migrate, passes, quotas, ready};
use crate::{
    capture,
    command::{HubError, RunCommand},
    fact::{AboutRun, CancelReason, Fact, ParkReason, ScopeId, TaskKey, Write},
    limits::{MAX_KEPT_EVENT_BYTES, MAX_KEPT_EVENTS},
    outstanding::{self, Timer},
    question::{self, Closed, QuestionRef},
    state::Phase,
};

/// Decides about an input. The caller settles edges and scopes afterwards.
pub(super) fn handle_input(decider: &mut Decider<'_>, input: Input) -> Result<(), HubError> {
    if decider.state.end.is_some() {
        return Err(HubError::RunEnded);
    }
    match input {
        Input::Start { input, seed, about } => start(decider, input, seed, about),
        Input::Resume { by_hand, alone } => resume(decider, by_hand, alone),
        Input::Accompanied => {
            if decider.state.is_alone() {
                decider.emit(Fact::RunAccompanied);
            }
        }
        Input::Proceed => {}
        Input::Park { due, needs_attention, waits_for, quota } => {
            let reason = match (needs_attention, &quota) {
                (true, _) => ParkReason::NeedsAttention,
                (false, Some(_)) => ParkReason::QuotaExceeded,
                (false, None) => ParkReason::Waiting,
            };
            decider.emit(Fact::RunParked { due, reason, waits_for, quota });
        }
        Input::Call { task, attempt, call, reply } => return calls::begin(decider, task, attempt, call, reply),
        Input::CallAgain { task, attempt, ordinal } => calls::again(decider, task, attempt, ordinal),
        Input::CallHeld { task, attempt, ordinal, hold } => calls::held(decider, task, (attempt, ordinal), hold),
        Input::CallEnded { task, attempt, ordinal, reply } => calls::ended(decider, task, (attempt, ordinal), reply),
        Input::Diverged { task, attempt, message } => calls::diverged(decider, task, attempt, message),
        Input::Answered { task, attempt, result, writes, heard } => {
            if decider.state.is_running(task, attempt) {
                agents::apply_messages(decider, task, &heard);
                answered(decider, task, result, writes);
            }
        }
        Input::Due(timer) => due(decider, &timer),
        Input::ChildEnded { task, attempt, result } => child_ended(decider, task, attempt, result),
        Input::Note { task, note } => {
            if decider.state.find(task).is_some() {
                decider.emit(Fact::Noted { task, note: Box::new(note) });
            }
        }
        Input::AgentReport { task, attempt, report, before } => agents::report(decider, task, attempt, report, before),
        Input::AttemptIdle { task, attempt, due } => agents::attempt_idle(decider, task, attempt, due),
        Input::AttemptBusy { task, attempt } => agents::attempt_busy(decider, task, attempt),
        Input::Migrate(migration) => migrate::migrate(decider, migration),
        Input::Command(command) => return follow(decider, command),
    }
    Ok(())
}

/// Follows a command to the run.
fn follow(decider: &mut Decider<'_>, command: RunCommand) -> Result<(), HubError> {
    match command {
        RunCommand::Send { content } => decider.emit(Fact::MessageSent { content }),
        RunCommand::Reply { gate, answer, question } => return reply(decider, &gate, &answer, &question),
        RunCommand::Emit { name, payload } => return named_event(decider, name, payload),
        RunCommand::Resolve { task, resolution } => return calls::resolve(decider, &task, resolution),
        RunCommand::Write { to, message, value } => return agents::write(decider, &to, message, value),
        RunCommand::CloseAgent { to } => return agents::close(decider, &to),
        RunCommand::Cancel => decider.cancel(CancelReason::Requested),
    }
    Ok(())
}

fn start(decider: &mut Decider<'_>, input: Json, seed: u64, about: Option<Box<AboutRun>>) {
    let deadline = decider.state.policy.total_timeout_ms.map(|total| decider.now.saturating_add(total));
    let loops = !decider.state.graph.cycles.is_empty();
    let nested = decider.state.graph.cycles.iter().any(|cycle| cycle.parent.is_some());
    decider.emit(Fact::RunStarted { input, seed, deadline, about, loops, nested, hides_seed: true });
    decider.emit(Fact::PhaseStarted);
    ready::begin_scope(decider, ScopeId::ROOT);
}

/// Resumes the run. Parks it at once if the store was restored from an older copy. Also parks it at once if processes
/// died too often while they drove only this run, because it would repeatedly kill its process and interrupt other
/// runs.
fn resume(decider: &mut Decider<'_>, by_hand: bool, alone: bool) {
    decider.emit(Fact::RunResumed { by_hand, alone });
    if let Some(reason) = decider.state.park_reason() {
        decider.emit(Fact::RunParked { due: None, reason, waits_for: None, quota: None });
    }
    calls::lose(decider);
}

fn answered(decider: &mut Decider<'_>, key: TaskKey, result: StepResult, writes: Vec<Write>) {
    call_ends::abandon(decider, key);
    match result {
        Ok(Step::Done(output)) => {
            let output = match passes::with_collected(decider, key, output) {
                Ok(output) => output,
                Err(failure) => return attempt_failed(decider, key, failure),
            };
            agents::end_all(decider, key, None);
            decider.emit(Fact::TaskSucceeded { task: key, output, received: None });
            decider.ended.push_back(key);
        }
        Ok(Step::Pause(pause)) => paused(decider, key, pause, writes),
        Err(failure) => {
            let failure = capture::with_sources_of_nulls(&decider.state.graph, key.node, failure);
            attempt_failed(decider, key, failure)
        }
    }
}

fn paused(decider: &mut Decider<'_>, key: TaskKey, pause: Pause, writes: Vec<Write>) {
    let node = decider.state.graph.node(key.node);
    let body_less = node.body.is_none();
    if body_less && pause.until.iter().any(|wake| matches!(wake, Wake::Body(_) | Wake::Each(_))) {
        let message = format!("`{}` runs its body, but has none; give it `body:`", node.id);
        return attempt_failed(decider, key, Failure::new("no_body", message));
    }
    let first = pause.until.first().cloned();
    let kept = pause.until.iter().enumerate().find_map(|(index, wake)| match wake {
        Wake::Event(name) => {
            decider.state.kept.iter().find(|(kept, _)| **kept == **name).map(|kept| (index, kept.clone()))
        }
        _ => None,
    });
    decider.emit(Fact::TaskPaused { task: key, pause: Box::new(pause), writes: writes.into(), received: None });
    match first {
        Some(Wake::Now) => decider.wake(key, 0, Ok(Value::null())),
        Some(Wake::Body(variables)) => passes::start(decider, key, variables.json().clone()),
        Some(Wake::Each(_)) => passes::fill_fan_out(decider, key),
        _ => {}
    }
    if let Some((index, (name, payload))) = kept {
        decider.emit(Fact::EventTaken { name: name.clone() });
        decider.wake(key, index as u32, Ok(event_value(&name, &payload)));
    }
}

/// Decides whether a failed attempt is followed by another attempt or ends the task.
fn attempt_failed(decider: &mut Decider<'_>, key: TaskKey, failure: Failure) {
    let retry = decider.state.graph.node(key.node).policy.retry.for_code(&failure.code);
    let attempt = decider.state.task(key).tries();
    if attempt < retry.max_attempts && is_retried(retry, &failure) {
        let delay_ms = delay(retry, attempt, &failure, decider.entropy.draw());
        call_ends::abandon(decider, key);
        agents::end_all(decider, key, Some(&failure));
        decider.emit(Fact::TaskRetrying { task: key, failure: Box::new(failure), delay_ms, received: None });
        if delay_ms == 0 && !decider.state.task(key).has_calls_in_progress() {
            decider.emit(Fact::RetryDue { task: key });
        }
        return;
    }
    close::task(decider, key, Some(failure));
}

fn due(decider: &mut Decider<'_>, timer: &Timer) {
    if outstanding::due(decider.state, timer).is_none_or(|due| due > decider.now) {
        return;
    }
    match *timer {
        Timer::Attempt { task, .. } => {
            let limit = decider.state.graph.node(task.node).policy.timeout_ms;
            let message = format!("the attempt ran longer than its timeoutMs of {limit}");
            attempt_failed(decider, task, Failure::retryable(code::TIMEOUT, message));
        }
        Timer::Retry { task, .. } => decider.emit(Fact::RetryDue { task }),
        Timer::After { task, index, .. } => {
            let since = decider.state.task(task).since;
            let elapsed = Json::object([("elapsedMs", Json::from(decider.now.saturating_sub(since)))]);
            decider.wake(task, index, Ok(Value::from(elapsed)));
        }
        Timer::Total { task } => {
            let limit = decider.state.graph.node(task.node).policy.total_timeout_ms.unwrap_or_default();
            let message = format!("the node took longer than its totalTimeoutMs of {limit}");
            close::task(decider, task, Some(Failure::new(code::TOTAL_TIMEOUT, message)));
        }
        Timer::Grace { task } => {
            call_ends::give_up(decider, task);
            close::finish(decider, task);
        }
        Timer::Idle { task, .. } => decider.emit(Fact::TaskBusy { task }),
        Timer::Ask { task, attempt, ordinal } => calls::decide(decider, task, (attempt, ordinal), false, None),
        Timer::Flow => decider.cancel(CancelReason::TotalTimeout),
        Timer::Quota => quotas::renew(decider),
    }
}

fn reply(decider: &mut Decider<'_>, gate: &str, answer: &Json, named: &QuestionRef) -> Result<(), HubError> {
    if let Some((task, ordinal)) = gate.rsplit_once('#') {
        return calls::reply(decider, task, ordinal, answer, named);
    }
    let key = decider.state.task_at(gate).ok_or(Closed::NoNode)?;
    let Some((index, question, asked)) = question::gate(decider.state, key) else {
        return Err(question::why_closed(decider.state, key, None, named).into());
    };
    named.check(&asked)?;
    let answer = check_answer(question, answer).map_err(HubError::AnswerRefused)?;
    let QuestionRef { attempt, digest } = asked;
    decider.emit(Fact::Replied { task: key, answer: answer.clone(), attempt, digest });
    decider.wake(key, index as u32, Ok(Value::from(answer)));
    Ok(())
}

/// Wakes every task that waits for a named event. If no task waits, the run keeps the event.
fn named_event(decider: &mut Decider<'_>, name: String, payload: Value) -> Result<(), HubError> {
    let waits = |key: &TaskKey| {
        let details = decider.state.task(*key).details.as_ref()?;
        let until = &details.pause.as_ref()?.until;
        until.iter().position(|wake| matches!(wake, Wake::Event(wanted) if **wanted == *name))
    };
    let woken: Vec<_> = decider.state.paused.iter().filter_map(|key| Some((*key, waits(key)?))).collect();
    if woken.is_empty() {
        let bytes = |name: &str, payload: &Value| name.len() + payload.text().len();
        let kept: usize = decider.state.kept.iter().map(|(name, payload)| bytes(name, payload)).sum();
        let fits = kept + bytes(&name, &payload) <= MAX_KEPT_EVENT_BYTES;
        if decider.state.kept.len() >= MAX_KEPT_EVENTS || !fits {
            return Err(HubError::TooManyEvents);
        }
        decider.emit(Fact::EventKept { name: name.into(), payload });
        return Ok(());
    }
    for (key, index) in woken {
        decider.wake(key, index as u32, Ok(event_value(&name, &payload)));
    }
    Ok(())
}

fn child_ended(decider: &mut Decider<'_>, key: TaskKey, attempt: u32, result: Result<Value, Failure>) {
    let Some(task) = decider.state.find(key).filter(|task| task.attempt == attempt) else { return };
    match task.phase {
        Phase::Paused if decider.state.waits_for_child(key) => decider.wake(key, 0, result),
        Phase::Closing => close::finish(decider, key),
        _ => {}
    }
}

fn event_value(name: &str, payload: &Value) -> Value {
    Value::from(Json::object([("name", Json::from(name)), ("payload", payload.json().clone())]))
}

fn is_retried(retry: &Retry, failure: &Failure) -> bool {
    let always = matches!(failure.code.as_str(), code::TIMEOUT | code::LOST_WORKER);
    match &retry.on {
        RetryOn::Any => true,
        RetryOn::Codes(_) => retry.on.names(&failure.code),
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
