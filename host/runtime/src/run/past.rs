//! The past of a run that is repeated: the decisions of people, the calls that left the host and the flows that were
//! called, by the nodes of the flow itself. The run itself, its child runs and the runs that it partly repeats count.

use std::collections::{BTreeMap, HashMap, HashSet};

use flowcell_contract::{Effect, NodeId, RunId};
use flowcell_flow::graph::{BodyIx, EdgeIx, Graph, Names, NodeIx};

use super::renames::Renames;
use crate::{
    driver::each_unit,
    fact::{Fact, Migrated, Received, ScopeId, TaskKey},
    limits::{MAX_DEPTH, MAX_REPEATS},
    ports::StoreError,
    versions::SCOPE_MARK,
    world::World,
};

/// The last part of a tool run's id is this prefix, followed by the key of the call that started the run.
const TOOL_RUN_PREFIX: &str = "tool-";

/// The numbers of calls that may have changed something outside the host, by capability and function.
pub(super) type Effects = BTreeMap<String, u32>;

/// The past of a run.
#[derive(Default)]
pub(super) struct Past {
    /// The nodes at which a person has decided something: an answer to a gate, or to an agent's question about a call.
    decided: HashSet<NodeId>,
    /// The calls that may have changed something outside the host, by node.
    effects: HashMap<NodeId, Effects>,
    /// The child runs of each node, in the latest run of the chain in which the node ran.
    called: HashMap<NodeId, Vec<RunId>>,
    /// True if the store no longer has one of the runs. Then anything may have happened at any node.
    is_cut: bool,
    /// The nodes that ran in a run that the store still has.
    seen: HashSet<NodeId>,
}

impl Past {
    /// Reads the past of a run, by the ids that its nodes have in it.
    pub(super) fn read(world: &World, run: &RunId) -> Result<Past, StoreError> {
        Past::read_by(world, run, Vec::new(), Some(Names::default()))
    }

    /// Reads the past of a run, by the names of its nodes in the version of the flow that it uses, or by those in
    /// `renames`.
    pub(super) fn read_by_name(world: &World, run: &RunId, renames: &Renames) -> Result<Past, StoreError> {
        Past::read_by(world, run, vec![Names::new(renames.clone())], None)
    }

    /// Reads the past of a run. The steps in `names` lead from the names of its nodes to the wanted ones, the last step
    /// first. `of_run` has the names of the nodes by their ids in the run. `None`: those that they have in its version.
    fn read_by(
        world: &World,
        run: &RunId,
        mut names: Vec<Names>,
        mut of_run: Option<Names>,
    ) -> Result<Past, StoreError> {
        let mut past = Past::default();
        let (mut next, mut left) = (Some(run.clone()), MAX_REPEATS);
        while let Some(run) = next.take() {
            // The record is read last: the run may move meanwhile, and a later graph has the nodes of the earlier ones.
            let trace = Trace::read(world, &run);
            let record = world.journal.find(&world.tenant, &run)?.filter(|_| left > 0);
            let graphs = record.as_ref().and_then(|record| world.graphs_of(record).ok());
            let (Some(record), Some(graphs)) = (record, graphs) else {
                past.is_cut = true;
                break;
            };
            let graph = graphs.last();
            left -= 1;
            names.push(of_run.take().unwrap_or_else(|| graph.names.clone()));
            let id = |node: NodeIx| {
                names.iter().rev().fold(graph.node(node).id.clone(), |id, names| names.name(&id).clone())
            };
            let trace = trace?;
            for child in world.journal.children_of(&world.tenant, &run)? {
                let below = Below::read(world, &child, MAX_DEPTH)?;
                let Some(node) = trace.starter_of(graph, &run, &child) else {
                    past.is_cut |= below.has_decisions;
                    continue;
                };
                let id = &id(node);
                if below.has_decisions {
                    past.decided.insert(id.clone());
                }
                add(past.effects.entry(id.clone()).or_default(), &below.effects);
                // Otherwise the node ran in a later run of the chain, or started anew in another version of the flow.
                if !past.seen.contains(id) && !trace.is_replaced(&run, &child, node) {
                    past.called.entry(id.clone()).or_default().push(child);
                }
            }
            past.decided.extend(trace.decided.iter().map(|node| id(*node)));
            for (node, effects) in &trace.effects {
                add(past.effects.entry(id(*node)).or_default(), effects);
            }
            past.seen.extend(trace.ran.iter().map(|node| id(*node)));
            // A run began with the names of the nodes of the run that it repeats, or with new ones, as its ids.
            next = record.again.map(|again| {
                names.extend(again.in_version.map(|other| Names::new(other.names)));
                again.run
            });
        }
        past.effects.retain(|_, effects| !effects.is_empty());
        Ok(past)
    }

