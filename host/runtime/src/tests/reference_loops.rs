//! The naive reference for graphs whose cycles of edges loop.
//!
//! It follows the outputs along the edges: an edge that fires carries what its source has seen, and its target sees the
//! latest of what the edges to it carry.

use std::collections::BTreeMap;

use flowcell_flow::graph::{Join, On};

use super::{
    graphs::{Plan, Planned, PlannedBody},
    loops::{Loop, loops_of},
    reference::End,
};

/// The outputs of nodes that a node or an edge sees: their passes, and their ends in these passes.
type Sight = BTreeMap<usize, (Vec<u32>, End)>;

/// An output that a node has read: the reader, its address, the node that it has read, with its address, and its end.
pub(super) type Read = (usize, String, usize, String, End);

/// Recomputes everything until nothing changes.
struct Naive<'a> {
    body: &'a PlannedBody,
    max: u32,
    loops: Vec<Loop>,
    ends: Vec<Option<End>>,
    /// True for an edge that fired, false for one that did not.
    edges: Vec<Option<bool>>,
    /// The number of times that each node ran.
    runs: Vec<u32>,
    pass: Vec<u32>,
    over: Vec<bool>,
    unhandled: bool,
    /// What each edge that has fired carries.
    carried: Vec<Sight>,
    reads: Vec<Read>,
}

/// Returns the end of every node in its last pass, true if a failure stays unhandled, and how often each node ran.
pub(super) fn run(body: &PlannedBody, max: u32) -> (Vec<End>, bool, Vec<u32>) {
    let naive = end(body, max);
    (naive.ends.into_iter().map(Option::unwrap).collect(), naive.unhandled, naive.runs)
}

/// Returns what the nodes read that become ready. Their joins are settled ones.
pub(super) fn reads(body: &PlannedBody, max: u32) -> Vec<Read> {
    end(body, max).reads
}

fn end(body: &PlannedBody, max: u32) -> Naive<'_> {
    let edges: Vec<_> = body.edges.iter().map(|(from, to, _)| (*from, *to)).collect();
    let loops = loops_of(body.nodes.len(), &edges).unwrap();
    let count = body.nodes.len();
    let mut naive = Naive {
        body,
        max,
        ends: vec![None; count],
        edges: vec![None; edges.len()],
        runs: vec![0; count],
        pass: vec![0; loops.len()],
        over: vec![false; loops.len()],
        unhandled: false,
        carried: vec![Sight::new(); edges.len()],
        reads: Vec::new(),
        loops,
    };
    while naive.end_a_node() || naive.end_a_pass() {}
    naive
}

