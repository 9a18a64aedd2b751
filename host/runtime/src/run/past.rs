//! The nodes of a run at which a person has decided something: an answer to a gate, or to an agent's question about a
//! call. The decision may be in the run itself or in a child run.

use std::collections::{HashMap, HashSet};

use flowcell_contract::RunId;
use flowcell_flow::graph::{BodyIx, Graph, NodeIx};

use crate::{
    driver::each_unit,
    fact::{Fact, ScopeId, TaskKey},
    limits::{MAX_DEPTH, MAX_REPEATS},
    ports::StoreError,
    world::World,
};

/// The last part of a tool run's id is this prefix, followed by the key of the call that started the run.
const TOOL_RUN_PREFIX: &str = "tool-";

/// Returns the nodes of the flow itself at which a person has decided something, in the run or in the runs that it
/// partly repeats. If the store no longer has one of these runs, its decisions are unknown. The result is then all
/// nodes.
pub(super) fn nodes_with_decisions(world: &World, graph: &Graph, run: &RunId) -> Result<HashSet<NodeIx>, StoreError> {
    let mut found = HashSet::new();
    let (mut next, mut left) = (Some(run.clone()), MAX_REPEATS);
    while let Some(run) = next.take() {
        let record = world.journal.find(&world.tenant, &run)?;
        let Some(record) = record.filter(|_| left > 0) else { return Ok(of_flow(graph).collect()) };
        left -= 1;
        let trace = Trace::read(world, &run)?;
        for child in world.journal.children_of(&world.tenant, &run)? {
            let is_below = |node: &NodeIx| found.contains(node) || trace.decided.contains(node);
            let node = trace.starter_of(graph, &run, &child);
            if node.is_some_and(|node| is_below(&node)) || !has_decisions(world, &child, MAX_DEPTH)? {
                continue;
            }
            match node {
                Some(node) => _ = found.insert(node),
                None => found.extend(of_flow(graph)),
            }
        }
        found.extend(trace.decided);
        next = record.again.map(|again| again.run);
    }
    Ok(found)
}

fn of_flow(graph: &Graph) -> impl Iterator<Item = NodeIx> + '_ {
    graph.body(BodyIx::ROOT).nodes.iter().copied()
}

/// Returns true if a person has decided something in a run, or in a run at most `depth` levels below it.
fn has_decisions(world: &World, run: &RunId, depth: u32) -> Result<bool, StoreError> {
    if !Trace::read(world, run)?.decided.is_empty() {
        return Ok(true);
    }
    if depth == 0 {
        return Ok(false);
    }
    for child in world.journal.children_of(&world.tenant, run)? {
        if has_decisions(world, &child, depth - 1)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The decisions in a journal, by the nodes of the flow itself.
#[derive(Default)]
struct Trace {
    decided: HashSet<NodeIx>,
    /// The nodes that have made calls, by the keys of the calls.
    calls: HashMap<String, NodeIx>,
    /// The nodes that own passes.
    owners: HashMap<ScopeId, NodeIx>,
}

impl Trace {
    fn read(world: &World, run: &RunId) -> Result<Trace, StoreError> {
        let mut trace = Trace::default();
        each_unit(&*world.journal, &world.tenant, run, |unit| unit.facts.iter().for_each(|fact| trace.follow(fact)))?;
        Ok(trace)
    }

    fn follow(&mut self, fact: &Fact) {
        match fact {
            Fact::PassStarted { scope, owner, .. } => {
                let node = self.node(*owner);
                self.owners.insert(*scope, node);
            }
            Fact::CallStarted { task, call } => {
                let node = self.node(*task);
                self.calls.insert(call.key.to_string(), node);
            }
            Fact::Replied { task, .. } | Fact::CallDecided { task, answer: Some(_), .. } => {
                let node = self.node(*task);
                self.decided.insert(node);
            }
            _ => {}
        }
    }

    /// Returns the node of the flow itself that contains a task.
    fn node(&self, task: TaskKey) -> NodeIx {
        self.owners.get(&task.scope).copied().unwrap_or(task.node)
    }

    /// Returns the node of the flow itself that has started a child.
    fn starter_of(&self, graph: &Graph, run: &RunId, child: &RunId) -> Option<NodeIx> {
        let rest = child.as_str().strip_prefix(run.as_str())?.strip_prefix('.')?;
        if let Some(key) = rest.strip_prefix(TOOL_RUN_PREFIX) {
            return self.calls.get(key).copied();
        }
        let id = rest.split(['.', '[']).next()?;
        of_flow(graph).find(|node| graph.node(*node).id.as_str() == id)
    }
}
