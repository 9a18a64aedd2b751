//! Moves a run that has not ended to another version of its flow.
//!
//! The run keeps everything that it has done. So a node that succeeded has to be the same in the new version; a node
//! that has not succeeded may be another one, and then starts anew. The plan says why a run cannot move. Only a plan
//! without such reasons is recorded, as one unit of the journal.

mod plan;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use flowcell_contract::{Json, NodeId, RunId};
use flowcell_flow::{
    combine_versions,
    graph::{BodyIx, FlowPolicy, Graph, Names, NodeIx, On},
};

pub use self::plan::{MigrationPlan, MovedNode, Obstacle, RefusedNode};
use super::{
    FlowRunner, OpenError, OtherVersion, PlannedNode, Reason, RunOptions,
    definition::{Part, Versions},
    newer::{Runs, same_calls},
    past::{Past, node_and_followers},
    renames::{self, Renamed, Renames},
};
use crate::{
    driver::merge,
    fact::{BlockReason, Migrated, Restarted, ScopeId, TaskKey},
    limits::MAX_MOVES,
    ports::{Move, Record, StoreError},
    state::{Phase, RunState, Task},
    versions::{misfit, with_ids},
    world::World,
};

/// The reason why a run did not move.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// The run cannot be opened, or the store refused the move.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The plan has reasons that keep the run from moving.
    #[error("the run cannot move to this version: {}", first_reason(.0))]
    Refused(Box<MigrationPlan>),
}

fn first_reason(plan: &MigrationPlan) -> String {
    let Some(first) = plan.refused.first() else { return String::new() };
    let at = first.task.as_ref().map(|task| format!("`{task}`: ")).unwrap_or_default();
    let more = match plan.refused.len() - 1 {
        0 => String::new(),
        more => format!(" ({more} more: see the plan)"),
    };
    format!("{at}{}{more}", first.obstacle.text())
}

/// The options of a move.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MoveOptions {
    /// True if the decisions of people also count for nodes that are new or changed.
    pub keep_answers: bool,
    /// The nodes that have another name in the other version.
    pub renames: Renames,
}

/// A run that may move to another version of its flow, with the plan. No other driver has the run meanwhile.
pub struct Migration {
    runner: FlowRunner,
    record: Record,
    other: OtherVersion,
    plan: MigrationPlan,
    /// The nodes of the flow itself that are gone or start anew.
    dropped: Vec<NodeIx>,
    /// The whole input, if the other version has other defaults.
    input: Option<Json>,
    /// The policy of the run after the move, if it is another one.
    policy: Option<FlowPolicy>,
    /// The names of the nodes in the other version.
    names: Names,
}

impl Migration {
    /// Compares a run with another version of its flow.
    pub fn prepare(
        world: &Arc<World>,
        run: &RunId,
        mut other: OtherVersion,
        options: &MoveOptions,
    ) -> Result<Migration, OpenError> {
        let runner = FlowRunner::resume(world.clone(), run.clone(), RunOptions::default())?;
        let record = world.journal.find(&world.tenant, run)?.ok_or_else(|| OpenError::Unknown(run.clone()))?;
        let state = &runner.driver.state;
        if other.flow.graph.name != state.graph.name {
            return Err(OpenError::OtherFlow(run.clone(), state.graph.name.clone()));
        }
        let (names, misnamed) = match renames::names(&state.graph, &other.flow.graph, &options.renames) {
            Ok(names) => (names, Vec::new()),
            Err(errors) => (Names::default(), errors),
        };
        // The run keeps the ids of its nodes, so both graphs have the same ids from here on.
        other.flow.graph = with_ids(other.flow.graph, &names);
        let new = &*other.flow.graph;
        let mut plan =
            MigrationPlan { from_version: record.version, version: other.version, ..MigrationPlan::default() };
        let of_run = |obstacle| RefusedNode { task: None, obstacle };
        plan.refused.extend(obstacles_of_run(&runner, &record, &other).into_iter().map(of_run));
        let before = state.input().cloned().unwrap_or_default();
        let input = merge(&new.input, &before);
        if let Err(failure) = world.flows.check_input(new, &input) {
            plan.refused.push(of_run(Obstacle::OtherInput { message: failure.message }));
        }
        let is_named = misnamed.is_empty();
        plan.refused.extend(misnamed.into_iter().map(Obstacle::Renaming).map(of_run));
        plan.renamed = names.iter().map(|(id, name)| Renamed { node: id.clone(), name: name.clone() }).collect();
        let mut dropped = Vec::new();
        let policy = policy_after(&state.policy, &state.graph.policy, &new.policy);
        if state.end().is_none() && is_named {
            plan.keeps_policy = new.policy != policy;
            add_obstacles_of_tasks(state, &mut plan);
            let past = Past::read(world, run)?;
            let versions = Versions { old: (&state.graph, &before), new: (new, &input) };
            dropped = Planning { world, state, other: &other, past, versions, policy: &policy }
                .fill(&mut plan, options.keep_answers)?;
            plan.similar = renames::similar(&state.graph, new);
        }
        plan.drops_answers = !options.keep_answers && !record.answers.is_empty() && !plan.starts.is_empty();
        let input = (input != before).then_some(input);
        let policy = (policy != state.policy).then_some(policy);
        Ok(Migration { runner, record, other, plan, dropped, input, policy, names })
    }

