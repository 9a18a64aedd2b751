//! The places of all nodes and edges as JSON.

use std::{
    collections::{BTreeSet, HashSet},
    fmt::Write,
};

use serde::Serialize;

use super::label;
use crate::{
    graph::{BodyIx, Graph, Node, NodeIx, On},
    layout::{Line, LineKind, NodeBox, Point, layout_folded},
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

/// Number of nodes after which a part of a picture ends at the next row.
pub const PART_NODES: usize = 400;
/// Maximum number of edges in a part of a picture.
pub const PART_EDGES: usize = 800;

/// A part of a picture: the rows of nodes between two heights.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Part {
    /// The number of the part, from 0.
    number: usize,
    /// The number of parts.
    of: usize,
    /// The height at which it begins, in pixels.
    top: i32,
    /// The height at which it ends.
    bottom: i32,
    /// The number of nodes of the whole picture.
    nodes: usize,
    /// True if a node of the whole picture has a body.
    has_bodies: bool,
    /// The number of edges of the part's nodes that are left out.
    edges_left_out: usize,
}

impl Part {
    /// Returns a part of the boxes of a picture.
    fn new(number: usize, boxes: &[NodeBox], height: i32, graph: &Graph) -> Part {
        let mut tops: Vec<i32> = boxes.iter().map(|area| area.corner.1).collect();
        tops.sort_unstable();
        let (mut cuts, mut in_part) = (vec![0], 0);
        for (at, top) in tops.iter().enumerate() {
            if in_part >= PART_NODES && tops[at - 1] < *top {
                // Lines begin and end at boxes, so the space above a row belongs to it.
                cuts.push(top - 8);
                in_part = 0;
            }
            in_part += 1;
        }
        let number = number.min(cuts.len() - 1);
        let bottom = cuts.get(number + 1).copied().unwrap_or(height);
        let has_bodies = boxes.iter().any(|area| graph.node(area.node).body.is_some());
        let (of, top, nodes) = (cuts.len(), cuts[number], boxes.len());
        Part { number, of, top, bottom, nodes, has_bodies, edges_left_out: 0 }
    }

    /// Leaves only the boxes of the part, and the lines that begin or end at them.
    fn cut(&mut self, boxes: &mut Vec<NodeBox>, lines: &mut Vec<Line>, graph: &Graph) {
        boxes.retain(|area| area.corner.1 < self.bottom && area.corner.1 + area.height > self.top);
        let shown: HashSet<u32> = boxes.iter().map(|area| area.node.0).collect();
        lines.retain(|line| {
            let (from, to) = ends(line, graph);
            shown.contains(&from.0) || shown.contains(&to.0)
        });
        self.edges_left_out = lines.len().saturating_sub(PART_EDGES);
        lines.truncate(PART_EDGES);
    }
}

/// Returns the nodes at the ends of a line.
fn ends(line: &Line, graph: &Graph) -> (NodeIx, NodeIx) {
    match line.kind {
        LineKind::Undo(from, to) => (from, to),
        LineKind::Edge(edge) => (graph.edge(edge).from, graph.edge(edge).to),
    }
}

#[derive(Serialize)]
struct Picture<'a, T> {
    name: &'a str,
    width: i32,
    height: i32,
    nodes: Vec<DrawnNode<'a, T>>,
    edges: Vec<DrawnEdge<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<Part>,
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
    part: Option<usize>,
    about: impl Fn(Option<&str>, &str) -> Option<T>,
    out: &mut String,
) -> std::fmt::Result {
    let mut picture = layout_folded(graph, &|node| fold.has(node));
    let mut part = part.map(|number| Part::new(number, &picture.boxes, picture.height, graph));
    if let Some(part) = &mut part {
        part.cut(&mut picture.boxes, &mut picture.lines, graph);
    }
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
    let whole = Picture { name: &graph.name, width: picture.width, height: picture.height, nodes, edges, part };
    writeln!(out, "{}", serde_json::to_string(&whole).map_err(|_| std::fmt::Error)?)
}
