//! The symbols of a flow, and the parts that an editor can fold.

use std::ops::Range;

use flowcell_contract::Catalog;
use flowcell_flow::limits::BODY_DEPTH;

use crate::{
    flow::Flow,
    is_too_large,
    reading::{Kind, Value, read},
};

/// A named part of a flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Symbol {
    /// The id of a node, or a key.
    pub name: String,
    /// The type of a node, or the tool or the agent of a step. Empty for others.
    pub detail: String,
    /// True for a node or a step.
    pub is_node: bool,
    /// The bytes of the whole part.
    pub range: Range<usize>,
    /// The bytes of the name.
    pub name_range: Range<usize>,
    /// The parts inside.
    pub children: Vec<Symbol>,
}

/// Returns the top-level keys of a flow, with the nodes below `nodes`, and the steps below `steps` or `flow`.
pub fn symbols(text: &str) -> Vec<Symbol> {
    if is_too_large(text) {
        return Vec::new();
    }
    let root = read(text);
    let catalog = Catalog::default();
    let flow = Flow::new(text, &root, &catalog);
    let symbol = |member: &crate::reading::Member| Symbol {
        name: member.name.clone(),
        detail: String::new(),
        is_node: false,
        range: member.key.start..member.value.range.end.max(member.key.end),
        name_range: member.key.clone(),
        children: match member.name.as_str() {
            "nodes" | "steps" => nodes(&flow, &member.value, 0),
            "flow" => member.value.member("steps").map(|steps| nodes(&flow, steps, 0)).unwrap_or_default(),
            _ => Vec::new(),
        },
    };
    root.members().iter().filter(|member| !member.name.is_empty()).map(symbol).collect()
}

fn nodes(flow: &Flow<'_>, list: &Value, depth: usize) -> Vec<Symbol> {
    if depth > BODY_DEPTH {
        return Vec::new();
    }
    let node = |node: &Value| {
        let (name, name_range) = flow.text(node.member("id")).filter(|(name, _)| !name.is_empty())?;
        let kind = ["type", "tool", "agent"].iter().find_map(|key| node.member(key));
        let detail = flow.text(kind).map(|(name, _)| name).unwrap_or_default();
        let body = node.member("body").and_then(|body| body.member("nodes"));
        let children = body.map(|body| nodes(flow, body, depth + 1)).unwrap_or_default();
        Some(Symbol { name, detail, is_node: true, range: node.range.clone(), name_range, children })
    };
    list.items().iter().filter_map(node).collect()
}

/// Returns the bytes of the maps, lists and texts of several lines, each from the line of its key.
pub fn folding(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    if !is_too_large(text) {
        fold(text, &read(text), &mut found);
    }
    found
}

fn fold(text: &str, value: &Value, found: &mut Vec<Range<usize>>) {
    let has_lines = |range: &Range<usize>| text[range.clone()].contains('\n');
    match &value.kind {
        Kind::Map(members) => {
            for member in members {
                let range = member.key.start..member.value.range.end.max(member.key.end);
                if has_lines(&range) {
                    found.push(range);
                }
                fold(text, &member.value, found);
            }
        }
        Kind::List(items) => {
            for item in items {
                if has_lines(&item.range) && matches!(item.kind, Kind::Map(_) | Kind::List(_)) {
                    found.push(item.range.clone());
                }
                fold(text, item, found);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_and_folds_follow_the_text() {
        let text = "flow: { name: a }\nnodes:\n  - id: each\n    type: control.foreach\n    body:\n      nodes: [{ id: in, type: x }]\n  - id:\nedges: []\n";
        let found = symbols(text);
        assert_eq!(found.iter().map(|symbol| &*symbol.name).collect::<Vec<_>>(), ["flow", "nodes", "edges"]);
        let nodes = &found[1].children;
        assert_eq!((nodes.len(), &*nodes[0].name, &*nodes[0].detail), (1, "each", "control.foreach"));
        assert_eq!(nodes[0].children[0].name, "in");
        assert_eq!(&text[nodes[0].name_range.clone()], "each");
        let folds: Vec<_> =
            folding(text).into_iter().map(|range| text[range].lines().next().unwrap_or_default()).collect();
        assert_eq!(folds, ["nodes:", "id: each", "body:"]);
    }

    #[test]
    fn symbols_know_as_many_bodies_as_a_flow_may_have() {
        let count = BODY_DEPTH + 3;
        let text = format!("nodes: [{}{}", "{ id: a, body: { nodes: [".repeat(count), "] } }".repeat(count));
        let (mut found, mut depth) = (symbols(&text), 0);
        while let Some(symbol) = found.pop() {
            found = symbol.children;
            depth += 1;
        }
        // The list `nodes`, its node, and one node for each body.
        assert_eq!(depth, 2 + BODY_DEPTH);
    }
}