    /// Returns what the move keeps, what starts anew, and what keeps the run from moving.
    pub fn plan(&self) -> &MigrationPlan {
        &self.plan
    }

    /// Returns the flow in the other version, with the ids that the nodes have in the run.
    pub fn other_graph(&self) -> &Graph {
        &self.other.flow.graph
    }

    /// Moves the run, and leaves it parked, due at once.
    pub async fn perform(self) -> Result<MigrationPlan, MigrateError> {
        let Migration { mut runner, record, other, plan, dropped, input, policy, names } = self;
        if !plan.refused.is_empty() {
            return Err(MigrateError::Refused(Box::new(plan)));
        }
        let driver = &mut runner.driver;
        let combined = combine_versions(&driver.state.graph, &other.flow.graph, &dropped);
        let graph = Arc::new(combined.ok_or_else(|| OpenError::Pin(misfit()))?);
        let migration = Migrated {
            pin: other.flow.pin.0.clone(),
            from_version: record.version,
            version: other.version,
            restarted: restarted(&driver.state, &graph, &dropped),
            dropped: dropped.clone().into(),
            input,
            policy,
            names: names.iter().map(|(id, name)| (id.clone(), name.clone())).collect(),
        };
        let mut moves = record.moves.clone();
        moves.push(Move { from: record.pin.clone(), dropped: dropped.into(), names: migration.names.clone() });
        let answers = if plan.drops_answers { BTreeMap::new() } else { record.answers };
        let record = Record { pin: other.flow.pin, version: other.version, moves, answers, ..record };
        // The deciders accept the move of a run that has not ended. The store refuses it if another process has the run.
        let moved = driver.migrate(graph, record, migration).await;
        moved.map_err(|_| OpenError::Driven(runner.identity.run_id.clone()))?;
        Ok(plan)
    }
}

/// Returns the policy of a run after a move from the version with the policy `old` to the one with the policy `new`. A
/// value that the run got at its start in place of the flow's stays, and so does `totalTimeoutMs`, which has begun.
fn policy_after(of_run: &FlowPolicy, old: &FlowPolicy, new: &FlowPolicy) -> FlowPolicy {
    let fail_fast = if of_run.fail_fast == old.fail_fast { new } else { of_run }.fail_fast;
    let max_concurrency = if of_run.max_concurrency == old.max_concurrency { new } else { of_run }.max_concurrency;
    FlowPolicy { fail_fast, max_concurrency, total_timeout_ms: of_run.total_timeout_ms }
}

/// Returns the nodes that had begun an attempt and that the new version has again: dropped ones, and those that an
/// earlier move removed.
fn restarted(state: &RunState, graph: &Graph, dropped: &[NodeIx]) -> Box<[Restarted]> {
    let of_flow = &graph.body(BodyIx::ROOT).nodes;
    let ids: HashMap<&NodeId, NodeIx> = of_flow.iter().map(|node| (&graph.node(*node).id, *node)).collect();
    let restarted = |(old, attempts): (NodeIx, u32)| {
        let new = *ids.get(&state.graph.node(old).id)?;
        (attempts > 0).then_some(Restarted { old, new, attempts })
    };
    let dropped = dropped.iter().map(|node| (*node, task_of(state, *node).attempt));
    dropped.chain(state.gone.iter().map(|(node, task)| (*node, task.attempt))).filter_map(restarted).collect()
}

fn task_of(state: &RunState, node: NodeIx) -> &Task {
    state.task(TaskKey { scope: ScopeId::ROOT, node })
}

