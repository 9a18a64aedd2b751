//! Repeats a run, all of it or from a node on, and continues a run whose driver was dropped.

use std::{collections::HashSet, sync::Arc};

use flowcell_contract::{Json, NodeId, RunId, Value};
use flowcell_flow::{
    graph::{BodyIx, Graph, Names, NodeIx},
    labels::Labels,
    with_names_as_ids,
};

use super::{
    FlowRunner, OpenError, RunOptions,
    newer::{Earlier, NoStart, OtherVersion, RetryPlan, check_left_early, matching_nodes, outputs_of, plan},
    past::{Past, left_early, node_and_followers, undone_nodes},
    renames::{Renames, new_names},
};
use crate::{
    driver::{KeptOutputs, each_unit, merge},
    fact::{Fact, ScopeId, TaskKey},
    ports::{Again, InVersion, Lease, Pin, Record, StoreError},
    versions::with_ids,
    world::World,
};

/// The message about a record that repeats a part of a run and does not say which.
const PART_MISSING: &str = "the record of the run does not say which part of another run it repeats";

/// The part of a run that a new run repeats.
#[derive(Clone, Debug, Default)]
pub struct Repeat {
    /// A node of the flow itself: the run repeats this node and everything after it. `None`: everything.
    pub from: Option<NodeId>,
    /// True if the run keeps the answers of people that the repeated nodes depend on. Otherwise the nodes ask again.
    pub keep_answers: bool,
    /// The nodes that have another name in the other version. `from` has the name in the other version.
    pub renames: Renames,
}

/// The run that a new run repeats.
#[derive(Default)]
pub(super) struct Repeated {
    pub(super) run: Option<RunId>,
    /// The repeated part, and the outputs of the other nodes. `None`: everything is repeated.
    pub(super) part: Option<(Again, KeptOutputs)>,
    /// The labels of the other run. An older version may have accepted other values.
    pub(super) labels: Labels,
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
        let Before { input, version, labels, pin, has_ended, lease, .. } = Before::read(&world, run, &options)?;
        let flow = world.flows.repeated(&pin).map_err(OpenError::Pin)?;
        let Repeat { from, keep_answers, renames } = repeat;
        if !renames.is_empty() {
            return Err(OpenError::NoOtherNames);
        }
        let again =
            from.map(|from| Again { run: run.clone(), from: Some(from), in_version: None, asks_again: !keep_answers });
        let kept = again.as_ref().map(|again| kept_outputs(&world, &flow.graph, again)).transpose()?;
        if let Some(again) = again.as_ref().filter(|again| !again.asks_again) {
            check_answers_kept(&world, &flow.graph, again)?;
        }
        let graph = flow.graph.clone();
        let undoable = kept.iter().flatten().map(|(node, _)| *node).filter(|node| graph.node(*node).undo.is_some());
        let undoable: HashSet<_> = undoable.collect();
        let repeated = Repeated { run: Some(run.clone()), part: again.clone().zip(kept), labels };
        let runner = FlowRunner::repeating(repeated, flow, world, RunOptions { input, version, ..options })?;
        match runner.is_new() {
            true => take_over(runner, (run, has_ended), &graph, &undoable, lease),
            false => check_repeats(&runner, run, again.as_ref(), version).map(|()| runner),
        }
    }
}

impl FlowRunner {
    /// Returns a function that prepares to continue this run, once its runner was dropped, as another process would after
    /// the end of this one: from what the store has. It works for stores in memory, too.
    pub fn continuation(&self) -> impl Fn(RunOptions) -> Result<FlowRunner, OpenError> + use<> {
        let (world, run_id) = (self.world.clone(), self.identity.run_id.clone());
        move |options| FlowRunner::resume(world.clone(), run_id.clone(), options)
    }

