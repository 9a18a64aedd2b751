//! Which nodes lie on a common cycle, and which come before which.

/// Strongly connected components and what comes before each, as rows of bits: asking costs one look, and building it
/// one pass over the edges, however many expressions ask.
#[derive(Default)]
pub(crate) struct Ancestry {
    /// The component of every node.
    component: Vec<usize>,
    /// The nodes of every component; a component comes after all that lead to it.
    components: Vec<Vec<usize>>,
    /// Whether the nodes of a component lie on a cycle.
    cyclic: Vec<bool>,
    /// For every component, a bit for each node that comes before it.
    before: Vec<u64>,
    /// Words in a row of `before`.
    words: usize,
}

impl Ancestry {
    /// Works it out from the direct predecessors of every node.
    pub(crate) fn new(predecessors: &[Vec<usize>]) -> Ancestry {
        let count = predecessors.len();
        let (words, components) = (count.div_ceil(64), components(predecessors));
        let mut ancestry = Ancestry { component: vec![0; count], words, ..Ancestry::default() };
        for (index, nodes) in components.iter().enumerate() {
            nodes.iter().for_each(|node| ancestry.component[*node] = index);
        }
        ancestry.before = vec![0; components.len() * words];
        for (index, nodes) in components.iter().enumerate() {
            let cyclic = nodes.len() > 1 || predecessors[nodes[0]].contains(&nodes[0]);
            ancestry.cyclic.push(cyclic);
            nodes.iter().flat_map(|node| &predecessors[*node]).for_each(|before| ancestry.inherit(index, *before));
            if cyclic {
                nodes.iter().for_each(|node| ancestry.mark(index, *node));
            }
        }
        ancestry.components = components;
        ancestry
    }

    fn mark(&mut self, component: usize, node: usize) {
        self.before[component * self.words + node / 64] |= 1 << (node % 64);
    }

    /// What comes before a predecessor comes before the component too, and so does the predecessor.
    fn inherit(&mut self, component: usize, predecessor: usize) {
        self.mark(component, predecessor);
        let source = self.component[predecessor];
        if source == component {
            return;
        }
        // Components come after all that lead to them, so the source's row is above.
        let (above, below) = self.before.split_at_mut(component * self.words);
        let row = &above[source * self.words..][..self.words];
        below.iter_mut().zip(row).for_each(|(word, more)| *word |= more);
    }

    /// Whether edges lead from one node to another one.
    pub(crate) fn comes_before(&self, earlier: usize, later: usize) -> bool {
        let row = self.component[later] * self.words;
        earlier != later && self.before[row + earlier / 64] & (1 << (earlier % 64)) != 0
    }

    /// Whether a node lies on a cycle.
    pub(crate) fn on_cycle(&self, node: usize) -> bool {
        self.cyclic[self.component[node]]
    }

    /// The sets of nodes that lie on common cycles; single nodes too, all of them behind those that lead to them.
    pub(crate) fn components(&self) -> &[Vec<usize>] {
        &self.components
    }
}

/// The strongly connected components of the nodes (Tarjan's algorithm without recursion); a component comes after all
/// that are reached by following `next` from it, and its nodes are in ascending order.
pub(crate) fn components(next: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut search = Search {
        next,
        order: vec![0; next.len()],
        low: vec![0; next.len()],
        open: vec![false; next.len()],
        path: Vec::new(),
        stack: Vec::new(),
        visited: 0,
        found: Vec::new(),
    };
    for start in 0..next.len() {
        if search.order[start] == 0 {
            search.visit(start);
        }
    }
    search.found
}

struct Search<'a> {
    next: &'a [Vec<usize>],
    /// When a node was met, from 1; 0 is never.
    order: Vec<usize>,
    /// The earliest node that is known to be reached.
    low: Vec<usize>,
    open: Vec<bool>,
    /// Nodes whose component is not known yet.
    stack: Vec<usize>,
    /// The way to the current node, with how many of each node's edges were followed.
    path: Vec<(usize, usize)>,
    visited: usize,
    found: Vec<Vec<usize>>,
}

impl Search<'_> {
    fn visit(&mut self, start: usize) {
        self.enter(start);
        while let Some((node, followed)) = self.path.last_mut() {
            let node = *node;
            match self.next[node].get(*followed) {
                Some(next) => {
                    *followed += 1;
                    self.follow(node, *next);
                }
                None => self.leave(node),
            }
        }
    }

    fn enter(&mut self, node: usize) {
        self.visited += 1;
        self.order[node] = self.visited;
        self.low[node] = self.visited;
        self.open[node] = true;
        self.stack.push(node);
        self.path.push((node, 0));
    }

    fn follow(&mut self, node: usize, next: usize) {
        if self.order[next] == 0 {
            self.enter(next);
        } else if self.open[next] {
            self.low[node] = self.low[node].min(self.order[next]);
        }
    }

    fn leave(&mut self, node: usize) {
        self.path.pop();
        if let Some((before, _)) = self.path.last() {
            self.low[*before] = self.low[*before].min(self.low[node]);
        }
        if self.low[node] == self.order[node] {
            let at = self.stack.iter().rposition(|open| *open == node).unwrap_or_default();
            let mut component = self.stack.split_off(at);
            component.iter().for_each(|node| self.open[*node] = false);
            component.sort_unstable();
            self.found.push(component);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use proptest::prelude::*;

    use super::Ancestry;

    proptest! {
        /// The rows of bits say what following the edges says.
        #[test]
        fn agrees_with_following_every_edge(edges in prop::collection::vec((0..70usize, 0..70usize), 0..200)) {
            let mut predecessors = vec![Vec::new(); 70];
            edges.iter().for_each(|(from, to)| predecessors[*to].push(*from));
            let ancestry = Ancestry::new(&predecessors);
            for node in 0..70 {
                let (mut seen, mut open) = (vec![false; 70], predecessors[node].clone());
                while let Some(at) = open.pop() {
                    if !std::mem::replace(&mut seen[at], true) {
                        open.extend(&predecessors[at]);
                    }
                }
                prop_assert_eq!(ancestry.on_cycle(node), seen[node]);
                for other in (0..70).filter(|other| *other != node) {
                    prop_assert_eq!(ancestry.comes_before(other, node), seen[other]);
                }
            }
        }
    }

    #[test]
    fn a_long_chain_needs_no_stack() {
        let predecessors: Vec<_> = (0..10_000usize).map(|node| node.checked_sub(1).into_iter().collect()).collect();
        assert!(Ancestry::new(&predecessors).comes_before(0, 9_999));
    }
}
