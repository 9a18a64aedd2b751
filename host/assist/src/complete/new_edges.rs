//! Checks new edges: whether the check of the flow accepts the cycles that they close, and the values that are read
//! along them.

use std::collections::HashSet;

use flowcell_contract::http_answer::RESPOND;

use crate::{
    flow::Flow,
    spots::{self, ReadOf},
};

/// Maximum number of nodes whose later nodes are looked up.
const MAX_READ: usize = 16;
/// Maximum number of nodes of a cycle whose passes are followed.
const MAX_INSIDE: usize = 1_000;

/// An edge that is completed.
#[derive(Clone, Copy, Default)]
pub(super) struct NewEdge {
    /// True if other edges between the same nodes may stand beside it.
    pub(super) is_special: bool,
    /// True if it may be left out although its source has succeeded.
    pub(super) is_conditional: bool,
    /// True if it fires after a failure only.
    pub(super) after_failure: bool,
    /// True if it has to lead back to the entry of a cycle.
    pub(super) goes_back: bool,
}

/// The cycles that new edges of a flow would close.
pub(super) struct NewCycles<'f, 'v> {
    flow: &'f Flow<'v>,
    reads: HashSet<ReadOf>,
}

impl<'f, 'v> NewCycles<'f, 'v> {
    pub(super) fn new(flow: &'f Flow<'v>) -> NewCycles<'f, 'v> {
        NewCycles { flow, reads: spots::reads(flow) }
    }

    /// Tells for each node whether it would run before a node whose output it needs, if an edge led from it to that node.
    pub(super) fn too_late_for(&self, node: usize) -> Vec<bool> {
        let after = self.flow.after(node);
        let scope = self.flow.nodes[node].owner;
        let readers =
            self.reads.iter().filter(|read| read.node == node).filter_map(|read| self.lifted(read.by?, scope));
        let readers: Vec<_> = readers.filter(|reader| *reader != node && !after[*reader]).collect();
        self.flow.reached_from(&readers)
    }

    /// Returns the nodes whose output a node needs, or one before it, although they do not run before that one.
    pub(super) fn read_before(&self, node: usize) -> Vec<usize> {
        let before = self.flow.reached(node, true);
        let scope = self.flow.nodes[node].owner;
        let needed = |read: &ReadOf| {
            let by = self.lifted(read.by?, scope)?;
            (before[by] && by != read.node).then_some((read.node, by))
        };
        let mut found: Vec<(usize, usize)> = self.reads.iter().filter_map(needed).collect();
        found.sort_unstable();
        let mut read: Vec<_> = found.iter().map(|(node, _)| *node).collect();
        read.dedup();
        read.truncate(MAX_READ);
        read.retain(|node| {
            let after = self.flow.after(*node);
            found.iter().any(|(read, by)| read == node && !after[*by])
        });
        read
    }

    /// Returns the node of a scope that is a node, or in whose body it stands.
    fn lifted(&self, node: usize, scope: Option<usize>) -> Option<usize> {
        let owners = self.flow.owners_from(self.flow.nodes[node].owner);
        std::iter::once(node).chain(owners).find(|around| self.flow.nodes[*around].owner == scope)
    }

    /// Returns true if the check accepts the cycle that a new edge closes, or if it closes none: the cycle is entered at
    /// one node only, some edge of it has a condition, and the nodes that others read run in each pass.
    pub(super) fn fits(&self, (from, to): (usize, usize), new: NewEdge) -> bool {
        let flow = self.flow;
        let (after, before) = (flow.reached(to, false), flow.reached(from, true));
        if !after[from] {
            return true;
        }
        let is_conditional = new.is_conditional || flow.nodes[from].value.member("when").is_some();
        if !is_conditional && flow.reached_in_any_case(to)[from] {
            return false;
        }
        let scope = flow.nodes[to].owner;
        let inside: Vec<usize> = (0..flow.nodes.len()).filter(|node| after[*node] && before[*node]).collect();
        let is_inside = |node: usize| after[node] && before[node];
        let is_entered = |node: &&usize| flow.incoming(**node).any(|edge| !is_inside(edge.from));
        let entries: Vec<_> = inside.iter().filter(is_entered).collect();
        let (0 | 1, Some(entry)) = (entries.len(), entries.first().copied().or(inside.first())) else {
            return false;
        };
        let is_left = |node: &usize| flow.outgoing(*node).any(|edge| !is_inside(edge.to));
        let left: Vec<_> = inside.iter().copied().filter(is_left).collect();
        inside.len() > MAX_INSIDE
            || self.reads_inside(scope, &is_inside).chunk_by(|one, other| one.0 == other.0).take(MAX_READ).all(
                |reads| {
                    let run = self.run_in_pass(reads[0].0, (from, to), *entry, &is_inside);
                    reads.iter().all(|(_, by)| match by {
                        Some(by) => run.contains(by),
                        None => left.iter().all(|end| run.contains(end)),
                    })
                },
            )
    }

    /// Returns the nodes of a cycle whose output is read, with the node of the cycle that needs it; `None` if it is read
    /// outside.
    fn reads_inside(&self, scope: Option<usize>, is_inside: &impl Fn(usize) -> bool) -> Vec<(usize, Option<usize>)> {
        let inside = self.reads.iter().filter(|read| is_inside(read.node));
        let read = |read: &ReadOf| match read.by.and_then(|by| self.lifted(by, scope)).filter(|by| is_inside(*by)) {
            // A value of the pass before may be missing.
            Some(by) => (!read.is_guarded).then_some((read.node, Some(by))),
            None => Some((read.node, None)),
        };
        let mut found: Vec<_> = inside.filter_map(read).collect();
        found.sort_unstable();
        found
    }

    /// Returns a node of a cycle and the nodes that run after it in the same pass.
    fn run_in_pass(
        &self,
        node: usize,
        (from, to): (usize, usize),
        entry: usize,
        is_inside: &impl Fn(usize) -> bool,
    ) -> HashSet<usize> {
        let (mut found, mut next) = (HashSet::from([node]), vec![node]);
        while let Some(at) = next.pop() {
            let ends = self.flow.outgoing(at).map(|edge| edge.to).chain((at == from).then_some(to));
            let ends = ends.filter(|end| *end != entry && is_inside(*end));
            next.extend(ends.filter(|end| found.insert(*end)).collect::<Vec<_>>());
        }
        found
    }
}

/// The nodes of a flow that answer the post which started the run. Only the first answer of a run counts.
pub(super) struct Answers {
    answers: Vec<bool>,
    /// The nodes before an answer, and the answers.
    before: Vec<bool>,
    /// The nodes behind an answer that has not failed.
    behind: Vec<bool>,
}

impl Answers {
    pub(super) fn new(flow: &Flow<'_>) -> Answers {
        let is_answer = |node: usize| flow.nodes[node].kind.as_ref().is_some_and(|kind| *kind.name == *RESPOND);
        let found: Vec<_> = (0..flow.nodes.len()).filter(|node| is_answer(*node)).collect();
        let next = found.iter().flat_map(|node| flow.outgoing(*node)).filter(|edge| edge.after_success);
        let behind = flow.reached_from(&next.map(|edge| edge.to).collect::<Vec<_>>());
        let before = flow.reached_to(&found);
        Answers { answers: (0..flow.nodes.len()).map(is_answer).collect(), before, behind }
    }

    /// Returns true if a run could answer twice along a new edge.
    pub(super) fn are_two(&self, (from, to): (usize, usize), new: NewEdge) -> bool {
        self.before[to] && (self.behind[from] || (self.answers[from] && !new.after_failure))
    }
}