    /// Prepares a new run that repeats another one in another version of its flow. A node keeps its output if it
    /// succeeded, is unchanged, and comes after no node that runs again. All other nodes run, and so do the node in
    /// `repeat` and the nodes after it. The answers of people count as in [`FlowRunner::retry`].
    pub fn retry_in(
        world: Arc<World>,
        run: &RunId,
        other: OtherVersion,
        repeat: Repeat,
        options: RunOptions,
    ) -> Result<FlowRunner, OpenError> {
        let before = Before::read(&world, run, &options)?;
        let planned = before.plan(&world, run, &other, &repeat)?;
        let Repeat { from, keep_answers, .. } = repeat;
        let names = planned.renamed.into_iter().map(|node| (node.node, node.name)).collect();
        let part = InVersion { from, kept: planned.kept, names };
        let kept = outputs_of(&world, &other.flow.graph, run, &part)?;
        let undoable = undoable_in(&before.graph, &part);
        let again = Again { run: run.clone(), from: None, in_version: Some(part), asks_again: !keep_answers };
        let repeated = Repeated { run: Some(run.clone()), part: Some((again.clone(), kept)), labels: before.labels };
        let options = RunOptions { input: before.input, version: other.version, ..options };
        let runner = FlowRunner::repeating(repeated, other.flow, world, options)?;
        match runner.is_new() {
            true => take_over(runner, (run, before.has_ended), &before.graph, &undoable, before.lease),
            false => check_repeats(&runner, run, Some(&again), other.version).map(|()| runner),
        }
    }

    /// Returns what [`FlowRunner::retry_in`] would keep and run, and begins nothing.
    pub fn plan_retry_in(
        world: &Arc<World>,
        run: &RunId,
        other: &OtherVersion,
        repeat: &Repeat,
    ) -> Result<RetryPlan, OpenError> {
        Before::read(world, run, &RunOptions::default())?.plan(world, run, other, repeat)
    }
}

/// What a repetition needs of the run that it repeats.
struct Before {
    /// The whole input.
    input: Json,
    version: Option<u32>,
    labels: Labels,
    pin: Pin,
    graph: Arc<Graph>,
    has_ended: bool,
    /// The claim of the run.
    lease: Lease,
}

impl Before {
    /// Claims and reads the run that a new run with these options repeats.
    fn read(world: &Arc<World>, run: &RunId, options: &RunOptions) -> Result<Before, OpenError> {
        if options.run_id.as_ref() == Some(run) {
            return Err(OpenError::OtherRepeat(run.clone()));
        }
        // A person above a called run may have allowed its actions. Repeated alone, the run would act without
        // permission.
        let record = world.journal.find(&world.tenant, run)?;
        let (version, labels) =
            record.as_ref().map_or_else(Default::default, |record| (record.version, record.labels.clone()));
        if let Some(parent) = record.and_then(|record| record.parent) {
            return Err(OpenError::Called { run: run.clone(), parent });
        }
        let before = FlowRunner::resume(world.clone(), run.clone(), RunOptions::default())?;
        let FlowRunner { driver, pin, _lease: lease, .. } = before;
        let input = driver.state.input().cloned().unwrap_or_default();
        let has_ended = driver.state.end().is_some();
        Ok(Before { input, version, labels, pin, graph: driver.state.graph.clone(), has_ended, lease })
    }

    fn plan(&self, world: &World, run: &RunId, other: &OtherVersion, repeat: &Repeat) -> Result<RetryPlan, OpenError> {
        let graph = &other.flow.graph;
        if graph.name != self.graph.name {
            return Err(OpenError::OtherFlow(run.clone(), self.graph.name.clone()));
        }
        let renames = new_names(&self.graph, graph, &repeat.renames).map_err(OpenError::OtherNames)?;
        let input = merge(&graph.input, &self.input);
        world.flows.check_input(graph, &input).map_err(OpenError::OtherNeeds)?;
        // The ids of the new run are the names in the other version.
        let by_id = renames.iter().map(|(name, id)| (id.clone(), name.clone())).collect();
        let old = with_ids(Arc::new(with_names_as_ids(&self.graph)), &Names::new(by_id));
        let earlier = Earlier { run, graph: &old, input: &self.input, renames: &renames };
        plan(world, &earlier, other, &input, (repeat.from.as_ref(), repeat.keep_answers))
    }
}

