//! Decides the passes of a body: one after another, or one for each item of a fan-out.

use flowcell_contract::{Failure, Json, Value};

use super::{Decider, close, ready};
use crate::{
    capture::{check_size, with_last},
    fact::{Fact, PassOutcome, ScopeId, TaskKey},
    limits::DEFAULT_FAN_OUT,
    state::Phase,
};

/// Begins one pass with these variables.
pub(super) fn start(decider: &mut Decider<'_>, owner: TaskKey, variables: Json) {
    let index = decider.state.task(owner).details.as_deref().map_or(0, |details| details.passes_begun);
    begin_pass(decider, owner, index, None, Some(variables));
}

fn begin_pass(decider: &mut Decider<'_>, owner: TaskKey, index: u32, variables: Option<Json>, own: Option<Json>) {
    let scope = ScopeId(decider.state.next_scope);
    let task = decider.state.task(owner);
    // The attempts of a node are counted on through the passes of a cycle, which are in the address.
    let attempt = if decider.state.cycle_of(owner.node).is_some() { task.tries() } else { task.attempt };
    let renewed = attempt > 1 || decider.state.scope(owner.scope).renewed;
    decider.emit(Fact::PassStarted { scope, owner, index, variables, own, renewed });
    ready::begin_scope(decider, scope);
}

/// Begins as many passes of a fan-out as its concurrency allows, or wakes its owner if all passes are done.
pub(super) fn fill_fan_out(decider: &mut Decider<'_>, owner: TaskKey) {
    loop {
        let Some(details) = decider.state.task(owner).details.as_deref() else { return };
        let Some(each) = &details.each else { return };
        let count = each.results.len() as u32;
        let failure = each.failure.clone();
        if each.done == count || (failure.is_some() && details.passes.is_empty()) {
            let results = each.results.iter().map(|result| result.clone().unwrap_or_default());
            let results = || check_size(Json::array(results), "the list of the results of the passes").map(Value::from);
            let outcome = failure.map_or_else(results, Err);
            return decider.wake(owner, 0, outcome);
        }
        let concurrency = each.fan_out.concurrency.unwrap_or(DEFAULT_FAN_OUT).max(1);
        if failure.is_some() || each.next == count || details.passes.len() as u32 >= concurrency {
            return;
        }
        let index = each.next;
        let item = each.fan_out.items.json().at(index as usize).cloned().unwrap_or_default();
        let own = Json::object([("item", item), ("index", Json::from(index)), ("count", Json::from(count))]);
        // Parallel passes have no order, so a pass does not see the last output of another.
        let (variables, own) =
            if concurrency == 1 { (None, Some(own)) } else { (Some(with_last(&own, Json::Null)), None) };
        begin_pass(decider, owner, index, variables, own);
    }
}

/// Continues the owner of a pass that has ended: wakes it, begins further passes, or finishes closing it, with this failure.
pub(super) fn ended(decider: &mut Decider<'_>, owner: TaskKey, outcome: PassOutcome, closing: Option<Failure>) {
    let task = decider.state.task(owner);
    let details = task.details.as_deref();
    match task.phase {
        Phase::Closing if details.is_none_or(|details| details.passes.is_empty()) => {
            close::end_closed(decider, owner, closing)
        }
        Phase::Paused if details.is_some_and(|details| details.each.is_some()) => continue_fan_out(decider, owner),
        Phase::Paused => {
            let outcome = match outcome {
                PassOutcome::Done(value) => Ok(Value::from(value)),
                PassOutcome::Failed(failure) => Err(*failure),
                PassOutcome::Cancelled => Err(Failure::new("cancelled", "the pass was cancelled")),
            };
            decider.wake(owner, 0, outcome);
        }
        _ => {}
    }
}

/// Returns the output of a node. If the node collects the results of its passes, adds them to the output as a list.
/// Fails if the output is then larger than a value may be.
pub(super) fn with_collected(decider: &Decider<'_>, owner: TaskKey, output: Value) -> Result<Value, Failure> {
    let node = decider.state.graph.node(owner.node);
    let (Some(member), Some(members)) = (&node.collects, output.json().as_object()) else { return Ok(output) };
    let details = decider.state.task(owner).details.as_deref();
    let items = Json::array(details.map(|details| details.collected.as_slice()).unwrap_or_default().iter().cloned());
    let members = members.iter().map(|(key, value)| (key.clone(), value.clone()));
    let whole = Json::object(members.chain([(member.clone(), items)]));
    check_size(whole, "the list of the results of the passes").map(Value::from)
}

fn continue_fan_out(decider: &mut Decider<'_>, owner: TaskKey) {
    let details = decider.state.task(owner).details.as_deref();
    let stopped = details.and_then(|details| details.each.as_ref()).is_some_and(|each| each.failure.is_some());
    if stopped {
        let passes: Vec<_> = details.map(|details| details.passes.iter().copied().collect()).unwrap_or_default();
        for pass in passes {
            close::scope(decider, pass);
        }
    }
    fill_fan_out(decider, owner);
}
