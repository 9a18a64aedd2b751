//! Repeats a run: all of it, or from a node on.

use std::{collections::HashSet, sync::Arc};

use flowcell_contract::{NodeId, RunId};
use flowcell_flow::graph::{BodyIx, Graph, NodeIx};

use super::{FlowRunner, OpenError, RunOptions, decided::nodes_with_decisions};
use crate::{
    driver::{KeptOutputs, each_unit},
    fact::{Fact, ScopeId},
    ports::{Again, Record, StoreError},
    world::World,
};

/// The part of a run that a new run repeats.
#[derive(Clone, Debug, Default)]
pub struct Repeat {
    /// A node of the flow itself: the run repeats this node and everything after it. `None`: everything.
    pub from: Option<NodeId>,
    /// True if the run keeps the answers of people that the repeated nodes depend on. Otherwise the nodes ask again.
    pub keep_answers: bool,
}

/// The reason for which a run cannot be repeated from a node on.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NoStart {
    /// The flow has no such node.
    #[error("the flow itself has no node `{0}`")]
    Unknown(NodeId),
    /// The repeated part asks again for every answer that the caller wanted to keep.
    #[error(
        "no answer can be kept from `{from}` on, since `{gate}` runs again and asks again; \
         begin at a node behind `{gate}`, or keep no answers and answer it once more"
    )]
    KeepsNothing {
        /// The node at which the repetition begins.
        from: NodeId,
        /// A node that asks: the first node itself, or one after it.
        gate: NodeId,
    },
}

/// The run that a new run repeats.
#[derive(Default)]
pub(super) struct Repeated {
    pub(super) run: Option<RunId>,
    /// The repeated part, and the outputs of the other nodes. `None`: everything is repeated.
    pub(super) part: Option<(Again, KeptOutputs)>,
}

impl FlowRunner {
    /// Prepares a new run that repeats another one: the same flow, as it was pinned, with the same input. The present
    /// limits of the tenant apply to the flow.
    ///
    /// If `repeat` names a node, this node and all nodes after it run again, and so do all nodes that did not succeed.
    /// The other nodes keep their outputs. The named node, or a node after it, may depend on a decision of a person at
    /// another node: an answer at a gate, or about a call of an agent. That other node then runs again, too, with
    /// everything after it, unless `keep_answers` is true.
    pub fn retry(world: Arc<World>, run: &RunId, repeat: Repeat, options: RunOptions) -> Result<FlowRunner, OpenError> {
        // A person above a called run may have allowed its actions. Repeated alone, the run would act without
        // permission.
        let record = world.journal.find(&world.tenant, run)?;
        let (version, mut labels) =
            record.as_ref().map_or_else(Default::default, |record| (record.version, record.labels.clone()));
        if let Some(parent) = record.and_then(|record| record.parent) {
            return Err(OpenError::Called { run: run.clone(), parent });
        }
        let before = FlowRunner::resume(world.clone(), run.clone(), RunOptions::default())?;
        let input = before.driver.state.input().cloned().unwrap_or_default();
        let pin = before.pin.clone();
        drop(before);
        let flow = world.flows.repeated(&pin).map_err(OpenError::Pin)?;
        let Repeat { from, keep_answers } = repeat;
        let again = from.map(|from| Again { run: run.clone(), from, asks_again: !keep_answers });
        let kept = again.as_ref().map(|again| kept_outputs(&world, &flow.graph, again)).transpose()?;
        if let Some(again) = again.as_ref().filter(|again| !again.asks_again) {
            check_answers_kept(&world, &flow.graph, again)?;
        }
        labels.extend(options.labels);
        let repeated = Repeated { run: Some(run.clone()), part: again.clone().zip(kept) };
        let runner = FlowRunner::repeating(repeated, flow, world, RunOptions { input, labels, version, ..options })?;
        if !runner.is_new() {
            check_repeats(&runner, run, again.as_ref())?;
        }
        Ok(runner)
    }
}

/// If the new run's id belongs to an existing run, checks that the existing run repeats the same part of the same run.
/// Otherwise the result would not be the requested one.
fn check_repeats(runner: &FlowRunner, run: &RunId, again: Option<&Again>) -> Result<(), OpenError> {
    let id = runner.run_id();
    let record = runner.world.journal.find(&runner.world.tenant, id)?;
    let is_same = |record: Record| record.repeats.as_ref() == Some(run) && record.again.as_ref() == again;
    if record.is_some_and(is_same) { Ok(()) } else { Err(OpenError::OtherRepeat(id.clone())) }
}

/// Returns the outputs of the earlier run that the new run keeps, by node.
pub(super) fn kept_outputs(world: &World, graph: &Graph, again: &Again) -> Result<KeptOutputs, OpenError> {
    let of_flow = &graph.body(BodyIx::ROOT).nodes;
    let from = of_flow.iter().copied().find(|node| graph.node(*node).id == again.from);
    let from = from.ok_or_else(|| NoStart::Unknown(again.from.clone()))?;
    let mut anew = node_and_followers(graph, from);
    if again.asks_again {
        ask_again(graph, nodes_with_decisions(world, graph, &again.run)?, &mut anew);
    }
    let mut kept = KeptOutputs::new();
    each_unit(&*world.journal, &world.tenant, &again.run, |unit| {
        for fact in &unit.facts {
            if let Fact::TaskSucceeded { task, output, .. } = fact
                && task.scope == ScopeId::ROOT
                && !anew.contains(&task.node)
            {
                kept.insert(task.node, output.clone());
            }
        }
    })
    .map_err(|StoreError(why)| StoreError(format!("the run `{}` that is done again: {why}", again.run).into()))?;
    Ok(kept)
}

/// Refuses to keep answers if the repeated part asks for each of them again: at its first node, or after it.
fn check_answers_kept(world: &World, graph: &Graph, again: &Again) -> Result<(), OpenError> {
    let of_flow = &graph.body(BodyIx::ROOT).nodes;
    let Some(from) = of_flow.iter().find(|node| graph.node(**node).id == again.from) else { return Ok(()) };
    let anew = node_and_followers(graph, *from);
    let decided = nodes_with_decisions(world, graph, &again.run)?;
    let asked = decided.iter().copied().filter(|node| anew.contains(node));
    let gate = if decided.contains(from) { Some(*from) } else { asked.min() };
    match gate {
        Some(gate) if decided.is_subset(&anew) => {
            Err(NoStart::KeepsNothing { from: again.from.clone(), gate: graph.node(gate).id.clone() }.into())
        }
        _ => Ok(()),
    }
}

/// Adds nodes to `anew`, the nodes that run again: each node at which a person has decided something that a node in
/// `anew` depends on, and everything after it.
fn ask_again(graph: &Graph, decided: HashSet<NodeIx>, anew: &mut HashSet<NodeIx>) {
    let mut open: Vec<_> = decided.into_iter().map(|node| node_and_followers(graph, node)).collect();
    loop {
        let (depended, rest): (Vec<_>, Vec<_>) = open.into_iter().partition(|after| !after.is_disjoint(anew));
        if depended.is_empty() {
            return;
        }
        depended.into_iter().for_each(|after| anew.extend(after));
        open = rest;
    }
}

/// Returns a node and all nodes that its edges lead to.
fn node_and_followers(graph: &Graph, from: NodeIx) -> HashSet<NodeIx> {
    let mut found = HashSet::from([from]);
    let mut open = vec![from];
    while let Some(node) = open.pop() {
        let next = graph.node(node).outgoing.iter().map(|edge| graph.edge(*edge).to);
        open.extend(next.filter(|next| found.insert(*next)).collect::<Vec<_>>());
    }
    found
}
