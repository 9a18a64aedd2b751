//! Finds the cycles of planned graphs, without the checker of flows.

use flowcell_flow::graph::{Cycle, CycleIx, EdgeIx, Graph, NodeIx, Outcome, PassRead, Reference, Source};

/// A cycle with one entry.
#[derive(Clone, Debug)]
pub(super) struct Loop {
    pub(super) parent: Option<usize>,
    pub(super) entry: usize,
    pub(super) nodes: Vec<usize>,
    pub(super) back: Vec<usize>,
}

/// Returns the cycles of a graph with these edges, an outer one before those inside it. `None`: a cycle has several
/// entries.
pub(super) fn loops_of(count: usize, edges: &[(usize, usize)]) -> Option<Vec<Loop>> {
    let mut found = Vec::new();
    let all: Vec<_> = (0..count).collect();
    find(&all, None, edges, &mut found).then_some(found)
}

/// Finds the cycles among some nodes. Returns false if one has several entries.
fn find(within: &[usize], parent: Option<usize>, edges: &[(usize, usize)], found: &mut Vec<Loop>) -> bool {
    let mut seen = vec![];
    for node in within {
        let ring: Vec<_> = within
            .iter()
            .copied()
            .filter(|other| reaches(within, edges, *node, *other) && reaches(within, edges, *other, *node))
            .collect();
        if ring.is_empty() || seen.contains(node) {
            continue;
        }
        seen.extend(&ring);
        let is_entered = |node: &usize| edges.iter().any(|(from, to)| to == node && !ring.contains(from));
        let entries: Vec<_> = ring.iter().copied().filter(is_entered).collect();
        let entry = match entries.as_slice() {
            [] => ring[0],
            [entry] => *entry,
            _ => return false,
        };
        let is_back = |edge: &usize| edges[*edge].1 == entry && ring.contains(&edges[*edge].0);
        let back = (0..edges.len()).filter(is_back).collect();
        let rest: Vec<_> = ring.iter().copied().filter(|node| *node != entry).collect();
        let index = found.len();
        found.push(Loop { parent, entry, nodes: ring, back });
        if !find(&rest, Some(index), edges, found) {
            return false;
        }
    }
    true
}

/// Returns true if a path of at least one edge among some nodes leads from one of them to another.
fn reaches(within: &[usize], edges: &[(usize, usize)], from: usize, to: usize) -> bool {
    let (mut seen, mut open) = (vec![], vec![from]);
    while let Some(at) = open.pop() {
        for (_, next) in edges.iter().filter(|(source, next)| *source == at && within.contains(next)) {
            if *next == to {
                return true;
            }
            if !seen.contains(next) {
                seen.push(*next);
                open.push(*next);
            }
        }
    }
    false
}

/// Lets the cycles of a lowered graph loop.
pub(super) fn let_loop(graph: &mut Graph, max_passes: u32) {
    for body in 0..graph.bodies.len() {
        let shape = graph.bodies[body].clone();
        let slot = |node: NodeIx| graph.node(node).slot as usize;
        let edges: Vec<_> =
            shape.edges.iter().map(|edge| (slot(graph.edge(*edge).from), slot(graph.edge(*edge).to))).collect();
        let loops = loops_of(shape.nodes.len(), &edges).expect("a cycle has several entries");
        let first = graph.cycles.len();
        let ix = |index: usize| CycleIx((first + index) as u32);
        for (index, found) in loops.iter().enumerate() {
            let edge = |edge: &usize| shape.edges[*edge];
            let from_here = |at: &usize| found.nodes.contains(&edges[*at].0);
            let is_inner = |at: &usize| found.nodes.contains(&edges[*at].1);
            let of = |wanted: bool| -> Vec<EdgeIx> {
                (0..edges.len()).filter(|at| from_here(at) && is_inner(at) == wanted).map(|at| edge(&at)).collect()
            };
            let is_inside = |inner: &usize| *inner > index && found.nodes.contains(&loops[*inner].entry);
            let inside: Vec<_> = (0..loops.len()).filter(is_inside).collect();
            let is_direct = |node: &&usize| !inside.iter().any(|inner| loops[*inner].nodes.contains(node));
            let direct = inside.iter().filter(|inner| loops[**inner].parent == Some(index)).count();
            graph.cycles.push(Cycle {
                parent: found.parent.map(ix),
                slot: index as u32,
                entry: shape.nodes[found.entry],
                nodes: found.nodes.iter().map(|node| shape.nodes[*node]).collect(),
                members: (found.nodes.iter().filter(is_direct).count() + direct) as u32,
                inside: inside.into_iter().map(ix).collect(),
                back: found.back.iter().map(edge).collect(),
                inner: of(true),
                leaving: of(false),
                max_passes,
            });
            // An inner cycle comes later.
            for node in &found.nodes {
                graph.nodes[shape.nodes[*node].0 as usize].cycle = Some(ix(index));
            }
            for back in &found.back {
                graph.edges[shape.edges[*back].0 as usize].goes_back = true;
            }
        }
        for (at, (from, to)) in edges.iter().enumerate() {
            let is_left = |found: &Loop| found.nodes.contains(from) && !found.nodes.contains(to);
            graph.edges[shape.edges[at].0 as usize].leaves = loops.iter().position(is_left).map(ix);
        }
        let is_back = |at: usize| loops.iter().any(|found| found.back.contains(&at));
        let forward: Vec<_> = (0..edges.len()).filter(|at| !is_back(*at)).map(|at| edges[at]).collect();
        let all: Vec<_> = (0..shape.nodes.len()).collect();
        let leads = |from: usize, to: usize| from == to || reaches(&all, &forward, from, to);
        let left = |node: usize, reader: usize| {
            loops.iter().find(|found| found.nodes.contains(&node) && !found.nodes.contains(&reader))
        };
        let ways = |node: usize, reader: usize| -> Option<Vec<EdgeIx>> {
            let found = left(node, reader)?;
            let is_way = |at: &usize| {
                let (from, to) = edges[*at];
                found.nodes.contains(&from)
                    && !found.nodes.contains(&to)
                    && !is_back(*at)
                    && leads(node, from)
                    && leads(to, reader)
            };
            Some((0..edges.len()).filter(is_way).map(|at| shape.edges[at]).collect())
        };
        for reader in 0..shape.nodes.len() {
            for node in (0..shape.nodes.len()).filter(|node| *node != reader && leads(*node, reader)) {
                let pass = match ways(node, reader) {
                    Some(edges) => PassRead::Left(edges),
                    None => PassRead::Current,
                };
                if let PassRead::Left(edges) = &pass {
                    graph.views.insert((shape.nodes[reader], shape.nodes[node]), edges.clone());
                }
                let source = Source { node: shape.nodes[node], pass };
                graph.nodes[shape.nodes[reader].0 as usize].input.references.push(Reference::Node(source));
            }
        }
        let leads_on = |edge: &EdgeIx| !graph.edge(*edge).goes_back;
        let is_start = |node: &&NodeIx| !graph.node(**node).incoming.iter().any(leads_on);
        let is_sink = |node: &&NodeIx| !graph.node(**node).outgoing.iter().any(leads_on);
        let starts = shape.nodes.iter().filter(is_start).copied().collect();
        let sinks = shape.nodes.iter().filter(is_sink).copied().collect();
        let body = &mut graph.bodies[body];
        (body.starts, body.outcome) = (starts, Outcome::Sinks(sinks));
        body.cycles = (0..loops.len()).map(ix).collect();
    }
}
