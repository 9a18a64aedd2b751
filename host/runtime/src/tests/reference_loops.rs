//! The naive reference for graphs whose cycles of edges loop.

use flowcell_flow::graph::{Join, On};

use super::{
    graphs::{Plan, Planned, PlannedBody},
    loops::{Loop, loops_of},
    reference::End,
};

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
}

/// Returns the end of every node in its last pass, true if a failure stays unhandled, and how often each node ran.
pub(super) fn run(body: &PlannedBody, max: u32) -> (Vec<End>, bool, Vec<u32>) {
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
        loops,
    };
    while naive.end_a_node() || naive.end_a_pass() {}
    (naive.ends.into_iter().map(Option::unwrap).collect(), naive.unhandled, naive.runs)
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
                Join::All if incoming.contains(&Some(false)) => false,
                _ if incoming.contains(&None) => continue,
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

    fn start(&mut self, node: usize) {
        self.runs[node] += 1;
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

    fn end(&mut self, node: usize, end: End) {
        self.ends[node] = Some(end);
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
