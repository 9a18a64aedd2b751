//! Races: a node with `cancelRest` cancels the branches that come too late.

use flowcell_contract::Effect;

use super::{Decider, close};
use crate::{fact::TaskKey, state::Phase};

/// Cancels the branches that lead only to a node whose join has opened.
pub(super) fn won(decider: &mut Decider<'_>, join: TaskKey) {
    let graph = decider.state.graph.clone();
    for node in &graph.node(join.node).cancels {
        lose(decider, TaskKey { scope: join.scope, node: *node });
    }
}

/// Cancels a task whose call has ended, if its branch has lost in the meantime.
pub(super) fn call_ended(decider: &mut Decider<'_>, key: TaskKey) {
    let graph = decider.state.graph.clone();
    let has_opened = |join: &_| {
        let join = decider.state.task(TaskKey { scope: key.scope, node: *join });
        join.fired > 0 && join.phase != Phase::Waiting
    };
    if graph.node(key.node).cancelled_by.iter().any(has_opened) {
        lose(decider, key);
    }
}

/// Cancels a task. A `once` call in progress is waited for first, because no person could decide about its end after that. A
/// task that waits for a person's decision keeps waiting.
fn lose(decider: &mut Decider<'_>, key: TaskKey) {
    let task = decider.state.task(key);
    let is_open = || task.calls.iter().flat_map(|calls| calls.under_way()).any(|(_, effect)| effect == Effect::Once);
    if task.phase != Phase::Blocked && !is_open() {
        close::task(decider, key, None);
    }
}
