//! The places of nodes and edges in a picture.

use std::fmt::Write as _;

use flowcell_contract::{Catalog, Digest, Manifest};
use flowcell_flow::{
    Graph, NoContext, Source,
    draw::{Fold, places},
    graph::{BodyIx, NodeIx},
    layout::{Layout, LineKind, NodeBox, Point, layout, layout_folded},
};
use proptest::prelude::*;

fn load(text: &str) -> Graph {
    let mut catalog = Catalog::default();
    catalog.add(Manifest::parse(include_str!("catalog.yaml")).unwrap(), &Digest("00".into()));
    let source = Source { name: "flow.yaml".into(), text: text.to_owned() };
    let checked = flowcell_flow::load(&source, &catalog, &NoContext);
    checked.graph.unwrap_or_else(|| panic!("{text}\n{:?}", checked.diagnostics))
}

fn ends(area: &NodeBox) -> (Point, Point) {
    (area.corner, (area.corner.0 + area.width, area.corner.1 + area.height))
}

/// Returns true if `inner` is inside of `outer`, and does not touch its border.
fn is_inside(inner: &NodeBox, outer: &NodeBox) -> bool {
    let ((inner, end), (outer, outer_end)) = (ends(inner), ends(outer));
    outer.0 < inner.0 && outer.1 < inner.1 && end.0 < outer_end.0 && end.1 < outer_end.1
}

fn are_apart(a: &NodeBox, b: &NodeBox) -> bool {
    let ((a, a_end), (b, b_end)) = (ends(a), ends(b));
    a_end.0 < b.0 || b_end.0 < a.0 || a_end.1 < b.1 || b_end.1 < a.1
}

/// Returns true if a part of a line may go through a box. A curve stays within the rectangle of its ends.
fn goes_through(from: Point, to: Point, area: &NodeBox) -> bool {
    let (corner, end) = ends(area);
    let (left, right) = (from.0.min(to.0), from.0.max(to.0));
    let (top, bottom) = (from.1.min(to.1), from.1.max(to.1));
    left < end.0 && right > corner.0 && top < end.1 && bottom > corner.1
}

/// Checks what holds for every picture.
fn check(graph: &Graph, picture: &Layout) {
    let whole = NodeBox { node: NodeIx(0), corner: (0, 0), width: picture.width, height: picture.height };
    let owners = |node: NodeIx| {
        let owner = |node: &NodeIx| graph.body(graph.node(*node).body_of).owner;
        std::iter::successors(owner(&node), owner).collect::<Vec<_>>()
    };
    for area in &picture.boxes {
        assert!(is_inside(area, &whole), "{area:?} is not in the picture");
        for other in picture.boxes.iter().filter(|other| other.node != area.node) {
            let is_owner = owners(area.node).contains(&other.node);
            let is_owned = owners(other.node).contains(&area.node);
            match (is_owner, is_owned) {
                (true, _) => assert!(is_inside(area, other), "{area:?} is not in its owner {other:?}"),
                (_, true) => {}
                _ => assert!(are_apart(area, other), "{area:?} overlaps {other:?}"),
            }
        }
    }
    for line in &picture.lines {
        let (from, to) = match line.kind {
            LineKind::Edge(edge) => (graph.edge(edge).from, graph.edge(edge).to),
            LineKind::Undo(from, to) => (from, to),
        };
        let around = owners(from);
        for pair in line.points.windows(2) {
            for area in picture.boxes.iter().filter(|area| !around.contains(&area.node)) {
                assert!(!goes_through(pair[0], pair[1], area), "{line:?} goes through {area:?}");
            }
        }
        for (x, y) in &line.points {
            assert!((0..=picture.width).contains(x) && (0..=picture.height).contains(y), "{line:?} leaves the picture");
        }
        if let LineKind::Edge(edge) = line.kind {
            let (first, last) = (line.points[0], line.points[line.points.len() - 1]);
            assert_eq!(graph.edge(edge).goes_back, last.1 <= first.1, "{line:?} leads down if it does not go back");
            let find = |node: NodeIx| picture.boxes.iter().find(|area| area.node == node).unwrap();
            let ((start, start_end), (end, end_end)) = (ends(find(from)), ends(find(to)));
            assert!(first.1 == start_end.1 && start.0 < first.0 && first.0 < start_end.0, "{line:?} begins elsewhere");
            assert!(last.1 == end.1 && end.0 < last.0 && last.0 < end_end.0, "{line:?} ends elsewhere");
        }
    }
    let drawn = |body: BodyIx| {
        let body = graph.body(body);
        body.nodes.len() + body.nodes.iter().filter(|node| graph.node(**node).undo.is_some()).count()
    };
    assert_eq!(picture.boxes.len(), (0..graph.bodies.len()).map(|body| drawn(BodyIx(body as u32))).sum::<usize>());
    assert_eq!(picture.lines.len(), graph.edges.len() + graph.nodes.iter().filter(|node| node.undo.is_some()).count());
}

