//! Draws a graph in several formats.

use std::fmt::Write;

use crate::graph::{BodyIx, Edge, Graph, NodeIx, On};

/// An output format for drawings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Source of a Mermaid flowchart.
    Mermaid,
    /// Source of a Graphviz graph.
    Dot,
    /// A standalone SVG image.
    Svg,
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
        Format::Svg => svg(graph, &mut out),
        Format::Text => text(graph, BodyIx::ROOT, 0, &mut out),
    };
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

/// Width of the box of a node, in the units of the SVG.
const WIDTH: usize = 180;
/// Height of the box of a node.
const HEIGHT: usize = 44;
/// Distance between boxes.
const GAP: usize = 36;

/// Draws the nodes in layers from top to bottom. Each node is one layer below the lowest of its predecessors. A body is
/// drawn in a frame below its owner.
fn svg(graph: &Graph, out: &mut String) -> std::fmt::Result {
    let mut layout = Layout { places: vec![(0, 0); graph.nodes.len()], frames: Vec::new() };
    let (width, height) = place_body(graph, BodyIx::ROOT, (GAP, GAP), &mut layout);
    let Layout { places, frames } = layout;
    let size = (width + GAP, height + GAP);
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" font-size=\"13\">",
        size.0, size.1
    )?;
    writeln!(
        out,
        "<defs><marker id=\"tip\" markerWidth=\"8\" markerHeight=\"8\" refX=\"7\" refY=\"4\" orient=\"auto\"><path d=\"M0,0 L8,4 L0,8 z\"/></marker></defs>"
    )?;
    for ((x, y), (right, bottom)) in frames {
        writeln!(
            out,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\" rx=\"10\" fill=\"#f4f4f4\" stroke=\"#bbb\"/>",
            right - x,
            bottom - y
        )?;
    }
    svg_owners(graph, &places, out)?;
    for edge in &graph.edges {
        let ((x1, y1), (x2, y2)) = (places[edge.from.0 as usize], places[edge.to.0 as usize]);
        let dash = if edge.on == On::Error { " stroke-dasharray=\"5 4\"" } else { "" };
        if edge.goes_back {
            svg_back(((x1, y1), (x2, y2)), dash, &label(edge).unwrap_or_default(), out)?;
            continue;
        }
        let (x1, x2) = (x1 + WIDTH / 2, x2 + WIDTH / 2);
        let from = y1 + HEIGHT;
        writeln!(
            out,
            "<path d=\"M{x1},{from} C{x1},{} {x2},{} {x2},{y2}\" fill=\"none\" stroke=\"#555\"{dash} marker-end=\"url(#tip)\"/>",
            from + GAP / 2,
            y2.saturating_sub(GAP / 2)
        )?;
        if let Some(label) = label(edge) {
            let (x, y) = ((x1 + x2) / 2 + 4, (from + y2) / 2 + 4);
            writeln!(out, "<text x=\"{x}\" y=\"{y}\" font-size=\"11\" fill=\"#555\">{label}</text>")?;
        }
    }
    svg_undos(graph, &places, out)?;
    for (ix, node) in graph.nodes.iter().enumerate() {
        let (x, y) = places[ix];
        writeln!(
            out,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"6\" fill=\"#fff\" stroke=\"#333\"/>"
        )?;
        let middle = x + WIDTH / 2;
        writeln!(
            out,
            "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\" font-weight=\"bold\">{}</text>",
            y + 18,
            node.id
        )?;
        writeln!(
            out,
            "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\" fill=\"#666\">{}</text>",
            y + 35,
            node.node_type.name
        )?;
    }
    writeln!(out, "</svg>")
}

/// Draws an edge that goes back: from the right side of its source to the right side of its target.
fn svg_back(((x1, y1), (x2, y2)): (Point, Point), dash: &str, label: &str, out: &mut String) -> std::fmt::Result {
    let (from, to) = ((x1 + WIDTH, y1 + HEIGHT / 3), (x2 + WIDTH, y2 + HEIGHT * 2 / 3));
    let side = from.0.max(to.0) + GAP;
    writeln!(
        out,
        "<path d=\"M{},{} C{side},{} {side},{} {},{}\" fill=\"none\" stroke=\"#555\"{dash} marker-end=\"url(#tip)\"/>",
        from.0, from.1, from.1, to.1, to.0, to.1
    )?;
    let (x, y) = (from.0.max(to.0) + 4, (from.1 + to.1) / 2 + 4);
    writeln!(out, "<text x=\"{x}\" y=\"{y}\" font-size=\"11\" fill=\"#555\">{label}</text>")
}

