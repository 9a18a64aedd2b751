//! The picture of a graph as SVG, in light and dark colours.

use std::fmt::Write;

use super::label;
use crate::{
    graph::{Graph, On},
    layout::{BOX_HEIGHT, Line, LineKind, NodeBox, Point, layout},
};

/// The colours of the picture, for light and dark surroundings, and the look of its parts.
const STYLE: &str = "
:root{--back:#fff;--box:#fff;--frame:#f6f8fa;--line:#57606a;--text:#1f2328;--soft:#59636e;--error:#b42318}
@media (prefers-color-scheme:dark){:root{--back:#0d1117;--box:#161b22;--frame:#10161d;--line:#9198a1;--text:#f0f6fc;--soft:#9198a1;--error:#ff8b80}}
.back{fill:var(--back)}
.box{fill:var(--box);stroke:var(--line)}
.frame{fill:var(--frame);stroke:var(--line);stroke-dasharray:4 3}
.line{fill:none;stroke:var(--line)}
.error{stroke:var(--error);stroke-dasharray:6 4}
.end{stroke-dasharray:2 3}
.again{stroke-width:1.6}
.undo{stroke-dasharray:1 4;stroke-linecap:round}
.tip{fill:var(--line)}
.id{font-weight:600;fill:var(--text)}
.type,.label{fill:var(--soft);font-size:11px}
.halo{fill:none;stroke:var(--back);stroke-width:4px;stroke-linejoin:round;font-size:11px}
";

/// Draws all nodes. The body of a node is inside the box of the node.
pub(super) fn svg(graph: &Graph, out: &mut String) -> std::fmt::Result {
    let picture = layout(graph);
    let (width, height) = (picture.width, picture.height);
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         role=\"img\" aria-label=\"the flow {}\" font-family=\"system-ui, sans-serif\" font-size=\"13\">",
        escaped(&graph.name)
    )?;
    writeln!(out, "<style>{STYLE}</style>")?;
    writeln!(
        out,
        "<defs><marker id=\"tip\" markerWidth=\"8\" markerHeight=\"8\" refX=\"7\" refY=\"4\" orient=\"auto\" \
         markerUnits=\"userSpaceOnUse\"><path class=\"tip\" d=\"M0,0 L8,4 L0,8 z\"/></marker></defs>"
    )?;
    writeln!(out, "<rect class=\"back\" width=\"{width}\" height=\"{height}\"/>")?;
    // A box hides what is behind it, so the lines in a body follow the box of its owner.
    picture.boxes.iter().try_for_each(|each| write_box(graph, each, out))?;
    picture.lines.iter().try_for_each(|line| write_line(graph, line, out))?;
    picture.lines.iter().try_for_each(|line| write_label(graph, line, out))?;
    writeln!(out, "</svg>")
}

fn write_box(graph: &Graph, area: &NodeBox, out: &mut String) -> std::fmt::Result {
    let node = graph.node(area.node);
    let NodeBox { corner: (x, y), width, height, .. } = area;
    let class = if node.body.is_some() { "box frame" } else { "box" };
    let (id, kind) = (escaped(node.id.as_str()), escaped(&node.node_type.name));
    writeln!(out, "<g><title>{id}: {kind}</title>")?;
    writeln!(out, "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>")?;
    let middle = x + width / 2;
    let shown = |text: &str, each: i32| escaped(&fitting(text, ((width - 16) / each) as usize));
    for (class, text, line) in [("id", shown(node.id.as_str(), 8), 18), ("type", shown(&node.node_type.name, 6), 35)] {
        let line = y + line * BOX_HEIGHT / 44;
        writeln!(out, "<text class=\"{class}\" x=\"{middle}\" y=\"{line}\" text-anchor=\"middle\">{text}</text>")?;
    }
    writeln!(out, "</g>")
}

fn write_line(graph: &Graph, line: &Line, out: &mut String) -> std::fmt::Result {
    let class = match line.kind {
        LineKind::Undo(..) => " undo",
        LineKind::Edge(edge) => match (graph.edge(edge).on, graph.edge(edge).goes_back) {
            (On::Error, _) => " error",
            (On::End, _) => " end",
            (On::Success, true) => " again",
            (On::Success, false) => "",
        },
    };
    writeln!(out, "<path class=\"line{class}\" d=\"{}\" marker-end=\"url(#tip)\"/>", path(&line.points))
}

/// Returns the path through some points: straight lines, and between two columns a curve that begins and ends upright.
fn path(points: &[Point]) -> String {
    let mut path = String::new();
    let mut last: Option<Point> = None;
    for (x, y) in points {
        // Writing to a string never fails.
        let _ = match last {
            None => write!(path, "M{x},{y}"),
            Some((left, top)) if left == *x || top == *y => write!(path, " L{x},{y}"),
            Some((left, top)) => {
                let middle = (top + y) / 2;
                write!(path, " C{left},{middle} {x},{middle} {x},{y}")
            }
        };
        last = Some((*x, *y));
    }
    path
}

fn write_label(graph: &Graph, line: &Line, out: &mut String) -> std::fmt::Result {
    let text = match line.kind {
        LineKind::Undo(..) => Some("undo".to_owned()),
        LineKind::Edge(edge) => label(graph.edge(edge)),
    };
    let Some(text) = text else { return Ok(()) };
    let ((x, y), anchor) = match line.kind {
        LineKind::Undo(..) => (line.label, " text-anchor=\"middle\""),
        LineKind::Edge(_) => (line.label, ""),
    };
    // The halo keeps the label apart from a line behind it.
    ["halo", "label"].iter().try_for_each(|class| {
        writeln!(out, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\"{anchor}>{}</text>", escaped(&text))
    })
}

/// Returns a text with at most this many characters. A longer one ends in `…`; the title of its box has all of it.
fn fitting(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for sign in text.chars() {
        match sign {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '"' => safe.push_str("&quot;"),
            _ => safe.push(sign),
        }
    }
    safe
}