/// A scope of a random flow: the length of the id of each node, whether it has an undo, and its body; and the edges, each
/// from a lower to a higher node, unless it goes back.
#[derive(Clone, Debug)]
struct Scope {
    nodes: Vec<(usize, bool, Option<Scope>)>,
    edges: Vec<(usize, usize, usize)>,
    back: Option<(usize, usize)>,
}

fn scope(depth: u32) -> BoxedStrategy<Scope> {
    let body = match depth {
        0 => Just(None).boxed(),
        _ => prop_oneof![6 => Just(None), 1 => scope(depth - 1).prop_map(Some)].boxed(),
    };
    let nodes = proptest::collection::vec((0..60_usize, proptest::bool::weighted(0.1), body), 1..14);
    let edges = proptest::collection::vec((0..14_usize, 0..14_usize, 0..3_usize), 0..24);
    (nodes, edges, proptest::option::of((0..14_usize, 0..14_usize)))
        .prop_map(|(nodes, edges, back)| Scope { nodes, edges, back })
        .boxed()
}

fn write(scope: &Scope, prefix: &str, indent: &str, out: &mut String) {
    let count = scope.nodes.len();
    writeln!(out, "{indent}nodes:").unwrap();
    for (at, (length, undo, body)) in scope.nodes.iter().enumerate() {
        let (id, end) = (format!("{prefix}{at}"), "x".repeat((*length).min(50)));
        let kind = if body.is_some() { "test.each, input: { list: [] }" } else { "test.noop" };
        // A node on a cycle has no undo.
        let undo = if *undo && scope.back.is_none() { format!(", undo: {id}u{end}") } else { String::new() };
        match body {
            None => writeln!(out, "{indent}- {{ id: {id}{end}, type: {kind}{undo} }}").unwrap(),
            Some(body) => {
                writeln!(out, "{indent}- id: {id}{end}\n{indent}  type: test.each\n{indent}  input: {{ list: [] }}")
                    .unwrap();
                if !undo.is_empty() {
                    writeln!(out, "{indent}  undo: {id}u{end}").unwrap();
                }
                writeln!(out, "{indent}  body:").unwrap();
                write(body, &format!("{id}b"), &format!("{indent}    "), out);
            }
        }
        if !undo.is_empty() {
            writeln!(out, "{indent}- {{ id: {id}u{end}, type: test.noop }}").unwrap();
        }
    }
    let id = |at: usize| format!("{prefix}{at}{}", "x".repeat(scope.nodes[at].0.min(50)));
    writeln!(out, "{indent}edges:").unwrap();
    let mut edges = std::collections::BTreeMap::new();
    for (a, b, on) in &scope.edges {
        let (from, to) = ((a % count).min(b % count), (a % count).max(b % count));
        if from != to {
            edges.entry((from, to)).or_insert(["success", "error", "end"][*on]);
        }
    }
    // One cycle with one entry: a chain of neighbours, and an edge back to its first node.
    let back = scope.back.map(|(a, b)| ((a % count).min(b % count), (a % count).max(b % count)));
    if let Some((first, last)) = back {
        edges.retain(|(from, to), _| !(*to > first && *to <= last && *from < first));
        (first..last).for_each(|at| _ = edges.insert((at, at + 1), "success"));
    }
    for ((from, to), on) in &edges {
        writeln!(out, "{indent}- {{ from: {}, to: {}, on: {on} }}", id(*from), id(*to)).unwrap();
    }
    if let Some((first, last)) = back {
        writeln!(out, "{indent}- {{ from: {}, to: {}, when: 'now == 1' }}", id(last), id(first)).unwrap();
    }
    if edges.is_empty() && back.is_none() {
        let at = out.trim_end().len() - "edges:".len();
        out.truncate(at);
        writeln!(out, "edges: []").unwrap();
    }
}

