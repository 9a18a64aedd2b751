//! Ends of calls that leave the host: by their reply, or because their task no longer waits for it.

use std::sync::Arc;

use flowcell_contract::{BuiltIn, Effect, Failure, code};

use super::{Decider, agents};
use crate::{
    call_log::{self, Reply},
    fact::{Fact, TaskKey},
    state::Phase,
};

/// Ends a call with its reply. Reports the end to the agent run that made the call.
pub(super) fn end(decider: &mut Decider<'_>, task: TaskKey, (attempt, ordinal): (u32, u32), reply: Reply) {
    let agent = agent_of(decider, task, (attempt, ordinal));
    // A call with an unknown end is reported only after a person has resolved it.
    let open = decider.state.task(task).phase != Phase::Closing && call_log::is_ambiguous(&reply);
    let said = (agent.is_some() && !open).then(|| reply.clone());
    decider.emit(Fact::CallEnded { task, attempt, ordinal, reply });
    if let Some(reply) = said {
        agents::call_ended(decider, task, ordinal, agent, &reply);
    }
}

/// Returns the agent run that makes a call, and whether the call is one of a tool.
pub(super) fn agent_of(decider: &Decider<'_>, task: TaskKey, call: (u32, u32)) -> Option<(Arc<str>, bool)> {
    let (agent, interface) = decider.state.task(task).calls.as_ref()?.agent_of(call)?;
    Some((agent.agent_run.clone(), interface == BuiltIn::Tools.name()))
}

/// Ends the open calls of an attempt that has ended, with the failure `abandoned`. `once` calls in progress stay open:
/// an attempt answers only after its `once` calls have ended, and after a timeout the task waits for them.
pub(super) fn abandon(decider: &mut Decider<'_>, key: TaskKey) {
    withdraw_asked(decider, key);
    end_all(decider, key, |effect| {
        let abandoned = || Failure::new(code::ABANDONED, "the attempt ended without the reply");
        (effect != Effect::Once).then(abandoned)
    });
}

/// Ends all calls, because the task ends without their replies: `once` calls as `ambiguous`, other calls as
/// `abandoned`.
pub(super) fn give_up(decider: &mut Decider<'_>, key: TaskKey) {
    let code = |effect| if effect == Effect::Once { code::AMBIGUOUS } else { code::ABANDONED };
    end_all(decider, key, |effect| Some(Failure::new(code(effect), "the task ended before the reply")));
}

/// Ends the calls that wait for approval with the failure `abandoned`.
pub(super) fn withdraw_asked(decider: &mut Decider<'_>, key: TaskKey) {
    let asked = decider.state.task(key).calls.iter().flat_map(|calls| calls.asked()).map(|(call, ..)| call);
    for call in asked.collect::<Vec<_>>() {
        end(decider, key, call, Err(Box::new(Failure::new(code::ABANDONED, "the task no longer waits for the call"))));
    }
}

/// Ends those calls in progress for which `failure` returns a failure.
pub(super) fn end_all(decider: &mut Decider<'_>, key: TaskKey, failure: impl Fn(Effect) -> Option<Failure>) {
    let calls: Vec<_> = decider.state.task(key).calls.iter().flat_map(|calls| calls.under_way()).collect();
    for (call, effect) in calls {
        if let Some(failure) = failure(effect) {
            end(decider, key, call, Err(Box::new(failure)));
        }
    }
}
