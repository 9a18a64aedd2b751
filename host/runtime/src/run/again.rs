//! Doing again what a run did: all of it, or from a node on.

use std::{collections::HashSet, sync::Arc};

use flowcell_contract::{NodeId, RunId};
use flowcell_flow::graph::{BodyIx, Graph, NodeIx};

use super::{FlowRunner, OpenError, RunOptions};
use crate::{
    driver::{Given, each_unit},
    fact::{Fact, ScopeId},
    ports::{Again, StoreError},
    world::{Pinned, World},
};

impl FlowRunner {
    /// Prepares a new run that does again what another did: the same flow, as it was pinned, with the same input. From a
    /// node on, if one is named: what neither is that node nor comes after it, and succeeded, is not run again.
    pub fn again(
        world: Arc<World>,
        run: &RunId,
        from: Option<NodeId>,
        options: RunOptions,
    ) -> Result<FlowRunner, OpenError> {
        let before = FlowRunner::resume(world.clone(), run.clone(), RunOptions::default())?;
        let input = before.driver.state.input().cloned().unwrap_or_default();
        let flow = Pinned { graph: before.driver.state.graph.clone(), pin: before.pin.clone() };
        drop(before);
        let again = from.map(|from| Again { run: run.clone(), from });
        let given = again.as_ref().map(|again| given(&world, &flow.graph, again)).transpose()?;
        let mut runner = FlowRunner::new(flow, world, RunOptions { input, ..options })?;
        if let (Some(again), Some(given)) = (again, given) {
            runner.driver.do_again(again, given);
        }
        Ok(runner)
    }
}

/// What a run is given that does again what another did.
pub(super) fn given(world: &World, graph: &Graph, again: &Again) -> Result<Given, OpenError> {
    let of_flow = &graph.body(BodyIx::ROOT).nodes;
    let from = of_flow.iter().copied().find(|node| graph.node(*node).id == again.from);
    let from = from.ok_or_else(|| OpenError::NoNode(again.from.clone()))?;
    let anew = behind(graph, from);
    let mut given = Given::new();
    each_unit(&*world.journal, &world.tenant, &again.run, |unit| {
        for fact in &unit.facts {
            if let Fact::TaskSucceeded { task, output } = fact
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
