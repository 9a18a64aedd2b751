//! The steps dialect: tools called one after the other, whose parameters name inputs and results before them.
//!
//! Every step becomes a node, every two that follow each other an edge. `$inputs.x` and `$ctx.y` become bindings, if they
//! are a whole value; every other text means itself, `{{` and all.

mod label;
mod read;
mod reference;
mod tool;
mod view;
mod write;

use flowcell_contract::Catalog;

use self::{label::LABEL, write::Written};
use crate::{Files, diagnostic::Findings, graph::Graph, lower, yaml::Tree};

pub use self::label::{StepLabel, step_label};
pub(crate) use self::read::is_steps;

/// Checks a flow of this dialect and builds its graph. The graph is of use only if nothing was found.
pub(crate) fn lower(tree: &Tree, catalog: &Catalog, files: &dyn Files, findings: &mut Findings<'_>) -> Option<Graph> {
    let flow = read::read(tree, findings);
    let written = Written::new(&flow, catalog, findings);
    // What follows is written from steps that can be told apart.
    if !flow.has_ids() {
        return None;
    }
    let mut graph = lower::lower(&written.flow(), catalog, files, findings)?;
    for (node, step) in graph.nodes.iter_mut().zip(&flow.steps) {
        node.labels.insert(LABEL.to_owned(), label::of(step));
    }
    Some(graph)
}