/// Returns the reasons that concern the whole run.
fn obstacles_of_run(runner: &FlowRunner, record: &Record, other: &OtherVersion) -> Vec<Obstacle> {
    let (state, projections) = (&runner.driver.state, &runner.world.projections);
    if state.end().is_some() {
        return vec![Obstacle::Ended];
    }
    let has_session = projections.of(&state.graph).is_some() || projections.of(&other.flow.graph).is_some();
    let closing = state.cancel.is_some() || state.scope(ScopeId::ROOT).closing || state.is_undoing();
    let has_cycle = !state.graph.cycles.is_empty() || !other.flow.graph.cycles.is_empty();
    let found = [
        record.parent.clone().map(|parent| Obstacle::Called { parent }),
        (record.pin == other.flow.pin).then_some(Obstacle::SameVersion),
        has_session.then_some(Obstacle::Session),
        state.restored.then_some(Obstacle::Restored),
        closing.then_some(Obstacle::Closing),
        (!runner.driver.is_parked()).then_some(Obstacle::NotParked),
        (record.moves.len() >= MAX_MOVES).then_some(Obstacle::TooManyMoves),
        has_cycle.then_some(Obstacle::Cycle),
    ];
    found.into_iter().flatten().collect()
}

/// Adds the tasks, in bodies too, that keep the run from moving in whatever version.
fn add_obstacles_of_tasks(state: &RunState, plan: &mut MigrationPlan) {
    let mut found = Vec::new();
    for (id, scope) in &state.scopes {
        for (node, task) in scope.nodes(&state.graph).iter().zip(&scope.tasks) {
            let is_ambiguous = matches!(task.blocked.as_deref(), Some((BlockReason::Ambiguous { .. }, _)))
                || task.calls.as_ref().is_some_and(|calls| calls.ambiguous().is_some());
            let obstacle = if is_ambiguous {
                Obstacle::AmbiguousCall
            } else if task.has_calls_in_progress() {
                Obstacle::CallInProgress
            } else if task.phase == Phase::Closing || scope.undoing.is_some() {
                Obstacle::Ending
            } else {
                continue;
            };
            let task = Some(state.address(TaskKey { scope: *id, node: *node }));
            found.push(RefusedNode { task, obstacle });
        }
    }
    found.sort_by(|a, b| a.task.cmp(&b.task));
    plan.refused.extend(found);
}

/// The comparison of a run with another version of its flow.
struct Planning<'a> {
    world: &'a World,
    state: &'a RunState,
    other: &'a OtherVersion,
    past: Past,
    versions: Versions<'a>,
    /// The policy of the run after the move.
    policy: &'a FlowPolicy,
}

