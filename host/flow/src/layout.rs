//! Places the nodes and edges of a graph on a plane.
//!
//! Edges lead down, except those that go back. No two boxes overlap, and no line goes through a box. The same graph always
//! gives the same picture.
//!
//! | module | contents |
//! |---|---|
//! | [`layered`] | boxes in rows: ranks, order, columns and lines |

mod layered;

use crate::graph::{BodyIx, EdgeIx, Graph, Node, NodeIx, On};
use layered::{Link, Placement, Shape, place};

/// Height of the box of a node without a body, in pixels. It is also the height of the head of a box with one.
pub(crate) const BOX_HEIGHT: i32 = 44;
/// Minimum and maximum width of the box of a node without a body, in pixels.
const BOX_WIDTHS: [i32; 2] = [120, 320];
/// Distance between the content of a box, or of the picture, and its border.
const PADDING: f64 = 20.0;
/// Distance between a node and the node that undoes it.
const UNDO_GAP: f64 = 56.0;

/// A point: its distances from the left edge and from the top, in pixels.
pub type Point = (i32, i32);

/// The picture of a graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Width in pixels.
    pub width: i32,
    /// Height in pixels.
    pub height: i32,
    /// The boxes of the nodes. A box with a body precedes the boxes in it.
    pub boxes: Vec<NodeBox>,
    /// The lines between them.
    pub lines: Vec<Line>,
}

/// The box of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeBox {
    /// The node.
    pub node: NodeIx,
    /// The upper left corner.
    pub corner: Point,
    /// Width in pixels.
    pub width: i32,
    /// Height in pixels.
    pub height: i32,
}

/// A line between two boxes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The meaning of the line.
    pub kind: LineKind,
    /// The points from its beginning to its end. Where two neighbours have different distances from the left and from the
    /// top, the line may be a curve between them.
    pub points: Vec<Point>,
    /// The place for a label.
    pub label: Point,
}

/// The meaning of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineKind {
    /// An edge.
    Edge(EdgeIx),
    /// From a node to the node that undoes it.
    Undo(NodeIx, NodeIx),
}

/// Places all nodes of a graph. The box of a node with a body contains this body.
pub fn layout(graph: &Graph) -> Layout {
    layout_folded(graph, &|_| false)
}

/// Places the nodes of a graph, as [`layout`]. The body of a node for which `is_folded` returns true is left out.
pub fn layout_folded(graph: &Graph, is_folded: &dyn Fn(&Node) -> bool) -> Layout {
    let block = Plan { graph, is_folded }.body(BodyIx::ROOT);
    let round = |length: f64| length.round() as i32;
    let point = |(x, y): (f64, f64)| (round(x + PADDING), round(y + PADDING));
    let boxes = block.boxes.into_iter().map(|area| {
        let ((x, y), end) = (point(area.corner), (area.corner.0 + area.width, area.corner.1 + area.height));
        let end = point(end);
        NodeBox { node: area.node, corner: (x, y), width: end.0 - x, height: end.1 - y }
    });
    let lines = block.lines.into_iter().map(|(kind, points, label)| {
        let mut points: Vec<Point> = points.into_iter().map(point).collect();
        points.dedup();
        Line { kind, points, label: point(label) }
    });
    Layout {
        boxes: boxes.collect(),
        lines: lines.collect(),
        width: round(block.width + 2.0 * PADDING),
        height: round(block.height + 2.0 * PADDING),
    }
}

/// A line before it is rounded: its meaning, its points and the place for a label.
type LooseLine = (LineKind, Vec<(f64, f64)>, (f64, f64));

/// A box before it is rounded.
struct Area {
    node: NodeIx,
    corner: (f64, f64),
    width: f64,
    height: f64,
}

/// A part of the picture, with its own upper left corner as the origin.
#[derive(Default)]
struct Block {
    width: f64,
    height: f64,
    boxes: Vec<Area>,
    lines: Vec<LooseLine>,
    /// Distance between the left edge and the middle of the first box.
    port: f64,
}

