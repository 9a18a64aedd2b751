//! `--dry-run`: prints the nodes that would run, their order, and the capabilities that each may use.

use std::{collections::VecDeque, fmt::Write as _};

use flowcell::{
    LoadedFlow,
    explain::policy_json,
    from_defaults,
    graph::{BodyIx, EdgeIx, Graph, Node, NodeIx},
};
use serde_json::{Value, json};

use crate::{
    cli_error::CliError,
    commands::reach::{grants_text, limits_text, policy_text},
    output::{put, put_json},
    terminal::counted,
};

/// Prints the plan as text or as JSON.
pub(super) fn print(flow: &LoadedFlow, as_json: bool) -> Result<(), CliError> {
    let graph = flow.graph();
    if as_json {
        let nodes: Vec<_> = order(graph, BodyIx::ROOT).into_iter().map(|node| node_json(graph, node)).collect();
        return put_json(&json!({ "flow": graph.name, "nodes": nodes }));
    }
    let nodes = counted(graph.nodes.len(), "node");
    let mut text = format!("{}: {nodes} would run, in this order as far as edges fire\n", graph.name);
    write_body(&mut text, graph, BodyIx::ROOT, 1);
    put(&text)
}

/// Orders the nodes of a body topologically, without the edges that begin another pass of a cycle. Nodes on a cycle that does
/// not loop, and the nodes after it, come last.
fn order(graph: &Graph, body: BodyIx) -> Vec<NodeIx> {
    let nodes = &graph.body(body).nodes;
    let leads_on = |edge: &&EdgeIx| !graph.edge(**edge).goes_back;
    let awaited = |node: &NodeIx| graph.node(*node).incoming.iter().filter(leads_on).count();
    let mut open: Vec<usize> = nodes.iter().map(awaited).collect();
    let mut ready: VecDeque<NodeIx> = nodes.iter().copied().filter(|node| awaited(node) == 0).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(next) = ready.pop_front() {
        order.push(next);
        for edge in graph.node(next).outgoing.iter().filter(leads_on) {
            let to = graph.edge(*edge).to;
            let slot = graph.node(to).slot as usize;
            open[slot] -= 1;
            if open[slot] == 0 {
                ready.push_back(to);
            }
        }
    }
    order.extend(nodes.iter().copied().filter(|node| open[graph.node(*node).slot as usize] > 0));
    order
}

fn write_body(text: &mut String, graph: &Graph, body: BodyIx, depth: usize) {
    let order = order(graph, body);
    let width = order.iter().map(|node| graph.node(*node).id.as_str().len()).max().unwrap_or(0);
    for ix in order {
        let node = graph.node(ix);
        let indent = "  ".repeat(depth);
        let after = predecessors(graph, node);
        // Writing to a string does not fail.
        let _ = write!(text, "{indent}{:width$}  {}", node.id.as_str(), node.node_type.full_name());
        if !after.is_empty() {
            let _ = write!(text, "  after {}", after.join(", "));
        }
        let policy = policy_text(node).map(|policy| format!("  policy: {policy}")).unwrap_or_default();
        let _ = writeln!(text, "  reaches {}{policy}{}", grants_text(node), limits_text(node));
        if let Some(body) = node.body {
            write_body(text, graph, body, depth + 1);
        }
    }
}

/// Returns the ids of the nodes with an edge to this node.
fn predecessors<'a>(graph: &'a Graph, node: &Node) -> Vec<&'a str> {
    let mut ids: Vec<_> = node.incoming.iter().map(|edge| graph.node(graph.edge(*edge).from).id.as_str()).collect();
    ids.dedup();
    ids
}

fn node_json(graph: &Graph, ix: NodeIx) -> Value {
    let node = graph.node(ix);
    let mut entry = json!({
        "id": node.id,
        "type": node.node_type.full_name(),
        "after": predecessors(graph, node),
        "capabilities": node.node_type.capabilities,
        "grants": node.grants,
        "policy": policy_json(&node.policy),
    });
    if !node.node_type.limits.is_empty() {
        entry["limits"] = json!(node.node_type.limits);
    }
    if let Some(defaults) = from_defaults(node) {
        entry["defaults"] = json!(defaults);
    }
    if let Some(body) = node.body {
        entry["body"] = order(graph, body).into_iter().map(|node| self::node_json(graph, node)).collect();
    }
    entry
}
