//! The steps dialect: calls of tools, one after the other. The parameters of a call refer to the flow's inputs and to
//! the results of earlier calls.
//!
//! Each step becomes a node, with an edge to the next one. A value that is nothing but `$inputs.x`, `$ctx.y` or `$facts.z`
//! becomes a binding. All other texts are literal, including `{{`.

mod facts;
mod generate;
mod label;
mod read;
mod reference;
mod resolver;
mod tool;

use flowcell_contract::Catalog;

use self::{generate::Generated, label::LABEL};
use crate::{CheckContext, diagnostic::Diagnostics, graph::Graph, lower, yaml::Tree};

pub use self::label::{StepLabel, step_label};
pub(crate) use self::read::is_steps;

/// Checks a flow of this dialect and builds its graph. The graph is valid only if the check reported no error.
pub(crate) fn lower(
    tree: &Tree,
    catalog: &Catalog,
    context: &dyn CheckContext,
    diagnostics: &mut Diagnostics<'_>,
) -> Option<Graph> {
    let flow = read::read(tree, diagnostics);
    let written = Generated::new(&flow, catalog, diagnostics);
    // The graph needs steps with distinct ids.
    if !flow.has_ids() {
        return None;
    }
    let mut graph = lower::lower(written.flow(), catalog, context, diagnostics)?;
    for (node, step) in graph.nodes.iter_mut().zip(&flow.steps) {
        node.labels.insert(LABEL.to_owned(), label::from_step(step));
    }
    Some(graph)
}
