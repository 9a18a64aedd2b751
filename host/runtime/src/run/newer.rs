//! Repeats a run in another version of its flow: the nodes whose outputs the new run keeps, and those that run again.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use flowcell_contract::{Json, NodeId, RunId};
use flowcell_flow::graph::{BodyIx, EdgeIx, Graph, Names, NodeIx};
use serde::{Deserialize, Serialize};

use super::{
    OpenError,
    definition::{Part, Versions},
    past::{Effects, Past, left_early, node_and_followers, undone_nodes},
    renames::{Renamed, Renames, similar},
};
use crate::{
    driver::{KeptOutputs, each_unit},
    fact::{Fact, ScopeId},
    ports::{InVersion, Pin, StoreError},
    world::{Pinned, World},
};

/// Another version of a run's flow, in which a new run repeats it.
#[derive(Clone)]
pub struct OtherVersion {
    /// The flow in this version.
    pub flow: Pinned,
    /// The number of the version in the flow's library. `None`: the flow is in no library.
    pub version: Option<u32>,
}

/// The reason for which a run cannot be repeated from a node on.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NoStart {
    /// The flow has no such node.
    #[error("the flow itself has no node `{0}`")]
    Unknown(NodeId),
    /// The node has another name in the version of the new run.
    #[error("the node `{node}` has the name `{name}` in this version of the flow; begin at `{name}`")]
    OtherName {
        /// The name that the node had before.
        node: NodeId,
        /// Its name in the other version.
        name: NodeId,
    },
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
    /// The run has left a cycle of edges before its last pass, and the repetition would read the outputs of the last one.
    #[error(
        "the run left the cycle of edges that begins at `{entry}` before its last pass, and has kept the outputs of the last \
         pass only; begin at `{entry}`"
    )]
    LeftEarly {
        /// The node at which each pass of the cycle begins.
        entry: NodeId,
    },
    /// The run to repeat has not ended, and may undo a node that the new run would keep.
    #[error(
        "the run `{run}` has not ended, and may undo `{node}`, which this run would keep; end it, or begin at `{node}`"
    )]
    NotEnded {
        /// The run to repeat.
        run: RunId,
        /// The node that would be kept.
        node: NodeId,
    },
    /// Another run that repeats a part of the same run keeps a node that can be undone.
    #[error(
        "the run `{by}`, which repeats a part of `{run}`, has taken over `{node}` and undoes it if it fails; \
         repeat `{by}`, or begin at `{node}`"
    )]
    TakenOver {
        /// The run to repeat.
        run: RunId,
        /// The node that both would keep.
        node: NodeId,
        /// The run that has taken it over.
        by: RunId,
    },
}

/// What a repetition of a run in another version of its flow keeps, and what it runs again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RetryPlan {
    /// The number of the version in the flow's library.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// The nodes whose outputs the new run keeps, in the order of the file.
    pub kept: Vec<NodeId>,
    /// The nodes that run, in the order of the file.
    pub runs: Vec<PlannedNode>,
    /// The nodes that were skipped and are unchanged. Their conditions are evaluated again.
    pub skipped: Vec<NodeId>,
    /// The nodes of the earlier version that the flow no longer has.
    pub gone: Vec<NodeId>,
    /// The nodes that have another name in the flow than in the earlier version. The other lists have the new names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub renamed: Vec<Renamed>,
    /// Nodes that may have another name in the flow, with the names in both versions: only one is gone and only one is
    /// new of their type in their body.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub similar: Vec<Renamed>,
}

/// A node that runs in the new run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedNode {
    /// The node.
    pub node: NodeId,
    /// The reason.
    #[serde(flatten)]
    pub reason: Reason,
    /// The calls of the node in the earlier runs that may have changed something outside the host, as `http.send`, with
    /// their numbers. The node may make them again, with other idempotency keys.
    #[serde(default, skip_serializing_if = "Effects::is_empty")]
    pub made_calls: Effects,
}

