//! The passes of cycles whose outputs expressions read.

use flowcell_expr::Path;

use super::{NameResolver, Visible};
use crate::{
    diagnostic::Diagnostics,
    fields::for_message,
    graph::{CycleIx, EdgeIx, NodeIx, PassRead, Source},
    shape::Shape,
    yaml::Span,
};

/// Returns the source of the output of a node that an expression reads. `None`: the expression cannot name the node.
pub(super) fn source(names: &NameResolver<'_>, node: usize) -> Option<Source> {
    let shape = names.shape;
    let pass = if shape.scope_of[node] == names.scope {
        match names.visible {
            Visible::All if shape.undos.of[node].is_some() => return None,
            Visible::All => PassRead::Current,
            Visible::Through(last) | Visible::Undone(last) if last == node => PassRead::Current,
            Visible::Through(reader) | Visible::Undone(reader) | Visible::Before(reader) => {
                pass_read(shape, node, reader)?
            }
        }
    } else {
        let owner = names.enclosing_owners().find(|owner| shape.scope_of[*owner] == shape.scope_of[node])?;
        pass_read(shape, node, owner)?
    };
    Some(Source { node: NodeIx(node as u32), pass })
}

/// Returns the pass whose output of `node` is read by `reader`, a node of the same scope. A node that the edges order before
/// the reader has ended in the same pass. Another node of the reader's cycle, or the reader itself, has ended in the pass
/// before.
fn pass_read(shape: &Shape, node: usize, reader: usize) -> Option<PassRead> {
    if !shape.ancestry.comes_before(node, reader) {
        return shape.cycles.common(node, reader).map(|cycle| PassRead::Previous(CycleIx(cycle as u32)));
    }
    Some(ways(shape, node, reader).map_or(PassRead::Current, PassRead::Left))
}

/// Returns the edges that leave the outermost cycle of `node` that `reader` is not on, and that lead from the one to the
/// other. Notes by which edges the sources of these edges are reached from `node` if it is in an inner cycle. `None`: no
/// edge has to leave a cycle.
fn ways(shape: &Shape, node: usize, reader: usize) -> Option<Vec<EdgeIx>> {
    let left = shape.cycles.left_between(node, reader)?;
    let is_way = |edge: usize| {
        let (_, from, to) = shape.edges[edge];
        !shape.goes_back(edge)
            && (from == node || shape.ancestry.comes_before(node, from))
            && (to == reader || shape.ancestry.comes_before(to, reader))
    };
    let found = shape.cycles.ways(left, is_way);
    for edge in &found {
        let from = shape.edges[edge.0 as usize].1;
        if from == node || shape.cycles.has_view(from, node) {
            continue;
        }
        // Each step leads into a deeper cycle.
        if let Some(inner) = ways(shape, node, from) {
            shape.cycles.add_view(from, node, inner);
        }
    }
    Some(found)
}

/// Returns the help for a node that an expression cannot name although edges lead from it to the reader, because they lead
/// through another pass of the cycle. `None`: no edges lead there.
pub(super) fn edge_back(names: &NameResolver<'_>, node: usize) -> Option<String> {
    let shape = names.shape;
    let is_beside = |other: &usize| shape.scope_of[*other] == shape.scope_of[node];
    let reader = match names.visible {
        Visible::Through(reader) | Visible::Undone(reader) | Visible::Before(reader) if is_beside(&reader) => reader,
        _ => names.enclosing_owners().find(is_beside)?,
    };
    let entry = shape.cycles.list[shape.cycles.left_between(node, reader)?].entry;
    let id = |node: usize| for_message(&names.flow.nodes[node].id);
    let help = || {
        format!(
            "add an edge from `{}` to `{}`; or read it in `{}`, which knows the output of the pass before, and read that node",
            id(node),
            id(reader),
            id(entry)
        )
    };
    shape.ancestry.comes_before(entry, reader).then(help)
}

/// Warns of a member of the output of the pass before, in a strict flow.
pub(super) fn check_first_pass(source: &Source, path: &Path, span: Span, diagnostics: &mut Diagnostics<'_>) {
    if !matches!(source.pass, PassRead::Previous(_)) {
        return;
    }
    let (path, root) = (for_message(&path.to_string()), for_message(path.root()));
    let message =
        format!("`{root}` is the output of the pass before, which is null in the first pass; `{path}` fails there");
    let help = format!("write `{path} | default(…)`, or test it: `… if {path} is defined`");
    diagnostics.warning("first_pass", span, message, Some(help));
}
