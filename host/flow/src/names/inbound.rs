//! The members of `inbound` and `inbounds`, as far as the edges to a node tell them.

use flowcell_expr::{Path, Segment};

use super::{NameResolver, Visible};
use crate::{
    diagnostic::{Diagnostics, did_you_mean},
    fields::for_message,
    graph::On,
    members,
    yaml::Span,
};

/// Reports a member of `inbound` or `inbounds` that none of the edges to the node provides.
pub(super) fn check(
    names: &NameResolver<'_>,
    path: &Path,
    is_tested: bool,
    span: Span,
    diagnostics: &mut Diagnostics<'_>,
) {
    let (Visible::Before(node) | Visible::Through(node)) = names.visible else { return };
    let edges = names.shape.incoming[node].iter().map(|edge| names.shape.edges[*edge]);
    let mut edges: Vec<_> = edges.filter(|(raw, ..)| !names.flow.edges[*raw].orders_only).collect();
    let is_edge = matches!(names.visible, Visible::Through(_));
    if is_edge && edges.is_empty() && !is_tested {
        return report_source(names, node, path.root(), span, diagnostics);
    }
    let mut start = 0;
    if path.root() == "inbounds" {
        let Some(Segment::Key(source)) = path.segments().first() else { return };
        let id = |(_, from, _): &(usize, usize, usize)| names.flow.nodes[*from].id.as_str();
        if !edges.is_empty() && !edges.iter().any(|edge| id(edge) == &**source) {
            let help = did_you_mean(source, edges.iter().map(id));
            let help = help.unwrap_or_else(|| "use the source of an edge to this node".to_owned());
            let message = format!("no edge leads from `{}` to this node", for_message(source));
            return diagnostics.new_rule("unknown_member", span, message, Some(help));
        }
        edges.retain(|edge| id(edge) == &**source);
        start = 1;
    }
    let segments = &path.segments()[start..];
    let mut first = None;
    for (raw, from, _) in edges {
        let Some(kind) = &names.types[from] else { return };
        let on = names.flow.edges[raw].on;
        let output = if on == On::Error { None } else { Some(members::in_output(kind, segments)) };
        let failure = if on == On::Success { None } else { Some(members::in_failure(segments)) };
        for absent in [output, failure].into_iter().flatten() {
            let Some(absent) = absent else { return };
            first.get_or_insert(absent);
        }
    }
    names.report(first, (path, start), span, diagnostics);
}

/// Reports `inbound` in the condition of an edge whose source has no incoming edge and so no `inbound`.
fn report_source(names: &NameResolver<'_>, source: usize, root: &str, span: Span, diagnostics: &mut Diagnostics<'_>) {
    let id = for_message(names.flow.nodes[source].id.as_str());
    let why = format!("`{root}` in the condition of an edge belongs to its source, and no edge leads to `{id}`");
    let help = format!("use `{id}`, the output of the source, or `{id}.error` if it has failed");
    diagnostics.new_rule("unknown_member", span, why, Some(help));
}
