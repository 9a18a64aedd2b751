//! The places of all nodes and edges as JSON.

use std::{collections::BTreeSet, fmt::Write};

use serde::Serialize;

use super::label;
use crate::{
    graph::{BodyIx, Graph, Node, NodeIx, On},
    layout::{LineKind, NodeBox, Point, layout_folded},
};

/// The nodes whose bodies are left out of a picture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Fold {
    /// None: all bodies are shown.
    #[default]
    None,
    /// Those with these ids.
    Only(BTreeSet<String>),
    /// All but those with these ids.
    AllBut(BTreeSet<String>),
}

impl Fold {
    /// Returns whether the body of a node is left out.
    pub fn has(&self, node: &Node) -> bool {
        match self {
            Fold::None => false,
            Fold::Only(ids) => ids.contains(node.id.as_str()),
            Fold::AllBut(ids) => !ids.contains(node.id.as_str()),
        }
    }
}

#[derive(Serialize)]
struct Picture<'a, T> {
    name: &'a str,
    width: i32,
    height: i32,
    nodes: Vec<DrawnNode<'a, T>>,
    edges: Vec<DrawnEdge<'a>>,
}

/// A node. Its places are in pixels.
#[derive(Serialize)]
struct DrawnNode<'a, T> {
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
    /// True if the node has a body.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    body: bool,
    /// The number of nodes in its body that are left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    folded: Option<usize>,
    /// True if the node ends a race: it begins with the first edge that fires, and the others are cancelled.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    race: bool,
    /// The members that a caller adds to the node.
    #[serde(flatten)]
    more: Option<T>,
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

/// Returns the number of nodes in a body and in the bodies inside it.
fn size(graph: &Graph, body: BodyIx) -> usize {
    let nodes = &graph.body(body).nodes;
    nodes.iter().map(|node| 1 + graph.node(*node).body.map_or(0, |inner| size(graph, inner))).sum()
}

pub(super) fn json<T: Serialize>(
    graph: &Graph,
    fold: &Fold,
    about: impl Fn(Option<&str>, &str) -> Option<T>,
    out: &mut String,
) -> std::fmt::Result {
    let picture = layout_folded(graph, &|node| fold.has(node));
    let id = |node: NodeIx| graph.node(node).id.as_str();
    let node = |area: &NodeBox| {
        let node = graph.node(area.node);
        // A node that undoes another is in the box with it.
        let (x, y) = area.corner;
        let owner = graph.body(node.body_of).owner.map(id);
        let folded = node.body.filter(|_| fold.has(node)).map(|body| size(graph, body));
        let (id, node_type) = (node.id.as_str(), &*node.node_type.name);
        let (body, race) = (node.body.is_some(), !node.cancels.is_empty());
        let more = about(owner, id);
        DrawnNode { id, node_type, x, y, width: area.width, height: area.height, owner, body, folded, race, more }
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
