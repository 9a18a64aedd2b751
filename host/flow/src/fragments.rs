//! Fragments: parts of a graph with parameters. Each use of a fragment is written out as a `control.scope` whose body is a
//! copy of the fragment, before the flow is read. So the rest of the check, and the runtime, know nodes only.

mod arguments;
mod definition;
mod size;
mod write_out;

use std::borrow::Cow;

use flowcell_contract::Catalog;

pub(crate) use self::write_out::SCOPE_TYPE;
pub use self::write_out::{USE_KEYS, id_in_use};
use self::{definition::Fragments, size::check_size, write_out::Writer};
use crate::{
    diagnostic::Diagnostics,
    read::FRAGMENTS_KEY,
    yaml::{Kind, Tree},
};

/// The name of the parameters in a fragment: the name under which the scopes in place of the uses give their values.
pub(crate) const PARAMS: &str = "params";
/// The key of a node that is a use of a fragment.
pub(crate) const USE_KEY: &str = "use";

/// Returns a flow with its uses of fragments written out. Reports mistakes in the fragments and their uses. Returns
/// `None` if the uses cannot be written out.
pub(crate) fn write_out<'t>(
    flow: &'t Tree,
    catalog: &Catalog,
    diagnostics: &mut Diagnostics<'_>,
) -> Option<Cow<'t, Tree>> {
    if flow.member(FRAGMENTS_KEY).is_none() && uses(flow).is_empty() {
        return Some(Cow::Borrowed(flow));
    }
    let before = diagnostics.error_count();
    let fragments = Fragments::read(flow, diagnostics);
    if diagnostics.error_count() > before {
        return None;
    }
    let budget = check_size(flow, &fragments, diagnostics)?;
    fragments.warn_of_unused(flow, diagnostics);
    let written = Writer::new(&fragments, catalog, budget, diagnostics).flow(flow);
    (diagnostics.error_count() == before).then_some(Cow::Owned(written))
}

/// Returns all uses of fragments in a graph and in the bodies that are written in it.
fn uses(graph: &Tree) -> Vec<&Tree> {
    nodes(graph).into_iter().filter(|node| node.member(USE_KEY).is_some()).collect()
}

/// Returns all nodes of a graph, and those in the bodies that are written in it.
pub(crate) fn nodes(graph: &Tree) -> Vec<&Tree> {
    nodes_with_levels(graph, 0).into_iter().map(|(_, node)| node).collect()
}

/// Returns the nodes of a graph and of the bodies that are written in it, each with the number of these bodies around
/// it. `level` is the number for the graph itself.
fn nodes_with_levels(graph: &Tree, level: usize) -> Vec<(usize, &Tree)> {
    let mut found = Vec::new();
    for node in graph.member("nodes").map(Tree::items).unwrap_or_default() {
        found.push((level, node));
        let body = node.member("body").filter(|body| matches!(body.kind, Kind::Map(_)));
        found.extend(body.map(|body| nodes_with_levels(body, level + 1)).unwrap_or_default());
    }
    found
}

/// Returns the text of a member of a node, or an empty text.
fn text_of<'t>(node: &'t Tree, key: &str) -> &'t str {
    node.member(key).and_then(Tree::text).unwrap_or_default()
}