impl Naive<'_> {
    fn end_a_node(&mut self) -> bool {
        for node in 0..self.ends.len() {
            let is_back = |edge: usize| self.loops.iter().any(|found| found.back.contains(&edge));
            let to_here = |edge: &usize| self.body.edges[*edge].1 == node && !is_back(*edge);
            let incoming: Vec<_> = (0..self.edges.len()).filter(to_here).map(|edge| self.edges[edge]).collect();
            let fired = incoming.contains(&Some(true));
            let runs = match self.body.nodes[node].join {
                _ if self.ends[node].is_some() => continue,
                _ if incoming.is_empty() => true,
                Join::Any if fired => true,
                _ if incoming.contains(&None) => continue,
                Join::All => !incoming.contains(&Some(false)),
                _ => fired,
            };
            match runs {
                true => self.start(node),
                false => self.end(node, End::Skipped),
            }
            return true;
        }
        false
    }

    /// Returns the passes of a node's cycles, the outermost first.
    fn passes(&self, node: usize) -> Vec<u32> {
        let around = (0..self.loops.len()).filter(|index| self.loops[*index].nodes.contains(&node));
        around.map(|index| self.pass[index]).collect()
    }

    fn address(&self, node: usize, passes: &[u32]) -> String {
        let around = self.loops.iter().filter(|found| found.nodes.contains(&node));
        let around = around.zip(passes).map(|(found, pass)| format!("n{}[{pass}].", found.entry));
        format!("{}n{node}", around.collect::<String>())
    }

    /// Returns true if a path of edges that do not go back leads from a node to another one, or if they are the same.
    fn leads(&self, from: usize, to: usize) -> bool {
        let is_back = |edge: usize| self.loops.iter().any(|found| found.back.contains(&edge));
        let next = (0..self.edges.len()).filter(|edge| self.body.edges[*edge].0 == from && !is_back(*edge));
        from == to || next.into_iter().any(|edge| self.leads(self.body.edges[edge].1, to))
    }

    /// Returns what a node sees of the nodes before it.
    fn sight(&self, reader: usize) -> Sight {
        let before = (0..self.ends.len()).filter(|node| *node != reader && self.leads(*node, reader));
        before.map(|node| (node, self.seen(node, reader))).collect()
    }

    /// Returns what a reader sees of a node: what an edge carries that leaves the outermost cycle of the node that the reader
    /// is not on.
    fn seen(&self, node: usize, reader: usize) -> (Vec<u32>, End) {
        let now = || (self.passes(node), self.ends[node].unwrap());
        let is_left = |found: &&Loop| found.nodes.contains(&node) && !found.nodes.contains(&reader);
        let Some(left) = self.loops.iter().find(is_left) else { return now() };
        let is_way = |edge: &usize| {
            let (from, to, _) = self.body.edges[*edge];
            let leaves = left.nodes.contains(&from) && !left.nodes.contains(&to);
            let is_back = self.loops.iter().any(|found| found.back.contains(edge));
            leaves && !is_back && self.leads(node, from) && self.leads(to, reader)
        };
        let fired = (0..self.edges.len()).filter(|edge| self.edges[*edge] == Some(true)).filter(is_way);
        let carried = fired.map(|edge| self.carried[edge][&node].clone());
        carried.max_by(|one, other| one.0.cmp(&other.0)).unwrap_or_else(now)
    }

    fn start(&mut self, node: usize) {
        self.runs[node] += 1;
        let reader = self.address(node, &self.passes(node));
        for (read, (passes, end)) in if self.is_settled() { self.sight(node) } else { Sight::new() } {
            self.reads.push((node, reader.clone(), read, self.address(read, &passes), end));
        }
        let planned = &self.body.nodes[node];
        let body_fails = || planned.body.as_ref().is_some_and(|body| run(body, self.max).1);
        let fails = match planned.plan {
            Plan::Fail => true,
            Plan::FailPasses(passes) => self.runs[node] <= passes,
            Plan::Each { items, may_fail, .. } => items > may_fail && body_fails(),
            Plan::Scope(_) => body_fails(),
            Plan::Loop(count) => count > 0 && body_fails(),
            _ => false,
        };
        self.end(node, if fails { End::Failed } else { End::Succeeded });
    }

    /// Returns true if all joins are settled ones. Otherwise what a node sees may depend on timing.
    fn is_settled(&self) -> bool {
        self.body.nodes.iter().all(|planned| planned.join == Join::Settled)
    }

    fn end(&mut self, node: usize, end: End) {
        self.ends[node] = Some(end);
        let carries = end != End::Skipped && self.is_settled();
        let mut sight = if carries { self.sight(node) } else { Sight::new() };
        sight.insert(node, (self.passes(node), end));
        let Planned { continue_on_error, .. } = self.body.nodes[node];
        let mut handled = end != End::Failed || continue_on_error;
        for (edge, (from, to, on)) in self.body.edges.iter().enumerate() {
            let is_over = |(index, found): (usize, &Loop)| found.back.contains(&edge) && self.pass[index] >= self.max;
            if *from != node || self.edges[edge].is_some() || self.loops.iter().enumerate().any(is_over) {
                continue;
            }
            let fires = match on {
                On::Success => end == End::Succeeded || (end == End::Failed && continue_on_error),
                On::Error => end == End::Failed,
                On::End => end != End::Skipped,
            };
            let leaves = self.loops.iter().any(|found| found.nodes.contains(from) && !found.nodes.contains(to));
            if fires || !leaves {
                self.edges[edge] = Some(fires);
                self.carried[edge] = sight.clone();
            }
            handled |= fires && *on != On::Success;
        }
        self.unhandled |= !handled;
    }

    fn end_a_pass(&mut self) -> bool {
        for index in (0..self.loops.len()).rev() {
            let Loop { entry, nodes, back, .. } = self.loops[index].clone();
            let is_inside = |inner: &usize| *inner > index && nodes.contains(&self.loops[*inner].entry);
            let inside: Vec<_> = (0..self.loops.len()).filter(is_inside).collect();
            let is_done =
                nodes.iter().all(|node| self.ends[*node].is_some()) && inside.iter().all(|inner| self.over[*inner]);
            if self.over[index] || !is_done {
                continue;
            }
            let again = self.pass[index] < self.max && back.iter().any(|edge| self.edges[*edge] == Some(true));
            if !again {
                self.over[index] = true;
                self.settle_exits(index);
                return true;
            }
            self.pass[index] += 1;
            for inner in inside {
                (self.pass[inner], self.over[inner]) = (0, false);
            }
            nodes.iter().for_each(|node| self.ends[*node] = None);
            for (edge, (from, to, _)) in self.body.edges.iter().enumerate() {
                if nodes.contains(from) && nodes.contains(to) {
                    self.edges[edge] = None;
                }
            }
            match self.pass[index] < self.max {
                true => self.start(entry),
                false => self.end(entry, End::Failed),
            }
            return true;
        }
        false
    }

    /// Settles the edges that leave the cycle, and no cycle around it, and that have not fired.
    fn settle_exits(&mut self, index: usize) {
        for (edge, (from, to, _)) in self.body.edges.iter().enumerate() {
            let is_left = |found: &Loop| found.nodes.contains(from) && !found.nodes.contains(to);
            let is_back = self.loops.iter().any(|found| found.back.contains(&edge));
            if self.loops.iter().position(is_left) == Some(index) && !is_back {
                self.edges[edge].get_or_insert(false);
            }
        }
    }
}
