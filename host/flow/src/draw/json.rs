//! The places of all nodes and edges as JSON.

use std::fmt::Write;

use serde::Serialize;

use super::label;
use crate::{
    graph::{Graph, NodeIx, On},
    layout::{LineKind, NodeBox, Point, layout},
};

#[derive(Serialize)]
struct Picture<'a> {
    name: &'a str,
    width: i32,
    height: i32,
    nodes: Vec<DrawnNode<'a>>,
    edges: Vec<DrawnEdge<'a>>,
}

/// A node. Its places are in pixels.
#[derive(Serialize)]
struct DrawnNode<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    node_type: &'a str,
    x: i32,
    y: i32,
    width: i32,
    height: i32,
    /// The node whose box contains this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DrawnEdge<'a> {
    from: &'a str,
    to: &'a str,
    /// `success`, `error` or `end`; `undo` for the line to a node that undoes another.
    on: &'static str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    goes_back: bool,
    points: Vec<Point>,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<DrawnLabel>,
}

#[derive(Serialize)]
struct DrawnLabel {
    text: String,
    x: i32,
    y: i32,
}

pub(super) fn json(graph: &Graph, out: &mut String) -> std::fmt::Result {
    let picture = layout(graph);
    let id = |node: NodeIx| graph.node(node).id.as_str();
    let node = |area: &NodeBox| {
        let node = graph.node(area.node);
        // A node that undoes another is in the box with it.
        let (x, y) = area.corner;
        let owner = graph.body(node.body_of).owner.map(id);
        let (id, node_type) = (node.id.as_str(), &*node.node_type.name);
        DrawnNode { id, node_type, x, y, width: area.width, height: area.height, owner }
    };
    let nodes = picture.boxes.iter().map(node).collect();
    let edges = picture.lines.into_iter().map(|line| {
        let ((x, y), points) = (line.label, line.points);
        match line.kind {
            LineKind::Undo(from, to) => {
                DrawnEdge { from: id(from), to: id(to), on: "undo", goes_back: false, points, label: None }
            }
            LineKind::Edge(edge) => {
                let edge = graph.edge(edge);
                let on = match edge.on {
                    On::Success => "success",
                    On::Error => "error",
                    On::End => "end",
                };
                let label = label(edge).map(|text| DrawnLabel { text, x, y });
                DrawnEdge { from: id(edge.from), to: id(edge.to), on, goes_back: edge.goes_back, points, label }
            }
        }
    });
    let edges = edges.collect();
    let whole = Picture { name: &graph.name, width: picture.width, height: picture.height, nodes, edges };
    writeln!(out, "{}", serde_json::to_string(&whole).map_err(|_| std::fmt::Error)?)
}
