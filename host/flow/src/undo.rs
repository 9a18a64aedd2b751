//! The key `undo`: the node that undoes another one after a failure.

use std::collections::BTreeMap;

use crate::{
    diagnostic::{Diagnostics, did_you_mean},
    fields::for_message,
    read::{RawBody, RawFlow, RawNode},
    yaml::Span,
};

/// The nodes that undo others.
#[derive(Default)]
pub(crate) struct Undos {
    /// By node: the node that undoes it.
    pub(crate) by: Vec<Option<usize>>,
    /// By node: the node that it undoes.
    pub(crate) of: Vec<Option<usize>>,
}

impl Undos {
    /// Resolves the names of the nodes that undo others, and reports unknown names and names that two nodes have.
    pub(crate) fn resolve(
        flow: &RawFlow<'_>,
        by_id: &BTreeMap<String, usize>,
        diagnostics: &mut Diagnostics<'_>,
    ) -> Undos {
        let count = flow.nodes.len();
        let mut undos = Undos { by: vec![None; count], of: vec![None; count] };
        for (index, node) in flow.nodes.iter().enumerate() {
            let Some((id, span)) = &node.undo else { continue };
            let Some(undo) = by_id.get(id.as_str()).copied() else {
                let help = did_you_mean(id, by_id.keys().map(String::as_str));
                let help = help.or_else(|| Some("name a node that stands beside this one".into()));
                diagnostics.error("unknown_node", *span, format!("unknown node `{}`", for_message(id)), help);
                continue;
            };
            if undo == index {
                refuse(*span, "a node cannot undo itself", "name another node", diagnostics);
            } else if let Some(other) = undos.of[undo] {
                let message = format!("`{}` undoes `{}` already", node_id(flow, undo), node_id(flow, other));
                refuse(*span, &message, "give each node an `undo` of its own", diagnostics);
            } else {
                (undos.by[index], undos.of[undo]) = (Some(undo), Some(index));
            }
        }
        undos
    }

    /// Reports nodes that cannot undo others, because they would not run alone and only to undo. `scope_of` has the
    /// scope of each node, and `edge_of` returns the place of an edge from or to a node.
    pub(crate) fn check(
        &self,
        flow: &RawFlow<'_>,
        scope_of: &[usize],
        edge_of: impl Fn(usize) -> Option<Span>,
        diagnostics: &mut Diagnostics<'_>,
    ) {
        for (index, undone) in self.of.iter().enumerate() {
            let Some(undone) = *undone else { continue };
            let (node, Some((_, named))) = (&flow.nodes[index], &flow.nodes[undone].undo) else { continue };
            let (id, undone_id) = (node_id(flow, index), node_id(flow, undone));
            if scope_of[index] != scope_of[undone] {
                let message = format!("`{id}` is not in the same body as `{undone_id}`, so it cannot undo it");
                refuse(*named, &message, "list both nodes in the same `body`, or in none", diagnostics);
            }
            if let Some(edge) = edge_of(index) {
                let message = format!("`{id}` undoes `{undone_id}`, so it cannot have edges");
                refuse(edge, &message, "remove the edge; the node runs only to undo", diagnostics);
            }
            for (key, span) in unfitting(node) {
                let message = format!("`{id}` undoes `{undone_id}`, so it cannot have `{key}`");
                refuse(span, &message, help_without(key), diagnostics);
            }
        }
    }

    /// Reports nodes with `undo` that stand on a cycle of edges.
    pub(crate) fn check_cycles(
        &self,
        flow: &RawFlow<'_>,
        is_on_cycle: impl Fn(usize) -> bool,
        diagnostics: &mut Diagnostics<'_>,
    ) {
        for (index, node) in flow.nodes.iter().enumerate() {
            let Some((_, span)) = node.undo.as_ref().filter(|_| is_on_cycle(index)) else { continue };
            let message = format!("`{}` is on a cycle of edges, so it cannot have `undo`", node_id(flow, index));
            refuse(*span, &message, "put both nodes into the body of a `control.scope` on the cycle", diagnostics);
        }
    }
}

/// Returns the keys of a node that a node which undoes another cannot have.
fn unfitting(node: &RawNode<'_>) -> Vec<(&'static str, Span)> {
    let mut found = Vec::new();
    found.extend(node.undo.as_ref().map(|(_, span)| ("undo", *span)));
    found.extend(node.when.map(|tree| ("when", tree.span)));
    found.extend(node.join.map(|(_, span)| ("join", span)));
    if !matches!(node.body, RawBody::None) {
        found.push(("body", node.body_span));
    }
    let continues = node.own_policy.and_then(|policy| policy.member("continueOnError"));
    found.extend(continues.map(|tree| ("policy.continueOnError", tree.span)));
    found
}

fn help_without(key: &str) -> &'static str {
    match key {
        "body" => "put its nodes into a flow of their own, and call it with `control.subflow`",
        "policy.continueOnError" => "remove it; a person decides about an undo that has failed",
        _ => "remove it",
    }
}

fn node_id(flow: &RawFlow<'_>, node: usize) -> String {
    for_message(&flow.nodes[node].id)
}

fn refuse(span: Span, message: &str, help: &str, diagnostics: &mut Diagnostics<'_>) {
    diagnostics.error("bad_undo", span, message.to_owned(), Some(help.into()));
}
