//! Finds the answer of a run to the post that has started it, in the journal of the run.

use std::sync::Arc;

use flowcell_contract::{Json, RunId, http_answer::RESPOND};
use flowcell_flow::{
    graph::{Graph, NodeIx},
    triggers::Respond,
};
use flowcell_runtime::{
    OpenError,
    fact::{Fact, RunEnd},
    limits::MAX_READ_UNITS,
    ports::Unit,
};

use super::{Host, events};
use crate::host::error::StartError;

/// The part of a run that answers its post.
#[derive(Debug)]
pub(crate) enum FoundAnswer {
    /// The output of the first `control.respond` that has succeeded.
    Node(Json),
    /// The end of the run, before which no such node has succeeded.
    End(Box<RunEnd>),
    /// The run was removed, so its answer is unknown.
    Removed,
}

/// Looks for the answer of one run. Each look goes on where the one before has ended.
pub(crate) struct AnswerReader {
    host: Host,
    run: RunId,
    respond: Respond,
    /// The graph of the run, once a look has needed it.
    graph: Option<Arc<Graph>>,
    /// The number of the next fact to read.
    at: u64,
}

impl AnswerReader {
    pub(crate) fn new(host: &Host, run: &RunId, respond: Respond) -> AnswerReader {
        AnswerReader { host: host.clone(), run: run.clone(), respond, graph: None, at: 0 }
    }

    /// Returns whether the run has facts that no look has read, or was removed.
    pub(crate) fn has_news(&self) -> Result<bool, StartError> {
        let Some(runs) = self.host.runs() else { return Ok(true) };
        let row = runs.run(&self.host.tenant, &self.run).map_err(OpenError::Store)?;
        Ok(row.is_some_and(|(row, next)| next > self.at || row.status == "removed"))
    }

    /// Reads the facts since the last look. Returns `None` if the answer is not there yet.
    pub(crate) fn look(&mut self) -> Result<Option<FoundAnswer>, StartError> {
        if let Some(runs) = self.host.runs() {
            let row = runs.run(&self.host.tenant, &self.run).map_err(OpenError::Store)?;
            match row {
                Some((row, _)) if row.status == "removed" => return Ok(Some(FoundAnswer::Removed)),
                // Only the end of the run counts, so that the facts before it need not be read.
                Some((_, next)) if self.respond == Respond::Outputs => self.at = self.at.max(next.saturating_sub(1)),
                _ => {}
            }
        }
        loop {
            let units = self.host.shared.journal.read(&self.host.tenant, &self.run, self.at, MAX_READ_UNITS);
            let units = units.map_err(OpenError::Store)?;
            if units.is_empty() {
                return Ok(None);
            }
            for unit in &units {
                if let Some(found) = self.find_in(unit)? {
                    return Ok(Some(found));
                }
                self.at = unit.next_seq();
            }
        }
    }

    fn find_in(&mut self, unit: &Unit) -> Result<Option<FoundAnswer>, StartError> {
        for fact in &unit.facts {
            match fact {
                Fact::Migrated { .. } => self.graph = None,
                Fact::TaskSucceeded { task, output, .. } if self.answers(task.node)? => {
                    return Ok(Some(FoundAnswer::Node(output.json().clone())));
                }
                Fact::RunEnded { end } => return Ok(Some(FoundAnswer::End(end.clone()))),
                _ => {}
            }
        }
        Ok(None)
    }

    /// Returns whether a node answers the post.
    fn answers(&mut self, node: NodeIx) -> Result<bool, StartError> {
        if self.respond != Respond::Node {
            return Ok(false);
        }
        let graph = match &self.graph {
            Some(graph) => graph,
            None => self.graph.insert(events::graph_of(&self.host, &self.run)?),
        };
        Ok(graph.nodes.get(node.0 as usize).is_some_and(|node| *node.node_type.name == *RESPOND))
    }
}
