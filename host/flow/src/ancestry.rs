//! Finds the cycles of a graph and the ancestors of each node.

/// The strongly connected components of a graph, and the ancestors of each node. A bit set for each component
/// holds the ancestors of its nodes. So a lookup takes constant time. Construction visits each edge twice: to
/// find the components, and to merge the bit sets of its ends.
#[derive(Default)]
pub(crate) struct Ancestry {
    /// The index of each node's component in `components`.
    component: Vec<usize>,
    /// The nodes of each component. The components are in topological order: each follows all components from which
    /// edges lead to it.
    components: Vec<Vec<usize>>,
    /// True for each component whose nodes form a cycle, by the index of the component.
    cyclic: Vec<bool>,
    /// The ancestors of the nodes of each component: one bit set after the other, with one bit for each node of the
    /// graph.
    before: Vec<u64>,
    /// Number of 64-bit words of one bit set in `before`.
    words: usize,
}

impl Ancestry {
    /// Computes the ancestry from the direct predecessors of each node.
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

    /// Adds a predecessor of a node, and the ancestors of this predecessor, to the ancestors of the node's component.
    fn inherit(&mut self, component: usize, predecessor: usize) {
        self.mark(component, predecessor);
        let source = self.component[predecessor];
        if source == component {
            return;
        }
        // Components are in topological order, so the source's row is above.
        let (above, below) = self.before.split_at_mut(component * self.words);
        let row = &above[source * self.words..][..self.words];
        below.iter_mut().zip(row).for_each(|(word, more)| *word |= more);
    }

    /// Returns true if a path of edges leads from the node `earlier` to the node `later`; false if they are the same
    /// node.
    pub(crate) fn comes_before(&self, earlier: usize, later: usize) -> bool {
        let row = self.component[later] * self.words;
        earlier != later && self.before[row + earlier / 64] & (1 << (earlier % 64)) != 0
    }

    /// Returns true if a node lies on a cycle.
    pub(crate) fn on_cycle(&self, node: usize) -> bool {
        self.cyclic[self.component[node]]
    }

    /// Returns the strongly connected components, single nodes included, in topological order.
    pub(crate) fn components(&self) -> &[Vec<usize>] {
        &self.components
    }
}

/// Returns the strongly connected components that form cycles among some nodes, which are in ascending order. `next` gives
/// the nodes to which the edges of a node lead.
pub(crate) fn rings_among(nodes: &[usize], next: impl Fn(usize) -> Vec<usize>) -> Vec<Vec<usize>> {
    let place = |node: usize| nodes.binary_search(&node).ok();
    let next: Vec<Vec<usize>> = nodes.iter().map(|node| next(*node).into_iter().filter_map(place).collect()).collect();
    let mut rings = components(&next);
    rings.retain(|ring| ring.len() > 1 || next[ring[0]].contains(&ring[0]));
    rings.iter_mut().flatten().for_each(|node| *node = nodes[*node]);
    rings
}

/// Returns the strongly connected components of a graph (Tarjan's algorithm without recursion). `next` has the nodes to
/// which the edges of each node lead. A component comes after all components that it reaches through these edges. The
/// nodes of a component are in ascending order.
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
    /// The position of each node in the order in which the search has visited the nodes, from 1; 0 for a node that is
    /// not visited yet.
    order: Vec<usize>,
    /// For each node, the lowest position in `order` of the nodes that it is known to reach.
    low: Vec<usize>,
    open: Vec<bool>,
    /// The visited nodes whose component is not known yet.
    stack: Vec<usize>,
    /// The path from the start of the search to the current node: each node with the number of its edges that were
    /// followed.
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
        /// The bit sets agree with a search that follows every edge.
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
