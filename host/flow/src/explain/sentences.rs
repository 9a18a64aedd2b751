//! Sentences about when a node runs.

use flowcell_expr::Condition;

use super::{joined, listed, owner, short};
use crate::graph::{BodyIx, Bound, Cycle, Edge, Graph, Join, Node, NodeIx, On};

/// Returns sentences about a whole flow.
pub(super) fn of_flow(graph: &Graph) -> Vec<String> {
    let root = graph.body(BodyIx::ROOT);
    let mut said = Vec::new();
    if !root.starts.is_empty() {
        said.push(format!("A run begins with {}.", listed(graph, &root.starts)));
    }
    let policy = &graph.policy;
    said.push(format!("At most {} attempts run at the same time.", policy.max_concurrency));
    said.extend(policy.total_timeout_ms.map(|time| format!("A run ends after {time} ms at the latest.")));
    said.push(match policy.fail_fast {
        true => "The first failure that the flow does not handle cancels its other tasks.".to_owned(),
        false => "After a failure that the flow does not handle, its other tasks go on (`failFast: false`).".to_owned(),
    });
    if graph.strict {
        said.push("The flow is strict: a missing value fails the node that reads it.".to_owned());
    }
    if !graph.triggers.is_empty() {
        said.push(format!("{} of the flow may start runs.", counted(graph.triggers.len(), "trigger")));
    }
    if graph.outputs.is_none() {
        said.push("The outputs of a run are the outputs of all nodes, by id.".to_owned());
    }
    said
}

/// Returns a sentence for each cycle of a flow. The nodes of a cycle share it.
pub(super) fn of_cycles(graph: &Graph) -> Vec<String> {
    let sentence = |cycle: &Cycle| {
        let entry = &graph.node(cycle.entry).id;
        let back = joined(&cycle.back, |edge| fires(graph, graph.edge(*edge)), "; ", "; ");
        let most = cycle.max_passes;
        format!("It repeats in the cycle that begins at `{entry}`, at most {most} times: after {back}.")
    };
    graph.cycles.iter().map(sentence).collect()
}

/// Returns sentences about when a node runs, and about its failure. `cycles`: the sentences of [`of_cycles`].
pub(super) fn of_node(graph: &Graph, ix: NodeIx, cycles: &[String]) -> Vec<String> {
    let node = graph.node(ix);
    let mut said = Vec::new();
    if let Some(undone) = node.undo_of {
        said.push(format!(
            "It runs only to undo `{}`: after that node has succeeded, if its scope or the flow fails later.",
            graph.node(undone).id
        ));
        said.extend(when(node));
        return said;
    }
    if let Some(owner) = owner(graph, node) {
        said.push(format!("It runs in each pass of the body of `{}` ({}).", owner.id, owner.node_type.name));
    }
    said.extend(starts(graph, node));
    said.extend(node.cycle.and_then(|cycle| cycles.get(cycle.0 as usize)).cloned());
    said.extend(when(node));
    if !node.cancels.is_empty() {
        said.push(format!("When it starts, it cancels {} if they have not ended.", listed(graph, &node.cancels)));
    }
    if !node.cancelled_by.is_empty() {
        said.push(format!("It is cancelled when {} starts before it has ended.", listed(graph, &node.cancelled_by)));
    }
    if let Some(body) = node.body {
        said.push(format!("It runs the nodes of its body: {}.", listed(graph, &graph.body(body).nodes)));
    }
    said.push(failure(graph, node));
    said
}

fn starts(graph: &Graph, node: &Node) -> Vec<String> {
    let edges: Vec<&Edge> = node.incoming.iter().map(|edge| graph.edge(*edge)).filter(|edge| !edge.goes_back).collect();
    let begins = if node.body_of == BodyIx::ROOT { "the run" } else { "the pass" };
    match edges.as_slice() {
        [] => vec![format!("It starts at once when {begins} begins.")],
        [edge] => vec![format!("It starts after {}.", fires(graph, edge))],
        _ => {
            let which = match node.join {
                Join::Settled => {
                    "It starts when each of these edges has fired or cannot fire any more, and one has fired"
                }
                Join::All => "It starts when all of these edges have fired",
                Join::Any => "It starts when the first of these edges fires",
            };
            vec![format!("{which}: {}.", joined(&edges, |edge| fires(graph, edge), "; ", "; "))]
        }
    }
}

/// Says when an edge fires: `a` succeeds, and a condition holds.
fn fires(graph: &Graph, edge: &Edge) -> String {
    let from = graph.node(edge.from);
    let ends = match edge.on {
        On::Success if from.policy.continue_on_error => "succeeds or fails (`continueOnError`)",
        On::Success => "succeeds",
        On::Error => "fails",
        On::End => "succeeds or fails",
    };
    let when = edge.when.as_ref().map(|when| format!(", if the condition of the edge holds{}", reading(when)));
    format!("`{}` {ends}{}", from.id, when.unwrap_or_default())
}

fn when(node: &Node) -> Option<String> {
    node.when.as_ref().map(|when| format!("It is skipped unless its `when` holds{}.", reading(when)))
}

/// Names the values that a condition reads.
fn reading(condition: &Bound<Condition>) -> String {
    let paths = condition.expr.paths();
    match paths.is_empty() {
        true => String::new(),
        false => {
            let read = joined(&paths, |path| format!("`{}`", short(&path.to_string())), ", ", ", ");
            format!(", which reads {read}")
        }
    }
}

fn failure(graph: &Graph, node: &Node) -> String {
    if node.policy.continue_on_error {
        return "If it fails, its failure becomes its output, and its edges fire as after a success.".to_owned();
    }
    let handlers = node.outgoing.iter().map(|edge| graph.edge(*edge)).filter(|edge| edge.on != On::Success);
    let handlers: Vec<_> = handlers.map(|edge| edge.to).collect();
    match (handlers.is_empty(), owner(graph, node)) {
        (false, _) => format!("If it fails, {} can handle the failure.", listed(graph, &handlers)),
        (true, Some(owner)) => format!("If it fails, the pass of `{}` fails.", owner.id),
        (true, None) => "If it fails, the run fails.".to_owned(),
    }
}

pub(super) fn counted(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}