impl Planning<'_> {
    /// Fills the lists of nodes. Returns the nodes of the flow itself that are gone or start anew.
    fn fill(&self, plan: &mut MigrationPlan, keep_answers: bool) -> Result<Vec<NodeIx>, StoreError> {
        let (old, new) = (&*self.state.graph, &*self.other.flow.graph);
        let old_nodes = &old.body(BodyIx::ROOT).nodes;
        let of_flow = &new.body(BodyIx::ROOT).nodes;
        let old_ids: HashMap<&NodeId, NodeIx> = old_nodes.iter().map(|node| (&old.node(*node).id, *node)).collect();
        let mut runs = Runs { graph: new, reasons: HashMap::new() };
        for &node in of_flow {
            let reason = match old_ids.get(&new.node(node).id) {
                None => Some(Reason::New),
                Some(old) => self.difference(*old, node)?.map(|part| Reason::Changed { part }),
            };
            runs.reasons.extend(reason.map(|reason| (node, reason)));
        }
        runs.add_followers();
        let mut stays = HashSet::new();
        for &node in of_flow {
            let id = new.node(node).id.clone();
            let before = old_ids.get(&id).copied();
            match (runs.reasons.get(&node), before) {
                (None, Some(before)) => {
                    stays.insert(before);
                    let obstacle = self.is_unhandled(before, node).then_some(Obstacle::Unhandled);
                    plan.refused.extend(obstacle.map(|obstacle| RefusedNode { task: Some(id.to_string()), obstacle }));
                    self.add_staying(plan, id, before);
                }
                (reason, before) => {
                    let reason = reason.cloned().unwrap_or(Reason::New);
                    let obstacle = before.and_then(|before| self.obstacle(before, Some(&reason)));
                    let task = Some(id.to_string());
                    plan.refused.extend(obstacle.map(|obstacle| RefusedNode { task, obstacle }));
                    let made_calls = self.past.effects_of(&id);
                    plan.starts.push(PlannedNode { node: id, reason, made_calls });
                }
            }
        }
        let new_ids: HashSet<&NodeId> = of_flow.iter().map(|node| &new.node(*node).id).collect();
        for &node in old_nodes.iter().filter(|node| !new_ids.contains(&old.node(**node).id)) {
            let id = old.node(node).id.clone();
            let task = Some(id.to_string());
            plan.refused.extend(self.obstacle(node, None).map(|obstacle| RefusedNode { task, obstacle }));
            plan.gone.push(id);
        }
        if !keep_answers {
            self.add_decisions(plan, &runs);
        }
        Ok(old_nodes.iter().copied().filter(|node| !stays.contains(node)).collect())
    }

    /// Returns the part in which a node differs. Calls count once the node has begun. Timeouts, retries and new error
    /// edges count if the node failed: with others it may not have failed, or would have recorded more.
    fn difference(&self, old: NodeIx, new: NodeIx) -> Result<Option<Part>, StoreError> {
        if let Some(part) = self.versions.difference(old, new) {
            return Ok(Some(part));
        }
        let (before, after) = (self.state.graph.node(old), self.other.flow.graph.node(new));
        let (task, graph) = (task_of(self.state, old), &self.other.flow.graph);
        let phase = task.phase;
        if phase == Phase::Failed && before.policy != after.policy {
            return Ok(Some(Part::Policy));
        }
        // A failed node has recorded its input only if an edge could carry it.
        let carries = || after.outgoing.iter().any(|edge| graph.edge(*edge).on != On::Success);
        if phase == Phase::Failed && task.failed_input.is_none() && carries() {
            return Ok(Some(Part::EdgesFrom));
        }
        if matches!(phase, Phase::Waiting | Phase::Skipped) {
            return Ok(None);
        }
        let called = self.past.called_by(&before.id);
        let is_same = self.past.knows_calls_of(&before.id) && same_calls(self.world, called, &self.other.flow.pin)?;
        Ok((!is_same).then_some(Part::Called))
    }

    /// Returns true if a failure that the run has got over would end it at once in the other version.
    fn is_unhandled(&self, old: NodeIx, new: NodeIx) -> bool {
        let (after, graph) = (self.other.flow.graph.node(new), &self.other.flow.graph);
        // The condition of an edge is evaluated with the move.
        let may_handle = || after.outgoing.iter().any(|edge| graph.edge(*edge).on != On::Success);
        let has_failed = task_of(self.state, old).phase == Phase::Failed;
        has_failed && self.policy.fail_fast && !after.policy.continue_on_error && !may_handle()
    }

    /// Adds an unchanged node to its list.
    fn add_staying(&self, plan: &mut MigrationPlan, node: NodeId, before: NodeIx) {
        match task_of(self.state, before).phase {
            Phase::Waiting => plan.waiting.push(node),
            phase if phase.is_end() => plan.kept.push(node),
            _ => plan.moved.push(MovedNode { node, state: self.state_of(before) }),
        }
    }

    fn state_of(&self, node: NodeIx) -> String {
        let task = task_of(self.state, node);
        let has_passes = task.details.as_ref().is_some_and(|details| !details.passes.is_empty());
        let state = match task.phase {
            _ if has_passes => "inside",
            Phase::Ready | Phase::Woken | Phase::Resolved => "ready",
            Phase::Delayed => "retrying",
            Phase::Blocked => "blocked",
            Phase::Paused => "waiting",
            _ => "running",
        };
        state.into()
    }

    /// Returns the reason for which a node cannot start anew or go. `why`: the reason for starting it anew.
    fn obstacle(&self, node: NodeIx, why: Option<&Reason>) -> Option<Obstacle> {
        let task = task_of(self.state, node);
        let has_passes = task.details.as_ref().is_some_and(|details| !details.passes.is_empty());
        let has_agent = task.agents.iter().flat_map(|agents| &agents.runs).any(|run| run.is_open());
        match (task.phase, why) {
            // What a node that is gone has done stays done.
            (Phase::Succeeded, why) => why.cloned().map(|why| Obstacle::Succeeded { why }),
            (Phase::Waiting | Phase::Skipped | Phase::Ready | Phase::Delayed | Phase::Failed, _) => None,
            // An attempt whose component made other calls than before has nothing that goes on.
            (Phase::Blocked, _) if !has_passes && !has_agent => None,
            (_, why) => Some(Obstacle::InProgress { state: self.state_of(node), why: why.cloned() }),
        }
    }

    /// Adds each node at which a person decided something that another node depends on which starts anew.
    fn add_decisions(&self, plan: &mut MigrationPlan, runs: &Runs<'_>) {
        let graph = &*self.other.flow.graph;
        let mut decided: Vec<_> = self.past.decided_in(graph).into_iter().collect();
        decided.sort_unstable();
        for gate in decided.into_iter().filter(|gate| !runs.reasons.contains_key(gate)) {
            let after = node_and_followers(graph, gate);
            if let Some(node) = after.into_iter().filter(|node| runs.reasons.contains_key(node)).min() {
                let obstacle = Obstacle::Answered { node: graph.node(node).id.clone() };
                plan.refused.push(RefusedNode { task: Some(graph.node(gate).id.to_string()), obstacle });
            }
        }
    }
}