    /// Returns the nodes of a flow at which a person has decided something. If the decisions are unknown, returns all
    /// nodes of the flow itself.
    pub(super) fn decided_in(&self, graph: &Graph) -> HashSet<NodeIx> {
        let decided = |node: &NodeIx| self.is_cut || self.decided.contains(&graph.node(*node).id);
        of_flow(graph).filter(decided).collect()
    }

    /// Returns the calls of a node that may have changed something outside the host.
    pub(super) fn effects_of(&self, node: &NodeId) -> Effects {
        self.effects.get(node).cloned().unwrap_or_default()
    }

    /// Returns true if the store still has the run in which a node ran last.
    pub(super) fn knows_calls_of(&self, node: &NodeId) -> bool {
        !self.is_cut || self.seen.contains(node)
    }

    /// Returns the child runs of a node.
    pub(super) fn called_by(&self, node: &NodeId) -> &[RunId] {
        self.called.get(node).map(Vec::as_slice).unwrap_or_default()
    }
}

/// Returns a node and all nodes that its edges lead to.
pub(super) fn node_and_followers(graph: &Graph, from: NodeIx) -> HashSet<NodeIx> {
    let mut found = HashSet::from([from]);
    let mut open = vec![from];
    while let Some(node) = open.pop() {
        let next = graph.node(node).outgoing.iter().map(|edge| graph.edge(*edge).to);
        open.extend(next.filter(|next| found.insert(*next)).collect::<Vec<_>>());
    }
    found
}

/// Returns the nodes of the flow itself of which a run has undone a task.
pub(super) fn undone_nodes(world: &World, run: &RunId) -> Result<HashSet<NodeIx>, StoreError> {
    Ok(Trace::read(world, run)?.undone)
}

/// Returns the edges of the flow itself that left a cycle of edges before its last pass, with the entry of the cycle.
pub(super) fn left_early(world: &World, run: &RunId, graph: &Graph) -> Result<BTreeMap<EdgeIx, NodeIx>, StoreError> {
    let (mut fired, mut early) = (HashSet::new(), BTreeMap::new());
    if graph.cycles.is_empty() {
        return Ok(early);
    }
    each_unit(&*world.journal, &world.tenant, run, |unit| {
        for fact in &unit.facts {
            match fact {
                Fact::EdgeSettled { scope: ScopeId::ROOT, edge, fired: true } => _ = fired.insert(*edge),
                Fact::CyclePassStarted { scope: ScopeId::ROOT, entry, .. } => {
                    let Some(cycle) = graph.cycles.iter().find(|cycle| cycle.entry == *entry) else { continue };
                    early.extend(cycle.leaving.iter().filter(|edge| fired.contains(*edge)).map(|edge| (*edge, *entry)));
                    for edge in &cycle.inner {
                        fired.remove(edge);
                        early.remove(edge);
                    }
                }
                _ => {}
            }
        }
    })?;
    Ok(early)
}

fn of_flow(graph: &Graph) -> impl Iterator<Item = NodeIx> + '_ {
    graph.body(BodyIx::ROOT).nodes.iter().copied()
}

fn add(effects: &mut Effects, more: &Effects) {
    more.iter().for_each(|(name, times)| *effects.entry(name.clone()).or_default() += times);
}

/// The past of a child run with the runs below it.
#[derive(Default)]
struct Below {
    has_decisions: bool,
    effects: Effects,
}

impl Below {
    /// Reads a run and the runs at most `depth` levels below it.
    fn read(world: &World, run: &RunId, depth: u32) -> Result<Below, StoreError> {
        let trace = Trace::read(world, run)?;
        let mut below = Below { has_decisions: !trace.decided.is_empty(), effects: Effects::new() };
        trace.effects.values().for_each(|effects| add(&mut below.effects, effects));
        if depth == 0 {
            return Ok(below);
        }
        for child in world.journal.children_of(&world.tenant, run)? {
            let child = Below::read(world, &child, depth - 1)?;
            below.has_decisions |= child.has_decisions;
            add(&mut below.effects, &child.effects);
        }
        Ok(below)
    }
}

/// What a journal says of the nodes of the flow itself.
#[derive(Default)]
struct Trace {
    decided: HashSet<NodeIx>,
    /// The nodes that have begun an attempt.
    ran: HashSet<NodeIx>,
    effects: HashMap<NodeIx, Effects>,
    /// The nodes that have made calls, by the keys of the calls.
    calls: HashMap<String, NodeIx>,
    /// The nodes that own passes.
    owners: HashMap<ScopeId, NodeIx>,
    /// The scopes of undos, and the nodes whose tasks they undo.
    undos: HashMap<ScopeId, NodeIx>,
    /// The nodes of which a task was undone.
    undone: HashSet<NodeIx>,
    /// The scope that begins next.
    next_scope: u32,
    /// The nodes that a move of the run removed or started anew.
    dropped: HashSet<NodeIx>,
    /// The last attempt of each node before it started anew, and the first scope after that.
    anew: HashMap<NodeIx, (u32, u32)>,
}

