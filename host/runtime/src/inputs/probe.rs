//! The values of an expression at a moment of a recorded run.
//!
//! The expression stands in the graph in place of the input of a node, or of the outputs of the flow (see
//! [`flowcell_flow::Probe`]). So the fold of the journal captures its values as it captures those of an input.

use std::{ops::ControlFlow, sync::Arc};

use flowcell_contract::{Failure, Json, RunId, Tenant};
use flowcell_expr::Binding;
use flowcell_flow::graph::{Bound, Graph, NodeIx, Reference};
use serde::Serialize;

use super::{TaskPosition, Visited, each_attempt, fold_units};
use crate::{
    capture,
    fact::{AboutRun, Fact, ScopeId},
    ports::{Journal, Record, StoreError},
    state::RunState,
    versions::RunGraphs,
};

/// The values that an expression reads.
pub struct ProbedValues {
    graph: Arc<Graph>,
    /// The node in place of whose input the expression stands. `None`: it stands in place of the outputs.
    node: Option<NodeIx>,
    values: Box<[Option<Json>]>,
    moment: Moment,
    version: usize,
}

/// The moment of a run whose values an expression reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "at")]
pub enum Moment {
    /// The moment at which a task became ready. With several attempts, the latest one counts.
    Task {
        /// The number of the attempt, from 1.
        attempt: u32,
        /// The outcome of the attempt, as [`Visited::status`] names it.
        status: &'static str,
    },
    /// The moment at which a task ended without an attempt.
    Ended {
        /// `skipped` or `cancelled`.
        status: &'static str,
    },
    /// The end of the run, or of its journal.
    End,
    /// Before the first task of a run.
    Start,
}

impl ProbedValues {
    /// Reads the values at the task with this address, or without an address those at the end of the run. Returns
    /// `None` if the task made no attempt and was not skipped or cancelled.
    pub fn read(
        journal: &dyn Journal,
        graphs: &RunGraphs,
        record: &Record,
        (tenant, run): (&Tenant, &RunId),
        address: Option<&str>,
    ) -> Result<Option<ProbedValues>, StoreError> {
        let Some(address) = address else { return at_end(journal, graphs, record, (tenant, run)) };
        let place = TaskPosition::parse(address);
        let mut found = None;
        let mut visit = |visited: &Visited<'_>| {
            if visited.is_at(&place) {
                found = Some(ProbedValues::at_task(visited, graphs));
            }
            ControlFlow::Continue(())
        };
        each_attempt(journal, graphs, record, (tenant, run), (Some(place.node), u64::MAX), &mut visit)?;
        Ok(found)
    }

    /// Returns the values at the start of a run of a flow with this input, whose expression stands in place of the
    /// outputs. `now` is in milliseconds since 1970.
    pub fn at_start(graph: Arc<Graph>, input: Json, about: AboutRun, now: u64) -> ProbedValues {
        let mut state = RunState::new(graph.clone(), graph.policy.clone());
        let about = Some(Box::new(about));
        let (loops, nested, hides_seed) = (false, false, true);
        let started = Fact::RunStarted { input, seed: now, deadline: None, about, loops, nested, hides_seed };
        state.apply(&started, now);
        let values = capture::look_up_outputs(&state, now);
        ProbedValues { values, graph, node: None, moment: Moment::Start, version: 0 }
    }

    fn at_task(visited: &Visited<'_>, graphs: &RunGraphs) -> ProbedValues {
        let Visited { state, key, status, now, ended_without_attempt, .. } = *visited;
        let captured = match ended_without_attempt {
            true => capture::capture(state, key, now),
            false => state.task(key).captured.clone(),
        };
        let moment = match ended_without_attempt {
            true => Moment::Ended { status },
            false => Moment::Task { attempt: visited.number().0, status },
        };
        let values = captured.map(|captured| captured.input.clone()).unwrap_or_default();
        let version = graphs.version_of(key.node);
        ProbedValues { graph: state.graph.clone(), node: Some(key.node), values, moment, version }
    }

    /// Returns the moment of the values.
    pub fn moment(&self) -> &Moment {
        &self.moment
    }

    /// Returns the version of the flow in which the expression stands. Versions count from 0, in the order in which the
    /// run has used them. A node that stayed when the run moved has its input from the version before the move.
    pub fn version(&self) -> usize {
        self.version
    }

    /// Returns the ids of the nodes whose outputs the expression reads.
    pub fn sources(&self) -> Vec<&str> {
        let sources =
            self.expression().into_iter().flat_map(|bound| &bound.references).flat_map(|reference| match reference {
                Reference::Node(source) => std::slice::from_ref(source),
                Reference::Nodes(sources) => sources.as_slice(),
                _ => &[],
            });
        sources.map(|source| self.graph.node(source.node).id.as_str()).collect()
    }

    /// Computes the value of the expression. The work is limited as that of one input.
    pub fn evaluate(&self) -> Result<Json, Failure> {
        let Some(bound) = self.expression() else { return Ok(Json::Null) };
        capture::render_probe(&self.graph, bound, &self.values)
    }

    fn expression(&self) -> Option<&Bound<Binding>> {
        match self.node {
            Some(node) => Some(&self.graph.node(node).input),
            None => self.graph.outputs.as_ref(),
        }
    }
}

/// Reads the values at the end of a run, or at the end of its journal if the run has not ended.
fn at_end(
    journal: &dyn Journal,
    graphs: &RunGraphs,
    record: &Record,
    of: (&Tenant, &RunId),
) -> Result<Option<ProbedValues>, StoreError> {
    let (mut state, mut found, mut last) = (graphs.state(record.policy.clone()), None, 0);
    let look = |state: &RunState, now: u64| ProbedValues {
        graph: state.graph.clone(),
        node: None,
        values: capture::look_up_outputs(state, now),
        moment: Moment::End,
        version: graphs.version_in(state),
    };
    let mut fold = |facts: &[Fact], ts: u64| {
        for fact in facts {
            if matches!(fact, Fact::RunEnded { .. }) {
                found = Some(look(&state, ts));
            }
            state.apply(fact, ts);
        }
        last = ts;
        ControlFlow::Continue(())
    };
    _ = fold_units(journal, graphs, of, u64::MAX, &mut fold)?;
    let has_begun = state.scopes.contains_key(&ScopeId::ROOT);
    Ok(found.or_else(|| has_begun.then(|| look(&state, last))))
}
