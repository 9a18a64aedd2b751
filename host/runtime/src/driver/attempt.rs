//! Renders attempts from the state of the run, in the form that the runner accepts, and the messages to them.

use std::{collections::BTreeSet, sync::Arc};

use flowcell_contract::{Attempt, Digest, Failure, Value, code};
use flowcell_flow::graph::Graph;
use tokio::sync::mpsc;

use super::{entropy, options::Identity};
use crate::{
    agents::InboxMessage,
    calls::{AttemptCalls, Attempting, CallSite},
    capture,
    fact::{AgentFact, TaskKey},
    hub::Command,
    ports::Pin,
    sabotage,
    state::RunState,
    versions::SCOPE_MARK,
    world::World,
};

/// Returns the packs of a flow's nodes.
pub(super) fn packs(graph: &Graph) -> Vec<Digest> {
    let packs: BTreeSet<_> = graph.nodes.iter().filter_map(|node| node.node_type.pack.clone()).collect();
    packs.into_iter().collect()
}

/// Returns the message that a fact has for an attempt: one of a person, or the request to finish.
pub(super) fn message_of(agent_fact: &AgentFact) -> Option<InboxMessage> {
    let message = |run: &Arc<str>, id, value| InboxMessage { run: run.clone(), id, value, applied: false };
    match agent_fact {
        AgentFact::Written { id, message: name, value } => Some(message(id, Some(name.clone()), value.clone())),
        AgentFact::Closing { id } => Some(message(id, None, Value::null())),
        _ => None,
    }
}

/// Returns the context that the calls of all attempts of a run share.
pub(super) fn site(
    world: &World,
    identity: &Identity,
    graph: Arc<Graph>,
    pin: Pin,
    commands: mpsc::Sender<Command>,
) -> CallSite {
    CallSite {
        tenant: identity.tenant.clone(),
        run_id: identity.run_id.clone(),
        root: identity.root.clone(),
        graph,
        pin,
        state: world.state.clone(),
        cache: world.cache.clone(),
        blobs: world.blobs.clone(),
        timers: world.timers.clone(),
        capabilities: world.capabilities.clone(),
        commands,
        endings: Default::default(),
    }
}

/// Renders the current attempt of a task. `alone`: the run has no other attempt in progress.
pub(super) fn render(identity: &Identity, state: &RunState, key: TaskKey, alone: bool) -> Result<Attempt, Failure> {
    let (input, config) = capture::render(state, key)?;
    let node = state.graph.node(key.node);
    let task = state.task(key);
    let details = task.details.as_deref();
    let pack = node.node_type.pack.clone().ok_or_else(|| {
        Failure::new(code::BAD_PACK, format!("node type `{}` belongs to no pack", node.node_type.name))
    })?;
    Ok(Attempt {
        tenant: identity.tenant.clone(),
        run_id: identity.run_id.clone(),
        flow: state.graph.name.clone(),
        node_id: node.id.clone(),
        node_type: node.node_type.name.clone(),
        pack,
        scope: state.path_of(key),
        attempt: task.attempt,
        resumes: task.resumes,
        input: Value::from(input),
        config: Value::from(config),
        state: details.and_then(|details| details.state.clone()),
        woken: details.and_then(|details| details.woken.clone()),
        has_body: node.body.is_some(),
        grants: node.grants.clone(),
        now_ms: task.clock,
        seed: match state.hides_seed {
            true => entropy::attempt_seed(state.seed, key, task.attempt),
            false => entropy::older_attempt_seed(state.seed, key, task.attempt),
        },
        alone,
    })
}

/// Returns the calls of the current attempt of a task, including the recorded ones.
pub(super) fn calls(site: &Arc<CallSite>, state: &RunState, key: TaskKey, config: Value) -> AttemptCalls {
    let task = state.task(key);
    let writes = task.details.as_deref().map(|details| details.writes.to_vec()).unwrap_or_default();
    let scope = state.path_of(key);
    let number = (task.attempt, task.resumes);
    let key_address = state.key_address(key);
    // An earlier attempt of an owner may have had agent runs at the same address.
    let renewed = if state.scope(key.scope).renewed { format!("{SCOPE_MARK}{}", key.scope.0) } else { String::new() };
    let agent_address = format!("{}{renewed}", state.address(key));
    let attempting = Attempting { task: key, scope, key_address, agent_address, number, now_ms: task.clock, config };
    let log = task.calls.as_deref().filter(|_| !sabotage::deduplication_is_off());
    let calls = AttemptCalls::new(site.clone(), attempting, writes, log, task.agents.as_deref());
    calls.set_wait_deadline(task.wait_until);
    calls
}
