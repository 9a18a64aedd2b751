//! Draws a graph in several formats.

mod json;
mod svg;

use std::fmt::Write;

use serde::{Deserialize, Serialize};

pub use self::json::{Fold, PART_EDGES, PART_NODES};
use crate::graph::{BodyIx, Edge, Graph, NodeIx, On};

/// An output format for drawings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Source of a Mermaid flowchart.
    Mermaid,
    /// Source of a Graphviz graph.
    Dot,
    /// A standalone SVG image, in light and dark colours.
    Svg,
    /// The places of all nodes and edges as JSON, for programs that draw.
    Json,
    /// A list of nodes, each with the targets of its edges. The nodes of a body are indented below their owner.
    Text,
}

/// Draws a graph in a format.
pub fn draw(graph: &Graph, format: Format) -> String {
    let mut out = String::new();
    // Writing to a string never fails.
    let _ = match format {
        Format::Mermaid => mermaid(graph, &mut out),
        Format::Dot => dot(graph, &mut out),
        Format::Svg => svg::svg(graph, &mut out),
        Format::Json => json::json(graph, &Fold::None, None, |_, _| None::<()>, &mut out),
        Format::Text => text(graph, BodyIx::ROOT, 0, &mut out),
    };
    out
}

/// Returns the places of the nodes and edges as JSON, as [`Format::Json`]. The bodies that `fold` selects are left out.
/// With the number of a part, from 0, only the nodes and edges of that part are written; see [`PART_NODES`]. A number that
/// is too large stands for the last part. `about` returns an object with more members for a node, by the id of the owner of
/// the body around it and its own id.
pub fn places<T: Serialize>(
    graph: &Graph,
    fold: &Fold,
    part: Option<usize>,
    about: impl Fn(Option<&str>, &str) -> Option<T>,
) -> String {
    let mut out = String::new();
    // Writing to a string never fails.
    let _ = json::json(graph, fold, part, about, &mut out);
    out
}

fn edges(graph: &Graph, body: BodyIx) -> impl Iterator<Item = &Edge> {
    graph.body(body).edges.iter().map(|edge| graph.edge(*edge))
}

/// Returns the nodes of a body. Each is followed by the node that undoes it.
fn nodes(graph: &Graph, body: BodyIx) -> impl Iterator<Item = NodeIx> {
    graph.body(body).nodes.iter().flat_map(|ix| std::iter::once(*ix).chain(graph.node(*ix).undo))
}

/// Returns the label of an edge: when it fires, and `back` if it begins another pass of a cycle.
fn label(edge: &Edge) -> Option<String> {
    let on = match edge.on {
        On::Success => None,
        On::Error => Some("error"),
        On::End => Some("end"),
    };
    let parts = [on, edge.when.is_some().then_some("when"), edge.goes_back.then_some("back")];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn mermaid(graph: &Graph, out: &mut String) -> std::fmt::Result {
    writeln!(out, "flowchart TD")?;
    mermaid_body(graph, BodyIx::ROOT, 1, out)
}

fn mermaid_body(graph: &Graph, body: BodyIx, depth: usize, out: &mut String) -> std::fmt::Result {
    let indent = "  ".repeat(depth);
    for ix in nodes(graph, body) {
        let node = graph.node(ix);
        writeln!(out, "{indent}n{}[\"{}<br/>{}\"]", ix.0, node.id, node.node_type.name)?;
        if let Some(undone) = node.undo_of {
            writeln!(out, "{indent}n{} -.->|undo| n{}", undone.0, ix.0)?;
        }
        if let Some(inner) = node.body {
            writeln!(out, "{indent}subgraph b{} [\"body of {}\"]", inner.0, node.id)?;
            mermaid_body(graph, inner, depth + 1, out)?;
            writeln!(out, "{indent}end\n{indent}n{} -.- b{}", ix.0, inner.0)?;
        }
    }
    for edge in edges(graph, body) {
        let arrow = label(edge).map_or("-->".to_owned(), |label| format!("-->|{label}|"));
        writeln!(out, "{indent}n{} {arrow} n{}", edge.from.0, edge.to.0)?;
    }
    Ok(())
}

fn dot(graph: &Graph, out: &mut String) -> std::fmt::Result {
    writeln!(out, "digraph \"{}\" {{\n  compound=true;\n  node [shape=box];", graph.name)?;
    dot_body(graph, BodyIx::ROOT, 1, out)?;
    writeln!(out, "}}")
}

fn dot_body(graph: &Graph, body: BodyIx, depth: usize, out: &mut String) -> std::fmt::Result {
    let indent = "  ".repeat(depth);
    for ix in nodes(graph, body) {
        let node = graph.node(ix);
        writeln!(out, "{indent}n{} [label=\"{}\\n{}\"];", ix.0, node.id, node.node_type.name)?;
        if let Some(undone) = node.undo_of {
            writeln!(out, "{indent}n{} -> n{} [label=\"undo\", style=dotted];", undone.0, ix.0)?;
        }
        if let Some(inner) = node.body {
            writeln!(out, "{indent}subgraph cluster_{} {{\n{indent}  label=\"body of {}\";", inner.0, node.id)?;
            dot_body(graph, inner, depth + 1, out)?;
            writeln!(out, "{indent}}}")?;
            // Graphviz edges connect nodes; `lhead` ends this one at the frame.
            if let Some(first) = graph.body(inner).nodes.first() {
                let style = format!("lhead=cluster_{}, style=dashed, dir=none", inner.0);
                writeln!(out, "{indent}n{} -> n{} [{style}];", ix.0, first.0)?;
            }
        }
    }
    for edge in edges(graph, body) {
        // Graphviz places the target of an edge below its source, unless the edge does not count.
        let place = if edge.goes_back { ", constraint=false" } else { "" };
        let label = label(edge).map(|label| format!(" [label=\"{label}\"{place}]")).unwrap_or_default();
        writeln!(out, "{indent}n{} -> n{}{label};", edge.from.0, edge.to.0)?;
    }
    Ok(())
}

fn text(graph: &Graph, body: BodyIx, depth: usize, out: &mut String) -> std::fmt::Result {
    let indent = "  ".repeat(depth);
    for ix in nodes(graph, body) {
        let node = graph.node(ix);
        write!(out, "{indent}{} ({})", node.id, node.node_type.name)?;
        let mut targets: Vec<_> = node.outgoing.iter().map(|edge| arrow(graph, graph.edge(*edge))).collect();
        targets.extend(node.undo.map(|undo| format!("{} [undo]", graph.node(undo).id)));
        if !targets.is_empty() {
            write!(out, " -> {}", targets.join(", "))?;
        }
        writeln!(out)?;
        if let Some(inner) = node.body {
            text(graph, inner, depth + 1, out)?;
        }
    }
    Ok(())
}

fn arrow(graph: &Graph, edge: &Edge) -> String {
    let label = label(edge).map(|label| format!(" [{label}]")).unwrap_or_default();
    format!("{}{label}", graph.node(edge.to).id)
}
