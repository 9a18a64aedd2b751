//! Calls that leave the host, and tasks that cannot continue because of such a call.

use flowcell_contract::{Effect, Failure, Json, code};

use super::{Decider, agents, call_ends, check_answer, close, quotas, race, ready, replies};
use crate::{
    call_log::{ALLOW, Reply, permission},
    command::HubError,
    fact::{BlockReason, CallRecord, Fact, Resolution, TaskKey},
    question::{self, Closed, QuestionRef},
    quota::QuotaHold,
    sabotage,
    state::{Phase, Task},
};

/// Records the start of a call, and its reply if an earlier attempt has recorded it: one of the task, or one of an owner
/// around it.
pub(super) fn begin(
    decider: &mut Decider<'_>,
    task: TaskKey,
    attempt: (u32, u32),
    call: Box<CallRecord>,
    reply: Option<Reply>,
) -> Result<(), HubError> {
    if !decider.state.is_running(task, attempt) {
        return Err(HubError::RunEnded);
    }
    let ordinal = call.ordinal;
    let is_once = call.effect == Effect::Once && !sabotage::deduplication_is_off();
    let reply = reply.or_else(|| decider.state.once_reply(task, &call.key).filter(|_| is_once).cloned());
    let record = call.clone();
    decider.emit(Fact::CallStarted { task, call });
    agents::call_started(decider, task, &record);
    if let Some(reply) = reply {
        call_ends::end(decider, task, (attempt.0, ordinal), reply);
    }
    Ok(())
}

/// Records that a repeated attempt makes a call again, if a person has decided that the call did not happen, or if a quota
/// has held it. Does nothing if the attempt was withdrawn meanwhile.
pub(super) fn again(decider: &mut Decider<'_>, task: TaskKey, attempt: u32, ordinal: u32) {
    let running = |task: &&Task| task.phase == Phase::Running && task.attempt == attempt;
    let calls = decider.state.find(task).filter(running).and_then(|task| task.calls.as_ref());
    if calls.is_some_and(|calls| calls.is_to_repeat((attempt, ordinal))) {
        decider.emit(Fact::CallRepeated { task, attempt, ordinal });
    }
}

/// Takes back a call that has not left, because a quota is used up. The attempt is repeated when the quota has renewed. If
/// no attempt waits for the call, ends the call with the failure of the quota.
pub(super) fn held(decider: &mut Decider<'_>, key: TaskKey, (attempt, ordinal): (u32, u32), hold: QuotaHold) {
    let call = (attempt, ordinal);
    let waits = |task: &Task| {
        let waits = matches!(task.phase, Phase::Running | Phase::Blocked | Phase::Resolved);
        waits && task.attempt == attempt && task.calls.as_ref().is_some_and(|calls| calls.is_under_way(call))
    };
    if decider.state.find(key).is_some_and(waits) {
        decider.emit(Fact::CallHeld { task: key, attempt, ordinal });
        race::call_ended(decider, key);
        return quotas::reach(decider, hold);
    }
    let failure = Failure::new(code::QUOTA_EXCEEDED, format!("the quota `{}` is used up", hold.quota));
    ended(decider, key, call, Err(Box::new(failure)));
}

/// Records the end of a call, and continues a task that waited for it.
pub(super) fn ended(decider: &mut Decider<'_>, key: TaskKey, call: (u32, u32), reply: Reply) {
    let under_way = |task: &Task| task.calls.as_ref().is_some_and(|calls| calls.is_under_way(call));
    if !decider.state.find(key).is_some_and(under_way) {
        return;
    }
    call_ends::end(decider, key, call, reply);
    match decider.state.task(key).phase {
        Phase::Closing if !decider.state.task(key).has_calls_in_progress() => close::finish(decider, key),
        Phase::Running | Phase::Delayed | Phase::Resolved => {
            ask_about_calls(decider, key);
            race::call_ended(decider, key);
        }
        _ => {}
    }
}

/// Records the answer of a person to the question whether a call may leave the host.
pub(super) fn reply(
    decider: &mut Decider<'_>,
    task: &str,
    ordinal: &str,
    answer: &Json,
    named: &QuestionRef,
) -> Result<(), HubError> {
    let key = decider.state.task_at(task).ok_or(Closed::NoNode)?;
    let number = ordinal.parse::<u32>().ok().filter(|number| number.to_string() == ordinal).ok_or(Closed::NoCall)?;
    let Some((call, asked)) = question::permission(decider.state, key, number) else {
        return Err(question::why_closed(decider.state, key, Some(number), named).into());
    };
    named.check(&asked)?;
    let answer = check_answer(&permission(String::new()), answer).map_err(HubError::AnswerRefused)?;
    let allowed = answer.get("choice").and_then(Json::as_str) == Some(ALLOW);
    decide(decider, key, call, allowed, Some(answer));
    Ok(())
}

