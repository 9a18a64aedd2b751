//! The steps dialect: tool calls in sequence. Their parameters refer to inputs and to earlier results.
//!
//! Each step becomes a node, with an edge to the next one. `$inputs.x` and `$ctx.y` become bindings if they are a whole
//! value. All other texts are literal, including `{{`.

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

/// Checks a flow of this dialect and builds its graph. The graph is valid only if the check reported no error.
pub(crate) fn lower(tree: &Tree, catalog: &Catalog, files: &dyn Files, findings: &mut Findings<'_>) -> Option<Graph> {
    let flow = read::read(tree, findings);
    let written = Written::new(&flow, catalog, findings);
    // The graph needs steps with distinct ids.
    if !flow.has_ids() {
        return None;
    }
    let mut graph = lower::lower(&written.flow(), catalog, files, findings)?;
    for (node, step) in graph.nodes.iter_mut().zip(&flow.steps) {
        node.labels.insert(LABEL.to_owned(), label::of(step));
    }
    Some(graph)
}