proptest! {
    #![proptest_config(proptest::test_runner::Config { failure_persistence: None, cases: 200, ..Default::default() })]

    #[test]
    fn no_boxes_overlap_and_no_line_goes_through_a_box(scope in scope(2)) {
        let mut text = String::from("flow: { name: random }\n");
        write(&scope, "n", "", &mut text);
        let graph = load(&text);
        let picture = layout(&graph);
        check(&graph, &picture);
        prop_assert_eq!(&picture, &layout(&load(&text)), "the same text gives the same picture");
        // With all bodies folded, the picture is that of the outer scope alone.
        let folded = layout_folded(&graph, &|_| true);
        let outer: Vec<_> = picture.boxes.iter().filter(|area| graph.node(area.node).body_of == BodyIx::ROOT).collect();
        prop_assert_eq!(folded.boxes.len(), outer.len());
        for (at, area) in folded.boxes.iter().enumerate() {
            prop_assert_eq!(graph.node(area.node).body_of, BodyIx::ROOT);
            prop_assert!(folded.boxes[..at].iter().all(|other| are_apart(area, other)), "{:?} overlaps", area);
        }
    }
}

#[test]
fn a_folded_node_counts_the_nodes_inside_it() {
    let graph = load(
        "flow: { name: folds }\nnodes:\n- id: outer\n  type: test.each\n  input: { list: [] }\n  body:\n    nodes:\n    \
         - id: inner\n      type: test.each\n      input: { list: [] }\n      body:\n        nodes:\n        \
         - { id: deep, type: test.noop }\n        edges: []\n    edges: []\nedges: []\n",
    );
    let shown = |fold: &Fold| {
        let drawn: serde_json::Value = serde_json::from_str(&places(&graph, fold, None, |_, _| None::<()>)).unwrap();
        let nodes = drawn["nodes"].as_array().unwrap().iter();
        nodes
            .map(|node| format!("{} {} {}", node["id"], node["body"], node["folded"]).replace('"', ""))
            .collect::<Vec<_>>()
    };
    let ids = |id: &str| std::collections::BTreeSet::from([id.to_owned()]);
    assert_eq!(shown(&Fold::None), ["outer true null", "inner true null", "deep null null"]);
    assert_eq!(shown(&Fold::Only(ids("inner"))), ["outer true null", "inner true 1"]);
    assert_eq!(shown(&Fold::AllBut(ids("outer"))), ["outer true null", "inner true 1"]);
    assert_eq!(shown(&Fold::AllBut(ids("other"))), ["outer true 2"]);
}

fn noops(count: usize) -> String {
    (0..count).map(|at| format!("- {{ id: n{at}, type: test.noop }}\n")).collect()
}