/// The reason for which a node runs in a new run that keeps the outputs of other nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Reason {
    /// The caller named it.
    Requested,
    /// The earlier version has no such node.
    New,
    /// A part of it is different in the new version.
    Changed {
        /// The part.
        part: Part,
    },
    /// It failed, was cancelled or had not ended.
    NotSucceeded,
    /// It had not begun.
    NotBegun,
    /// A person decided something at the node, and a node that depends on the decision runs again. So the node asks
    /// again.
    AsksAgain,
    /// It comes after another node that runs.
    After {
        /// The other node.
        after: NodeId,
    },
}

impl Reason {
    /// Returns the reason as a text for people.
    pub fn text(&self) -> String {
        match self {
            Reason::Requested => "it was requested".into(),
            Reason::New => "it is new".into(),
            Reason::Changed { part } => format!("{} changed", part.name()),
            Reason::NotSucceeded => "it did not succeed".into(),
            Reason::NotBegun => "it had not begun".into(),
            Reason::AsksAgain => "it asks again, since a node that depends on its answer runs again".into(),
            Reason::After { after } => format!("it comes after `{after}`"),
        }
    }
}

/// The end of a node of the flow itself in the earlier run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Succeeded,
    Skipped,
    Other,
}

/// The earlier run.
pub(super) struct Earlier<'a> {
    pub(super) run: &'a RunId,
    /// The version of the flow that the run uses. The ids of its nodes are their names in the other version.
    pub(super) graph: &'a Graph,
    pub(super) input: &'a Json,
    /// The nodes that have another name in the other version.
    pub(super) renames: &'a Renames,
}

/// Plans the repetition of a run in another version of its flow. `input` is the whole input of the new run. Fails if
/// the caller wants to keep answers of people and none can be kept.
pub(super) fn plan(
    world: &World,
    earlier: &Earlier<'_>,
    other: &OtherVersion,
    input: &Json,
    (from, keeps_answers): (Option<&NodeId>, bool),
) -> Result<RetryPlan, OpenError> {
    let graph = &*other.flow.graph;
    let of_flow = &graph.body(BodyIx::ROOT).nodes;
    let first = from.map(|from| {
        let node = of_flow.iter().copied().find(|node| graph.node(*node).id == *from);
        node.ok_or_else(|| match earlier.renames.get(from) {
            Some(name) => NoStart::OtherName { node: from.clone(), name: name.clone() },
            None => NoStart::Unknown(from.clone()),
        })
    });
    let first = first.transpose()?;
    let past = Past::read_by_name(world, earlier.run, earlier.renames)?;
    let ends = ends(world, earlier.run)?;
    let versions = Versions { old: (earlier.graph, earlier.input), new: (graph, input) };
    let old_nodes = &earlier.graph.body(BodyIx::ROOT).nodes;
    let old_ids: HashMap<&NodeId, NodeIx> =
        old_nodes.iter().map(|node| (&earlier.graph.node(*node).id, *node)).collect();
    let mut runs = Runs { graph, reasons: HashMap::new() };
    let (mut skipped, mut not_begun) = (HashSet::new(), Vec::new());
    for &node in of_flow {
        let id = &graph.node(node).id;
        let old = old_ids.get(id).copied();
        let reason = match old {
            _ if first == Some(node) => Some(Reason::Requested),
            None => Some(Reason::New),
            Some(old) => match versions.difference(old, node) {
                Some(part) => Some(Reason::Changed { part }),
                None => match ends.get(&old) {
                    Some(End::Succeeded) => {
                        match past.knows_calls_of(id) && same_calls(world, past.called_by(id), &other.flow.pin)? {
                            true => None,
                            false => Some(Reason::Changed { part: Part::Called }),
                        }
                    }
                    Some(End::Skipped) => {
                        skipped.insert(node);
                        None
                    }
                    Some(End::Other) => Some(Reason::NotSucceeded),
                    None => {
                        not_begun.push(node);
                        None
                    }
                },
            },
        };
        runs.reasons.extend(reason.map(|reason| (node, reason)));
    }
    runs.add_followers();
    not_begun.into_iter().for_each(|node| _ = runs.reasons.entry(node).or_insert(Reason::NotBegun));
    runs.add_followers();
    let decided = past.decided_in(graph);
    if keeps_answers {
        let asked = decided.iter().filter(|node| runs.reasons.contains_key(node)).min();
        if let (Some(from), Some(gate)) = (from, asked)
            && decided.iter().all(|node| runs.reasons.contains_key(node))
        {
            let gate = graph.node(*gate).id.clone();
            return Err(NoStart::KeepsNothing { from: from.clone(), gate }.into());
        }
    } else {
        runs.ask_again(decided);
    }
    let new_nodes: HashMap<_, _> = of_flow.iter().map(|node| (&graph.node(*node).id, *node)).collect();
    check_left_early(&left_early(world, earlier.run, earlier.graph)?, earlier.graph, |old| {
        let new = new_nodes.get(&earlier.graph.node(old).id);
        new.is_none_or(|node| runs.reasons.contains_key(node))
    })?;
    let kept = |node: &&NodeIx| !runs.reasons.contains_key(node);
    let id = |node: &NodeIx| graph.node(*node).id.clone();
    let new_ids: HashSet<_> = of_flow.iter().map(|node| &graph.node(*node).id).collect();
    let gone = old_nodes.iter().map(|node| &earlier.graph.node(*node).id).filter(|id| !new_ids.contains(id));
    let planned = |node: &NodeIx| {
        let reason = runs.reasons.get(node)?.clone();
        Some(PlannedNode { node: id(node), reason, made_calls: past.effects_of(&graph.node(*node).id) })
    };
    Ok(RetryPlan {
        version: other.version,
        kept: of_flow.iter().filter(kept).filter(|node| !skipped.contains(*node)).map(id).collect(),
        runs: of_flow.iter().filter_map(planned).collect(),
        skipped: of_flow.iter().filter(kept).filter(|node| skipped.contains(*node)).map(id).collect(),
        gone: gone.cloned().collect(),
        renamed: earlier
            .renames
            .iter()
            .map(|(node, name)| Renamed { node: node.clone(), name: name.clone() })
            .collect(),
        similar: similar(earlier.graph, graph),
    })
}

