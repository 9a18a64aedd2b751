//! The parts of a flow whose names an expression in a fragment or in `flow.vars` cannot use.

use super::{NameResolver, Visible};
use crate::{diagnostic::Diagnostics, fields::for_message, first_node, yaml::Span};

/// Returns true if a node stands in the same copy of a fragment as the expression at `span`, or if the expression stands in
/// no fragment. The vars of a flow are known everywhere.
pub(super) fn is_inside(names: &NameResolver<'_>, node: usize, span: Span) -> bool {
    let copy = names.flow.nodes[node].id_span.copy;
    span.copy == 0 || copy == span.copy || first_node::vars_of_node(names.flow, node).is_some()
}

/// Reports a node that an expression in a fragment or in `flow.vars` cannot name, and returns true.
pub(super) fn refuse_node(
    names: &NameResolver<'_>,
    node: usize,
    span: Span,
    diagnostics: &mut Diagnostics<'_>,
) -> bool {
    let id = for_message(&names.flow.nodes[node].id);
    if is_in_vars(names) {
        let (message, help) = match first_node::vars_of_node(names.flow, node) {
            Some(_) => (
                "a var cannot read another var".to_owned(),
                "write the expression of the other var here, too, or compute this value in a node".to_owned(),
            ),
            None => (
                format!("`{id}` is a node, but vars are computed before all nodes"),
                format!("use `flow.input.…`, or compute the value in a node behind `{id}`"),
            ),
        };
        diagnostics.error("bad_var", span, message, Some(help));
        return true;
    }
    if is_inside(names, node, span) {
        return false;
    }
    let message = format!("`{id}` is a node outside of the fragment");
    let help = "declare a parameter under `params`, read it as `params.NAME`, and pass the value by `with`";
    diagnostics.error("outside_fragment", span, message, Some(help.into()));
    true
}

/// Reports `nodes` as a whole in a fragment, and `nodes`, `inbound` and `inbounds` in `flow.vars`, and returns true.
pub(super) fn refuse_root(names: &NameResolver<'_>, root: &str, span: Span, diagnostics: &mut Diagnostics<'_>) -> bool {
    if is_in_vars(names) {
        let message = format!("`{root}` is not available here, because vars are computed before all nodes");
        diagnostics.error("bad_var", span, message, Some("use `flow.input.…`".into()));
        return true;
    }
    let is_whole = root == "nodes" && span.copy > 0;
    if is_whole {
        let message = "a fragment cannot read all `nodes`, because it knows its own only";
        let help = "name the nodes, such as `nodes[\"the-id\"]`";
        diagnostics.error("outside_fragment", span, message, Some(help.into()));
    }
    is_whole
}

/// Returns true if the expression stands in `flow.vars`.
pub(super) fn is_in_vars(names: &NameResolver<'_>) -> bool {
    matches!(names.visible, Visible::Before(reader) if first_node::vars_of_node(names.flow, reader).is_some())
}
