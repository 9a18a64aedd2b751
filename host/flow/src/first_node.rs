//! The first node of a flow with `vars`, which computes them.

use std::collections::HashMap;

use crate::{
    ancestry,
    edges::RawEdge,
    graph::{NodePolicy, On},
    read::{RawBody, RawFlow, RawNode},
    vars::{VARS, Vars},
    yaml::{Span, Tree},
};

/// The type of the node: its output is its input.
const TYPE: &str = "data.object";

/// Adds the node that computes the vars of a flow as its first one. Edges lead from it to the nodes at which the flow
/// begins, so that the vars are known to all nodes.
pub(crate) fn add(flow: &mut RawFlow<'_>) {
    let Some((span, tree)) = flow.vars.as_ref().map(|vars| (vars.span(), vars.tree())) else { return };
    flow.nodes.iter_mut().for_each(|node| node.inline_owner = node.inline_owner.map(|owner| owner + 1));
    flow.nodes.insert(0, node(tree, span, flow.defaults.policy.clone()));
    let id = |id: &str| (id.to_owned(), span);
    // A node with the id of this one is reported later.
    let starts = starts(flow).into_iter().filter(|start| flow.nodes[*start].id != VARS);
    let edges = starts.map(|start| RawEdge {
        from: id(VARS),
        to: id(&flow.nodes[start].id),
        on: On::Success,
        when: None,
        label: None,
        is_short: false,
        orders_only: true,
        max_passes: None,
        span,
    });
    flow.edges.extend(edges.collect::<Vec<_>>());
}

fn node<'t>(tree: &'t Tree, span: Span, policy: NodePolicy) -> RawNode<'t> {
    RawNode {
        id: VARS.to_owned(),
        id_span: span,
        type_name: TYPE.to_owned(),
        type_span: span,
        input: Some(tree),
        config: None,
        prompt_file: None,
        when: None,
        join: None,
        cancel_rest: None,
        policy,
        own_policy: None,
        grants: None,
        body: RawBody::None,
        body_span: span,
        body_output: None,
        undo: None,
        inline_owner: None,
    }
}

/// Returns the nodes outside of bodies at which the flow begins: those without an edge from another node, and the first
/// node of each cycle without an edge from outside.
fn starts(flow: &RawFlow<'_>) -> Vec<usize> {
    let mut by_id = HashMap::new();
    for (index, node) in flow.nodes.iter().enumerate() {
        by_id.entry(node.id.as_str()).or_insert(index);
    }
    let mut is_outside: Vec<bool> = flow.nodes.iter().map(|node| node.inline_owner.is_none()).collect();
    for node in &flow.nodes {
        let bodies = if let RawBody::Ids(ids) = &node.body { ids.as_slice() } else { &[] };
        for (id, _) in bodies.iter().chain(&node.undo) {
            by_id.get(id.as_str()).into_iter().for_each(|node| is_outside[*node] = false);
        }
    }
    let mut before = vec![Vec::new(); flow.nodes.len()];
    for edge in &flow.edges {
        if let (Some(from), Some(to)) = (by_id.get(edge.from.0.as_str()), by_id.get(edge.to.0.as_str())) {
            before[*to].push(*from);
        }
    }
    let components = ancestry::components(&before);
    let begins = |nodes: &&Vec<usize>| {
        nodes[0] != 0
            && nodes.iter().all(|node| is_outside[*node])
            && nodes.iter().flat_map(|node| &before[*node]).all(|from| nodes.binary_search(from).is_ok())
    };
    let mut starts: Vec<_> = components.iter().filter(begins).map(|nodes| nodes[0]).collect();
    starts.sort_unstable();
    starts
}

/// Returns the vars that the node with an index computes; `None` for any other node.
pub(crate) fn vars_of_node<'f, 't>(flow: &'f RawFlow<'t>, node: usize) -> Option<&'f Vars<'t>> {
    flow.vars.as_ref().filter(|_| node == 0)
}