/// Returns the nodes of an earlier version whose outputs a part keeps and that can be undone, by their indices in it.
fn undoable_in(earlier: &Graph, part: &InVersion) -> HashSet<NodeIx> {
    let of_flow = earlier.body(BodyIx::ROOT).nodes.iter().copied();
    let is_undoable = |node: &NodeIx| earlier.node(*node).undo.is_some();
    of_flow.filter(|node| is_undoable(node) && keeps(part, earlier.name_of(*node))).collect()
}

/// Returns true if a part keeps the output of the node that has this name in the earlier version.
fn keeps(part: &InVersion, name: &NodeId) -> bool {
    part.kept.contains(part.names.get(name).unwrap_or(name))
}

/// Lets a new run keep the outputs of the nodes in `undoable`. It holds the claim of the earlier run until the store lists
/// the new run, so that no other process takes over the same nodes meanwhile.
fn take_over(
    mut runner: FlowRunner,
    earlier: (&RunId, bool),
    graph: &Graph,
    undoable: &HashSet<NodeIx>,
    lease: Lease,
) -> Result<FlowRunner, OpenError> {
    check_not_taken_over(&runner.world, earlier, graph, undoable)?;
    if !undoable.is_empty() {
        runner.driver.hold_until_listed(Box::new(lease));
    }
    Ok(runner)
}

/// Refuses to keep the outputs of the nodes in `undoable` if the earlier run has not ended, or another run has taken one of
/// them over. The other run undoes the node if it fails, and so would this one: then one of them would rely on
/// nodes that the other has undone.
fn check_not_taken_over(
    world: &World,
    (run, has_ended): (&RunId, bool),
    graph: &Graph,
    undoable: &HashSet<NodeIx>,
) -> Result<(), OpenError> {
    let Some(first) = undoable.iter().min() else { return Ok(()) };
    if !has_ended {
        return Err(NoStart::NotEnded { run: run.clone(), node: graph.name_of(*first).clone() }.into());
    }
    for by in world.journal.repeats_of(&world.tenant, run)? {
        let Some(again) = world.journal.find(&world.tenant, &by)?.and_then(|record| record.again) else { continue };
        let anew = match (&again.in_version, &again.from) {
            (None, Some(from)) => {
                let first = graph.body(BodyIx::ROOT).nodes.iter().find(|node| graph.node(**node).id == *from);
                first.map(|from| node_and_followers(graph, *from)).unwrap_or_default()
            }
            _ => HashSet::new(),
        };
        let is_taken = |node: &&NodeIx| match &again.in_version {
            Some(part) => keeps(part, graph.name_of(**node)),
            None => !anew.contains(*node),
        };
        if let Some(node) = undoable.iter().filter(is_taken).min() {
            let node = graph.name_of(*node).clone();
            return Err(NoStart::TakenOver { run: run.clone(), node, by }.into());
        }
    }
    Ok(())
}

/// If the new run's id belongs to an existing run, checks that the existing run repeats the same part of the same run.
/// Otherwise the result would not be the requested one.
fn check_repeats(
    runner: &FlowRunner,
    run: &RunId,
    again: Option<&Again>,
    version: Option<u32>,
) -> Result<(), OpenError> {
    let id = runner.run_id();
    let record = runner.world.journal.find(&runner.world.tenant, id)?;
    // A node that is kept now may be another one than at the first time.
    let wanted = |again: &Again| {
        let in_version = again.in_version.as_ref().map(|other| (other.from.clone(), other.names.clone()));
        (again.run.clone(), again.from.clone(), in_version, again.asks_again)
    };
    let is_same = |record: Record| {
        record.repeats.as_ref() == Some(run)
            && record.version == version
            && record.again.as_ref().map(wanted) == again.map(wanted)
    };
    if record.is_some_and(is_same) { Ok(()) } else { Err(OpenError::OtherRepeat(id.clone())) }
}

