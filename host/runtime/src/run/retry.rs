//! Doing again what a run did: all of it, or from a node on.

use std::{collections::HashSet, sync::Arc};

use flowcell_contract::{NodeId, RunId};
use flowcell_flow::graph::{BodyIx, Graph, NodeIx};

use super::{FlowRunner, OpenError, RunOptions, decided::decided};
use crate::{
    driver::{FixtureOutputs, each_unit},
    fact::{Fact, ScopeId},
    ports::{Again, Record, StoreError},
    world::World,
};

/// What a new run does again.
#[derive(Clone, Debug, Default)]
pub struct Repeat {
    /// A node of the flow itself: only it and what comes after it; none: everything.
    pub from: Option<NodeId>,
    /// Keep the answers of people that the repeated nodes depend on, instead of asking again.
    pub keep_answers: bool,
}

/// The reason for which a run cannot be repeated from a node on.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NoStart {
    /// The flow has no such node.
    #[error("the flow itself has no node `{0}`")]
    Unknown(NodeId),
    /// The repeated part asks again for every answer that was to be kept.
    #[error(
        "no answer can be kept from `{from}` on, since `{gate}` runs again and asks again; \
         begin at a node behind `{gate}`, or keep no answers and answer it once more"
    )]
    KeepsNothing {
        /// The node to begin at.
        from: NodeId,
        /// A node that asks: this one, or one behind it.
        gate: NodeId,
    },
}

/// The run that a new run repeats.
#[derive(Default)]
pub(super) struct Repeated {
    pub(super) run: Option<RunId>,
    /// The part that is repeated, and the outputs of the other nodes; `None`: everything is repeated.
    pub(super) part: Option<(Again, FixtureOutputs)>,
}

impl FlowRunner {
    /// Prepares a new run that does again what another did: the same flow, as it was pinned, with the same input. The flow
    /// is held to what the tenant may do now. From a node on, if one is named: what neither is that node nor comes after it, and succeeded, is not run again. A gate or
    /// an agent whose answer such a node depends on is run again, too, and so is what comes after it.
    pub fn retry(world: Arc<World>, run: &RunId, repeat: Repeat, options: RunOptions) -> Result<FlowRunner, OpenError> {
        // A called run does what a person may have allowed above it: repeated alone, it would do that without being asked.
        let called = world.journal.find(&world.tenant, run)?.and_then(|record| record.parent);
        if let Some(parent) = called {
            return Err(OpenError::Called { run: run.clone(), parent });
        }
        let before = FlowRunner::resume(world.clone(), run.clone(), RunOptions::default())?;
        let input = before.driver.state.input().cloned().unwrap_or_default();
        let pin = before.pin.clone();
        drop(before);
        let flow = world.flows.repeated(&pin).map_err(OpenError::Pin)?;
        let Repeat { from, keep_answers } = repeat;
        let again = from.map(|from| Again { run: run.clone(), from, asks_again: !keep_answers });
        let given = again.as_ref().map(|again| given(&world, &flow.graph, again)).transpose()?;
        if let Some(again) = again.as_ref().filter(|again| !again.asks_again) {
            require_kept(&world, &flow.graph, again)?;
        }
        let repeated = Repeated { run: Some(run.clone()), part: again.clone().zip(given) };
        let runner = FlowRunner::repeating(repeated, flow, world, RunOptions { input, ..options })?;
        if !runner.is_new() {
            check_repeats(&runner, run, again.as_ref())?;
        }
        Ok(runner)
    }
}

/// Refuses to go on with a run that is there for another reason: its result is none of what is to be repeated.
fn check_repeats(runner: &FlowRunner, run: &RunId, again: Option<&Again>) -> Result<(), OpenError> {
    let id = runner.run_id();
    let record = runner.world.journal.find(&runner.world.tenant, id)?;
    let is_same = |record: Record| record.repeats.as_ref() == Some(run) && record.again.as_ref() == again;
    if record.is_some_and(is_same) { Ok(()) } else { Err(OpenError::OtherRepeat(id.clone())) }
}

/// What a run is given that does again what another did.
pub(super) fn given(world: &World, graph: &Graph, again: &Again) -> Result<FixtureOutputs, OpenError> {
    let of_flow = &graph.body(BodyIx::ROOT).nodes;
    let from = of_flow.iter().copied().find(|node| graph.node(*node).id == again.from);
    let from = from.ok_or_else(|| NoStart::Unknown(again.from.clone()))?;
    let mut anew = behind(graph, from);
    if again.asks_again {
        ask_again(graph, decided(world, graph, &again.run)?, &mut anew);
    }
    let mut given = FixtureOutputs::new();
    each_unit(&*world.journal, &world.tenant, &again.run, |unit| {
        for fact in &unit.facts {
            if let Fact::TaskSucceeded { task, output, .. } = fact
                && task.scope == ScopeId::ROOT
                && !anew.contains(&task.node)
            {
                given.insert(task.node, output.clone());
            }
        }
    })
    .map_err(|StoreError(why)| StoreError(format!("the run `{}` that is done again: {why}", again.run).into()))?;
    Ok(given)
}

/// Refuses to keep answers where each of them is asked for again: at the node to begin at, or behind it.
fn require_kept(world: &World, graph: &Graph, again: &Again) -> Result<(), OpenError> {
    let of_flow = &graph.body(BodyIx::ROOT).nodes;
    let Some(from) = of_flow.iter().find(|node| graph.node(**node).id == again.from) else { return Ok(()) };
    let anew = behind(graph, *from);
    let decided = decided(world, graph, &again.run)?;
    let asked = decided.iter().copied().filter(|node| anew.contains(node));
    let gate = if decided.contains(from) { Some(*from) } else { asked.min() };
    match gate {
        Some(gate) if decided.is_subset(&anew) => {
            Err(NoStart::KeepsNothing { from: again.from.clone(), gate: graph.node(gate).id.clone() }.into())
        }
        _ => Ok(()),
    }
}

/// Adds the nodes at which a person has decided something that others among these depend on, and all that comes after them.
fn ask_again(graph: &Graph, decided: HashSet<NodeIx>, anew: &mut HashSet<NodeIx>) {
    let mut open: Vec<_> = decided.into_iter().map(|node| behind(graph, node)).collect();
    loop {
        let (depended, rest): (Vec<_>, Vec<_>) = open.into_iter().partition(|after| !after.is_disjoint(anew));
        if depended.is_empty() {
            return;
        }
        depended.into_iter().for_each(|after| anew.extend(after));
        open = rest;
    }
}

/// A node, and all that an edge leads to from it.
fn behind(graph: &Graph, from: NodeIx) -> HashSet<NodeIx> {
    let mut found = HashSet::from([from]);
    let mut open = vec![from];
    while let Some(node) = open.pop() {
        let next = graph.node(node).outgoing.iter().map(|edge| graph.edge(*edge).to);
        open.extend(next.filter(|next| found.insert(*next)).collect::<Vec<_>>());
    }
    found
}