/// Wide and deep graphs: the picture stays bounded, and lines with too many bends go around.
#[test]
fn hostile_graphs_have_a_picture() {
    let head = "flow: { name: hostile }\nnodes:\n";
    let chain = |count: usize| (1..count).map(|at| format!("- n{} -> n{at}\n", at - 1)).collect::<String>();
    let skips: String =
        (2..400).flat_map(|at| (0..at - 1).map(move |from| format!("- n{from} -> n{at}\n"))).take(40_000).collect();
    for (nodes, edges) in [
        (1, String::from("[]\n")),
        (2_000, String::from("[]\n")),
        (2_000, format!("\n{}", (1..2_000).map(|at| format!("- n0 -> n{at}\n")).collect::<String>())),
        (2_000, format!("\n{}", (1..2_000).map(|at| format!("- n{at} -> n0\n")).collect::<String>())),
        (2_000, format!("\n{}", chain(2_000))),
        (400, format!("\n{}{skips}", chain(400))),
        // A chain with an edge from its first node to each other one: short bends, which all lines share.
        (8_000, format!("\n{}{}", chain(8_000), (2..8_000).map(|at| format!("- n0 -> n{at}\n")).collect::<String>())),
    ] {
        let graph = load(&format!("{head}{}edges: {edges}", noops(nodes)));
        let picture = layout(&graph);
        assert!(picture.width < 20_000, "{} wide for {nodes} nodes", picture.width);
        let points: usize = picture.lines.iter().map(|line| line.points.len()).sum();
        assert!(points < 1_000_000, "{points} points");
        if edges.len() < 100_000 {
            check(&graph, &picture);
        }
    }
}

/// A switch with four branches that meet again: the branches stand side by side, and all lines are straight or short.
#[test]
fn a_small_flow_has_the_expected_picture() {
    let graph = load(
        "flow: { name: small }\nnodes:\n- { id: route, type: test.noop }\n- { id: a, type: test.noop }\n\
         - { id: b, type: test.noop }\n- { id: c, type: test.noop }\n- { id: met, type: test.noop }\n\
         edges:\n- route -> a -> met\n- route -> b -> met\n- route -> c -> met\n",
    );
    let picture = layout(&graph);
    let corner = |id: &str| {
        picture.boxes.iter().find(|area| graph.node(area.node).id.as_str() == id).map(|area| area.corner).unwrap()
    };
    let (route, a, b, c, met) = (corner("route"), corner("a"), corner("b"), corner("c"), corner("met"));
    assert_eq!((route.0, met.0), (b.0, b.0), "the first and the last node are above and below the middle branch");
    assert!(a.0 < b.0 && b.0 < c.0 && a.1 == b.1 && b.1 == c.1, "in the order of the file");
    assert!(route.1 < a.1 && a.1 < met.1);
    assert_eq!(b.0 - a.0, c.0 - b.0);
}

/// Returns a flow of 1,000 nodes with these edges.
fn thousand(edges: impl Iterator<Item = (usize, usize)>) -> Graph {
    let mut text = String::from("flow: { name: big }\nnodes:\n");
    (0..1_000).for_each(|node| writeln!(text, "  - {{ id: n{node}, type: test.noop }}").unwrap());
    text.push_str("edges:\n");
    edges.for_each(|(from, to)| writeln!(text, "  - n{from} -> n{to}").unwrap());
    load(&text)
}

/// Prints the times of two layouts: `cargo test -p flowcell-flow --release --test layout -- --ignored --nocapture`.
#[test]
#[ignore = "measures"]
fn times_of_layouts() {
    let layered = thousand((0..980).flat_map(|from| {
        let row = from / 20 * 20 + 20;
        [(from, from + 20), (from, row + (from + 1) % 20)]
    }));
    let mut state = 1_u64;
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % 1_000
    };
    let random: std::collections::BTreeSet<_> =
        std::iter::repeat_with(|| (draw(), draw())).filter(|(from, to)| from < to).take(1_500).collect();
    let random = thousand(random.into_iter());
    for (name, graph) in [("layered", &layered), ("random", &random)] {
        let mut times: Vec<_> = (0..21)
            .map(|_| {
                let since = std::time::Instant::now();
                std::hint::black_box(layout(graph));
                since.elapsed()
            })
            .collect();
        times.sort_unstable();
        println!("layout of 1,000 nodes, {name}: median {:?}, slowest {:?}", times[10], times[20]);
    }
}