impl Trace {
    fn read(world: &World, run: &RunId) -> Result<Trace, StoreError> {
        let mut trace = Trace::default();
        each_unit(&*world.journal, &world.tenant, run, |unit| unit.facts.iter().for_each(|fact| trace.follow(fact)))?;
        Ok(trace)
    }

    fn follow(&mut self, fact: &Fact) {
        // What an earlier attempt of the node undid, a later one has done again.
        if let Fact::TaskSucceeded { task, .. } = fact
            && task.scope == ScopeId::ROOT
        {
            let node = self.node(*task);
            self.undone.remove(&node);
        }
        match fact {
            Fact::PassStarted { scope, owner, .. } => {
                let node = self.node(*owner);
                self.owners.insert(*scope, node);
                self.next_scope = scope.0 + 1;
            }
            Fact::UndoStarted { scope, undone, .. } => {
                let node = self.node(*undone);
                self.owners.insert(*scope, node);
                self.undos.insert(*scope, node);
                self.next_scope = scope.0 + 1;
            }
            Fact::Migrated { migration } => self.follow_move(migration),
            Fact::AttemptStarted { task } => {
                let node = self.node(*task);
                self.ran.insert(node);
            }
            Fact::CallStarted { task, call } => {
                let node = self.node(*task);
                self.calls.insert(call.key.to_string(), node);
                if matches!(call.effect, Effect::Idempotent | Effect::AtLeastOnce | Effect::Once) {
                    let name = format!("{}.{}", call.interface, call.function);
                    *self.effects.entry(node).or_default().entry(name).or_default() += 1;
                }
            }
            Fact::TaskSucceeded { task, .. } if self.undos.contains_key(&task.scope) => {
                self.undone.extend(self.undos.get(&task.scope));
            }
            // The node did not run: its output comes from the run that this one repeats.
            Fact::TaskSucceeded { task, received: Some(Received::Nothing), .. } => {
                let node = self.node(*task);
                self.ran.remove(&node);
            }
            Fact::Replied { task, .. } | Fact::CallDecided { task, answer: Some(_), .. } => {
                let node = self.node(*task);
                self.decided.insert(node);
            }
            _ => {}
        }
    }

    fn follow_move(&mut self, migration: &Migrated) {
        self.dropped.extend(&migration.dropped);
        let next_scope = self.next_scope.max(1);
        let anew = migration.restarted.iter().map(|restarted| (restarted.new, (restarted.attempts, next_scope)));
        self.anew.extend(anew);
    }

    /// Returns true if a child belongs to an attempt of its node before the node started anew in another version.
    fn is_replaced(&self, run: &RunId, child: &RunId, node: NodeIx) -> bool {
        if self.dropped.contains(&node) {
            return true;
        }
        let (Some((attempts, next_scope)), Some(rest)) = (self.anew.get(&node), below(run, child)) else {
            return false;
        };
        let Some((address, call)) = rest.rsplit_once('.').filter(|_| !rest.starts_with(TOOL_RUN_PREFIX)) else {
            return false;
        };
        let (call, scope) = call.split_once(SCOPE_MARK).unwrap_or((call, "0"));
        let number = |text: &str| text.parse::<u32>().unwrap_or_default();
        match address.contains('[') {
            true => number(scope) < *next_scope,
            false => number(call.split('-').next().unwrap_or(call)) <= *attempts,
        }
    }

    /// Returns the node of the flow itself that contains a task.
    fn node(&self, task: TaskKey) -> NodeIx {
        self.owners.get(&task.scope).copied().unwrap_or(task.node)
    }

    /// Returns the node of the flow itself that has started a child.
    fn starter_of(&self, graph: &Graph, run: &RunId, child: &RunId) -> Option<NodeIx> {
        let rest = below(run, child)?;
        if let Some(key) = rest.strip_prefix(TOOL_RUN_PREFIX) {
            return self.calls.get(key).copied();
        }
        let id = rest.split(['.', '[']).next()?;
        let has_id = |node: &NodeIx| graph.node(*node).id.as_str() == id;
        // The graph of a run that has moved also has the nodes that are gone.
        let all = (0..graph.nodes.len() as u32).rev().map(NodeIx);
        let is_root = |node: &NodeIx| graph.node(*node).body_of == BodyIx::ROOT;
        of_flow(graph).find(has_id).or_else(|| all.filter(is_root).find(has_id))
    }
}

/// Returns the part of a child run's id after the id of its parent.
fn below<'a>(run: &RunId, child: &'a RunId) -> Option<&'a str> {
    child.as_str().strip_prefix(run.as_str())?.strip_prefix('.')
}