/// The nodes that run, with the reasons.
pub(super) struct Runs<'a> {
    pub(super) graph: &'a Graph,
    pub(super) reasons: HashMap<NodeIx, Reason>,
}

impl Runs<'_> {
    /// Adds all nodes after those that run.
    pub(super) fn add_followers(&mut self) {
        let mut open: VecDeque<_> = self.reasons.keys().copied().collect();
        // The order decides only which node a reason names.
        open.make_contiguous().sort_unstable();
        while let Some(node) = open.pop_front() {
            let from = self.graph.node(node);
            for edge in &from.outgoing {
                let next = self.graph.edge(*edge).to;
                self.reasons.entry(next).or_insert_with(|| {
                    open.push_back(next);
                    Reason::After { after: from.id.clone() }
                });
            }
        }
    }

    /// Adds the nodes at which a person has decided something, if a node after them runs again, and all nodes after
    /// them.
    fn ask_again(&mut self, decided: HashSet<NodeIx>) {
        let mut left: Vec<_> = decided.into_iter().map(|node| (node, node_and_followers(self.graph, node))).collect();
        left.sort_unstable_by_key(|(node, _)| *node);
        loop {
            let runs = |after: &HashSet<NodeIx>| after.iter().any(|node| self.reasons.contains_key(node));
            let (asking, rest): (Vec<_>, Vec<_>) = left.into_iter().partition(|(_, after)| runs(after));
            if asking.is_empty() {
                return;
            }
            for (node, _) in asking {
                self.reasons.entry(node).or_insert(Reason::AsksAgain);
            }
            self.add_followers();
            left = rest;
        }
    }
}

/// Returns the ends of the nodes of the flow itself that have begun or were skipped.
fn ends(world: &World, run: &RunId) -> Result<HashMap<NodeIx, End>, StoreError> {
    let mut ends = HashMap::new();
    each_unit(&*world.journal, &world.tenant, run, |unit| {
        for fact in &unit.facts {
            let (task, end) = match fact {
                Fact::TaskSucceeded { task, .. } => (task, End::Succeeded),
                Fact::TaskSkipped { task, .. } => (task, End::Skipped),
                // A task that is cancelled before it was ready has not begun.
                Fact::TaskReady { task, .. } | Fact::TaskFailed { task, .. } => (task, End::Other),
                _ => continue,
            };
            if task.scope == ScopeId::ROOT {
                ends.insert(task.node, end);
            }
        }
    })?;
    // What was undone is done anew.
    ends.extend(undone_nodes(world, run)?.into_iter().map(|node| (node, End::Other)));
    Ok(ends)
}