/// Draws a line from each owner down to the frame of its body. The line is to the left of the owner's outgoing edges.
fn svg_owners(graph: &Graph, places: &[Point], out: &mut String) -> std::fmt::Result {
    for owner in graph.bodies.iter().filter_map(|body| body.owner) {
        let (x, y) = places[owner.0 as usize];
        let (x, from) = (x + GAP, y + HEIGHT);
        let to = from + GAP / 2;
        writeln!(out, "<path d=\"M{x},{from} L{x},{to}\" fill=\"none\" stroke=\"#999\" stroke-dasharray=\"2 3\"/>")?;
    }
    Ok(())
}

/// Draws a dotted line from each node to the node beside it that undoes it.
fn svg_undos(graph: &Graph, places: &[Point], out: &mut String) -> std::fmt::Result {
    for (node, undo) in graph.nodes.iter().enumerate().filter_map(|(ix, node)| Some((ix, node.undo?))) {
        let ((x1, y), (x2, _)) = (places[node], places[undo.0 as usize]);
        let (from, middle) = (x1 + WIDTH, y + HEIGHT / 2);
        writeln!(
            out,
            "<path d=\"M{from},{middle} L{x2},{middle}\" fill=\"none\" stroke=\"#555\" stroke-dasharray=\"2 3\" marker-end=\"url(#tip)\"/>"
        )?;
        writeln!(out, "<text x=\"{}\" y=\"{}\" font-size=\"11\" fill=\"#555\">undo</text>", from + 4, middle - 4)?;
    }
    Ok(())
}

/// A point: its distances from the left edge and from the top.
type Point = (usize, usize);

/// The positions of the nodes, and the frames around bodies. An outer frame precedes the frames in it.
struct Layout {
    places: Vec<Point>,
    frames: Vec<(Point, Point)>,
}

/// Sets the positions of the nodes of a body, beginning at `left` and `top`. Returns the right and bottom ends of the
/// area that they take.
fn place_body(graph: &Graph, body: BodyIx, (left, top): Point, layout: &mut Layout) -> Point {
    let (mut right, mut bottom) = (left, top);
    for layer in layers(graph, body) {
        let (mut x, y) = (left, bottom);
        for node in layer {
            layout.places[node.0 as usize] = (x, y);
            let mut reach = (x + WIDTH, y + HEIGHT);
            if let Some(inner) = graph.node(node).body {
                let (corner, frame) = ((x + GAP / 2, y + HEIGHT + GAP / 2), layout.frames.len());
                layout.frames.push((corner, corner));
                let inside = place_body(graph, inner, (x + GAP, y + HEIGHT + GAP), layout);
                // `inside` includes the gap below the last layer; the frame has only half of it.
                let end = (inside.0 + GAP / 2, inside.1 - GAP / 2);
                layout.frames[frame].1 = end;
                reach = (reach.0.max(end.0), reach.1.max(end.1));
            }
            x = reach.0 + GAP;
            right = right.max(reach.0);
            bottom = bottom.max(reach.1);
        }
        bottom += GAP;
    }
    (right, bottom)
}

fn layers(graph: &Graph, body: BodyIx) -> Vec<Vec<NodeIx>> {
    let nodes = &graph.body(body).nodes;
    let mut layer = vec![0usize; nodes.len()];
    // A cycle that does not loop would move its nodes down without end, so the number of rounds is limited. Other graphs
    // need at most one round per node; above 64 nodes, the layers may be inexact.
    let upward = |edge: &Edge| {
        let (from, to) = (graph.node(edge.from), graph.node(edge.to));
        from.on_cycle && to.on_cycle && from.cycle.is_none() && to.slot < from.slot
    };
    for _ in 0..nodes.len().min(64) {
        for edge in edges(graph, body) {
            let (from, to) = (graph.node(edge.from).slot as usize, graph.node(edge.to).slot as usize);
            if from != to && !edge.goes_back && !upward(edge) {
                layer[to] = layer[to].max(layer[from] + 1).min(nodes.len());
            }
        }
    }
    let mut layers = vec![Vec::new(); layer.iter().max().map_or(0, |deepest| deepest + 1)];
    for (slot, depth) in layer.into_iter().enumerate() {
        layers[depth].push(nodes[slot]);
        layers[depth].extend(graph.node(nodes[slot]).undo);
    }
    layers.retain(|layer| !layer.is_empty());
    layers
}