/// Returns the outputs of the earlier run that the new run keeps, by node.
pub(super) fn kept_outputs(world: &World, graph: &Graph, again: &Again) -> Result<KeptOutputs, OpenError> {
    let from = match (&again.in_version, &again.from) {
        (Some(other), _) => return outputs_of(world, graph, &again.run, other),
        (None, Some(from)) => from,
        (None, None) => return Err(StoreError(PART_MISSING.into()).into()),
    };
    let of_flow = &graph.body(BodyIx::ROOT).nodes;
    let first = of_flow.iter().copied().find(|node| graph.node(*node).id == *from);
    let from = first.ok_or_else(|| NoStart::Unknown(from.clone()))?;
    let mut anew = node_and_followers(graph, from);
    if again.asks_again {
        ask_again(graph, Past::read_by_name(world, &again.run, &Renames::new())?.decided_in(graph), &mut anew);
    }
    // The run that is done again may have moved here from another version.
    let record = world.journal.find(&world.tenant, &again.run)?.filter(|record| !record.moves.is_empty());
    let graphs = record.map(|record| world.graphs_of(&record)).transpose().map_err(OpenError::Pin)?;
    let moved = graphs.as_ref().map(|graphs| matching_nodes(graphs.last(), graph, &Names::default()));
    let here = |node: NodeIx| moved.as_ref().map_or(Some(node), |moved| moved.get(&node).copied());
    // What was undone is done anew, and so is everything after it.
    for node in undone_nodes(world, &again.run)?.into_iter().filter_map(here) {
        anew.extend(node_and_followers(graph, node));
    }
    check_left_early(&left_early(world, &again.run, graph)?, graph, |node| anew.contains(&node))?;
    let mut kept = KeptOutputs::new();
    each_unit(&*world.journal, &world.tenant, &again.run, |unit| {
        for fact in &unit.facts {
            if let Some((task, output)) = kept_or_lost(fact)
                && task.scope == ScopeId::ROOT
                && let Some(node) = here(task.node)
                && !anew.contains(&node)
            {
                match output {
                    Some(output) => kept.insert(node, output.clone()),
                    None => kept.remove(&node),
                };
            }
        }
    })
    .map_err(|error| {
        let message = format!("the run `{}` that is done again: {error}", again.run);
        error.with_message(message)
    })?;
    Ok(kept)
}

/// Refuses to keep the answers of people if there are none to keep: every node with an answer is the first repeated
/// node or comes after it, so each of them asks again.
fn check_answers_kept(world: &World, graph: &Graph, again: &Again) -> Result<(), OpenError> {
    let of_flow = &graph.body(BodyIx::ROOT).nodes;
    let Some(id) = &again.from else { return Ok(()) };
    let Some(from) = of_flow.iter().find(|node| graph.node(**node).id == *id) else { return Ok(()) };
    let anew = node_and_followers(graph, *from);
    let decided = Past::read_by_name(world, &again.run, &Renames::new())?.decided_in(graph);
    let asked = decided.iter().copied().filter(|node| anew.contains(node));
    let gate = if decided.contains(from) { Some(*from) } else { asked.min() };
    match gate {
        Some(gate) if decided.is_subset(&anew) => {
            Err(NoStart::KeepsNothing { from: id.clone(), gate: graph.node(gate).id.clone() }.into())
        }
        _ => Ok(()),
    }
}

/// Extends `anew`, the nodes that run again. Adds each node at which a person has decided something, if a node after
/// it is in `anew`, and all nodes after it.
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

/// Returns the task of a fact with the output that a repetition keeps. The output is `None` if a pass of a cycle replaces
/// the output of the pass before.
pub(super) fn kept_or_lost(fact: &Fact) -> Option<(TaskKey, Option<&Value>)> {
    match fact {
        Fact::TaskSucceeded { task, output, .. } => Some((*task, Some(output))),
        // In a later pass of a cycle a task may end in another way than in the pass before.
        Fact::TaskReady { task, .. }
        | Fact::TaskSkipped { task, .. }
        | Fact::TaskFailed { task, .. }
        | Fact::TaskCancelled { task, .. } => Some((*task, None)),
        _ => None,
    }
}