/// Compares the flows that the runs in `children` called with those that a flow with the pin `caller` would call now.
/// Returns true if they are the same flows, and if these call the same flows in turn.
pub(super) fn same_calls(world: &World, children: &[RunId], caller: &Pin) -> Result<bool, StoreError> {
    let mut open: Vec<(RunId, Pin)> = children.iter().map(|child| (child.clone(), caller.clone())).collect();
    // Many children may be runs of one flow.
    let mut compared: HashSet<(Pin, Pin)> = HashSet::new();
    while let Some((child, caller)) = open.pop() {
        let Some(record) = world.journal.find(&world.tenant, &child)? else { return Ok(false) };
        let name = record.called.as_ref().unwrap_or(&record.flow);
        let Ok(present) = world.flows.resolve(name, &caller) else { return Ok(false) };
        let pins = (record.pin.clone(), present.pin.clone());
        if !compared.contains(&pins) && !world.flows.is_same(&pins.0, &pins.1) {
            return Ok(false);
        }
        compared.insert(pins);
        let below = world.journal.children_of(&world.tenant, &child)?;
        open.extend(below.into_iter().map(|child| (child, present.pin.clone())));
    }
    Ok(true)
}

/// Returns the nodes of the flow itself that the graph `old` of a run and a version `new` have by the same names, by
/// their indices in `old`. `names` has the names in `new` of nodes with another name.
pub(super) fn matching_nodes(old: &Graph, new: &Graph, names: &Names) -> HashMap<NodeIx, NodeIx> {
    let of_flow = |graph| Graph::body(graph, BodyIx::ROOT).nodes.iter().copied();
    let ids: HashMap<&NodeId, NodeIx> = of_flow(new).map(|node| (&new.node(node).id, node)).collect();
    of_flow(old).filter_map(|node| Some((node, *ids.get(names.name(old.name_of(node)))?))).collect()
}

/// Refuses to keep the nodes of a cycle if nodes that run read them as an edge left the cycle before its last pass. The
/// outputs of the last pass are the ones that are kept.
pub(super) fn check_left_early(
    early: &BTreeMap<EdgeIx, NodeIx>,
    graph: &Graph,
    runs: impl Fn(NodeIx) -> bool,
) -> Result<(), NoStart> {
    let is_read = |edge: &EdgeIx| {
        let edge = graph.edge(*edge);
        !runs(edge.from) && node_and_followers(graph, edge.to).into_iter().any(&runs)
    };
    match early.iter().find(|(edge, _)| is_read(edge)) {
        Some((_, entry)) => Err(NoStart::LeftEarly { entry: graph.node(*entry).id.clone() }),
        None => Ok(()),
    }
}

/// Returns the outputs that a new run keeps from an earlier run of another version, by node of the new version.
pub(super) fn outputs_of(
    world: &World,
    graph: &Graph,
    run: &RunId,
    part: &InVersion,
) -> Result<KeptOutputs, OpenError> {
    let record = world.journal.find(&world.tenant, run)?.ok_or_else(|| OpenError::Unknown(run.clone()))?;
    let graphs = world.graphs_of(&record).map_err(OpenError::Pin)?;
    let kept: HashSet<&NodeId> = part.kept.iter().collect();
    let nodes = matching_nodes(graphs.last(), graph, &Names::new(part.names.clone()));
    let mut outputs = KeptOutputs::new();
    each_unit(&*world.journal, &world.tenant, run, |unit| {
        for fact in &unit.facts {
            if let Fact::TaskSucceeded { task, output, .. } = fact
                && task.scope == ScopeId::ROOT
                && let Some(node) = nodes.get(&task.node)
                && kept.contains(&graph.node(*node).id)
            {
                outputs.insert(*node, output.clone());
            }
        }
    })
    .map_err(|error| {
        let message = format!("the run `{run}` that is done again: {error}");
        error.with_message(message)
    })?;
    Ok(outputs)
}