/// Lets a call that waits for approval leave, or ends it with `tool_denied`. `answer` is `None` if the time to
/// decide ended.
pub(super) fn decide(decider: &mut Decider<'_>, task: TaskKey, call: (u32, u32), allowed: bool, answer: Option<Json>) {
    let expired = answer.is_none();
    let (attempt, ordinal) = call;
    let digest = question::permission(decider.state, task, ordinal).and_then(|(_, asked)| asked.digest);
    decider.emit(Fact::CallDecided { task, attempt, ordinal, allowed, answer, digest });
    if !allowed {
        let why = if expired { "the call was not allowed in time" } else { "a person denied the call" };
        call_ends::end(decider, task, call, Err(Box::new(Failure::new(code::TOOL_DENIED, why))));
    }
}

/// Blocks a task if a person has to decide whether one of its calls happened.
fn ask_about_calls(decider: &mut Decider<'_>, task: TaskKey) {
    if let Some(reason) = decider.state.task(task).calls.as_ref().and_then(|calls| calls.ambiguous()) {
        decider.emit(Fact::TaskBlocked { task, reason: Box::new(reason), received: None });
    }
}

/// Handles the calls in progress after the process that made them has ended. Ends `once` calls as `ambiguous`, and the
/// other calls of closing tasks as `abandoned`. Running attempts make the remaining calls again.
pub(super) fn lose(decider: &mut Decider<'_>) {
    let live = decider.state.scopes.iter().flat_map(|(id, scope)| {
        let calling =
            scope.nodes(&decider.state.graph).iter().zip(&scope.tasks).filter(|(_, task)| task.has_calls_in_progress());
        calling.map(|(node, _)| TaskKey { scope: *id, node: *node })
    });
    let mut tasks: Vec<_> = live.collect();
    tasks.sort_unstable();
    for key in tasks {
        let phase = decider.state.task(key).phase;
        call_ends::end_all(decider, key, |effect| match effect {
            Effect::Once => {
                Some(Failure::new(code::AMBIGUOUS, "the process that made the call ended before the reply"))
            }
            _ if phase == Phase::Closing => {
                Some(Failure::new(code::ABANDONED, "the process that made the call ended before the reply"))
            }
            _ => None,
        });
        match phase {
            Phase::Closing => close::finish(decider, key),
            Phase::Running | Phase::Delayed | Phase::Resolved => ask_about_calls(decider, key),
            _ => {}
        }
    }
}

pub(super) fn diverged(decider: &mut Decider<'_>, task: TaskKey, attempt: (u32, u32), message: Box<str>) {
    if decider.state.is_running(task, attempt) {
        let reason = Box::new(BlockReason::Nondeterministic { message });
        decider.emit(Fact::TaskBlocked { task, reason, received: None });
    }
}

pub(super) fn resolve(decider: &mut Decider<'_>, task: &str, resolution: Resolution) -> Result<(), HubError> {
    let blocked = decider.state.task_at(task).filter(|key| decider.state.task(*key).phase == Phase::Blocked);
    let key = blocked.ok_or(HubError::NotBlocked)?;
    let reason = decider.state.task(key).blocked.as_ref().map(|blocked| &blocked.0);
    if let (Some(BlockReason::Nondeterministic { .. } | BlockReason::UndoFailed { .. }), Resolution::Reply(_)) =
        (reason, &resolution)
    {
        let why = "no call of this task waits for a reply; use `repeat`, `output` or `fail`";
        return Err(HubError::AnswerRefused(why.into()));
    }
    if let (Some(BlockReason::Ambiguous { interface, function, .. }), Resolution::Reply(reply)) = (reason, &resolution)
    {
        replies::check(interface, function, reply.json()).map_err(HubError::AnswerRefused)?;
    }
    let call = match reason {
        Some(BlockReason::Ambiguous { attempt, ordinal, .. }) => Some((*attempt, *ordinal)),
        _ => None,
    };
    let agent = call.and_then(|call| call_ends::agent_of(decider, key, call));
    decider.emit(Fact::TaskResolved { task: key, resolution: Box::new(resolution.clone()) });
    match resolution {
        Resolution::Reply(reply) => {
            if let Some((_, ordinal)) = call {
                agents::call_ended(decider, key, ordinal, agent, &Ok(reply));
            }
            ask_about_calls(decider, key);
            race::call_ended(decider, key);
        }
        Resolution::Repeat => {
            ask_about_calls(decider, key);
            race::call_ended(decider, key);
        }
        Resolution::Output(output) => {
            call_ends::give_up(decider, key);
            decider.emit(Fact::TaskSucceeded { task: key, output, received: None });
            decider.ended.push_back(key);
        }
        Resolution::Fail(message) => {
            let failure = Failure::new(code::RESOLVED, message);
            if decider.state.scope(key.scope).undoing.is_some() {
                call_ends::give_up(decider, key);
                agents::end_all(decider, key, Some(&failure));
                ready::record_failure(decider, key, failure);
            } else {
                close::task(decider, key, Some(failure));
            }
        }
    }
    Ok(())
}