impl Block {
    /// Takes up another block at a place.
    fn add(&mut self, block: Block, (x, y): (f64, f64)) {
        let moved = |(left, top): (f64, f64)| (left + x, top + y);
        self.boxes.extend(block.boxes.into_iter().map(|area| Area { corner: moved(area.corner), ..area }));
        for (kind, points, label) in block.lines {
            self.lines.push((kind, points.into_iter().map(moved).collect(), moved(label)));
        }
    }
}

struct Plan<'a> {
    graph: &'a Graph,
    is_folded: &'a dyn Fn(&Node) -> bool,
}

impl Plan<'_> {
    fn body(&self, body: BodyIx) -> Block {
        let body = self.graph.body(body);
        let blocks: Vec<Block> = body.nodes.iter().map(|node| self.node_with_undo(*node)).collect();
        let shape = |block: &Block| Shape { width: block.width, height: block.height, port: block.port };
        let shapes: Vec<Shape> = blocks.iter().map(shape).collect();
        let links: Vec<Link> = body.edges.iter().map(|edge| self.link(*edge)).collect();
        let Placement { corners, routes, width, height } = place(&shapes, &links);
        let mut whole = Block { width, height, ..Block::default() };
        blocks.into_iter().zip(corners).for_each(|(block, corner)| whole.add(block, corner));
        let lines = body.edges.iter().zip(routes);
        whole.lines.extend(lines.map(|(edge, route)| (LineKind::Edge(*edge), route.points, route.label)));
        whole
    }

    fn link(&self, edge: EdgeIx) -> Link {
        let edge = self.graph.edge(edge);
        let slot = |node: NodeIx| self.graph.node(node).slot as usize;
        let style = match edge.on {
            On::Success => 0,
            On::Error => 1,
            On::End => 2,
        };
        Link { from: slot(edge.from), to: slot(edge.to), goes_back: edge.goes_back, style }
    }

    /// Returns a node, and the node that undoes it at its right.
    fn node_with_undo(&self, node: NodeIx) -> Block {
        let mut block = self.node(node);
        if let Some(undo) = self.graph.node(node).undo {
            let (beside, right) = (self.node(undo), block.width);
            let (x, y) = (right + UNDO_GAP, f64::from(BOX_HEIGHT) / 2.0);
            block.width = x + beside.width;
            block.height = block.height.max(beside.height);
            block.add(beside, (x, 0.0));
            block.lines.push((LineKind::Undo(node, undo), vec![(right, y), (x, y)], (right + UNDO_GAP / 2.0, y - 5.0)));
        }
        block
    }

    /// Returns the box of a node with its body.
    fn node(&self, ix: NodeIx) -> Block {
        let (node, head) = (self.graph.node(ix), f64::from(BOX_HEIGHT));
        let inner = node.body.filter(|_| !(self.is_folded)(node)).map(|body| self.body(body));
        let mut width = f64::from(own_width(node));
        let mut height = head;
        if let Some(inner) = &inner {
            width = width.max(inner.width + 2.0 * PADDING);
            height = head + inner.height + PADDING;
        }
        let mut block = Block { width, height, port: width / 2.0, ..Block::default() };
        block.boxes.push(Area { node: ix, corner: (0.0, 0.0), width, height });
        if let Some(inner) = inner {
            let left = (width - inner.width) / 2.0;
            block.add(inner, (left, head));
        }
        block
    }
}

/// Returns the width of a box with the texts of a node.
fn own_width(node: &Node) -> i32 {
    let width = |text: &str, each: i32| text.chars().map(|sign| if sign.is_ascii() { each } else { 14 }).sum::<i32>();
    let text = width(node.id.as_str(), 8).max(width(&node.node_type.name, 7));
    (text + 24).clamp(BOX_WIDTHS[0], BOX_WIDTHS[1])
}
