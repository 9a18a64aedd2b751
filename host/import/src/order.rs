//! The order of states that lead to each other, and the transitions that cannot be edges of a flow.

use std::collections::HashSet;

/// The order in which states are written, and what their transitions mean.
#[derive(Debug)]
pub(crate) struct Order {
    /// The states that can be reached, each behind one of its predecessors.
    pub(crate) states: Vec<usize>,
    /// Number of transitions to each state, and one for the beginning.
    arrivals: Vec<usize>,
    /// Transitions into the middle of a cycle. A cycle of edges has one entry only.
    into_middle: HashSet<(usize, usize)>,
    has_cycle: bool,
}

impl Order {
    /// Computes the order. `next` has the targets of each state, one for each way out.
    pub(crate) fn new(next: &[Vec<usize>], start: usize) -> Order {
        let states = reverse_postorder(next, start);
        let mut rank = vec![usize::MAX; next.len()];
        states.iter().enumerate().for_each(|(index, state)| rank[*state] = index);
        let mut before = vec![Vec::new(); next.len()];
        let transitions = || states.iter().flat_map(|from| next[*from].iter().map(move |to| (*from, *to)));
        transitions().for_each(|(from, to)| before[to].push(from));
        let dominator = dominators(&states, &rank, &before);
        let dominates = |state: usize, mut other: usize| {
            while rank[other] > rank[state] {
                other = dominator[other];
            }
            other == state
        };
        let is_into_middle = |(from, to): &(usize, usize)| rank[*to] <= rank[*from] && !dominates(*to, *from);
        let into_middle: HashSet<_> = transitions().filter(is_into_middle).collect();
        let mut arrivals = vec![0; next.len()];
        arrivals[start] = 1;
        transitions().filter(|pair| !into_middle.contains(pair)).for_each(|(_, to)| arrivals[to] += 1);
        let has_cycle = transitions().any(|(from, to)| rank[to] <= rank[from] && !into_middle.contains(&(from, to)));
        Order { states, arrivals, into_middle, has_cycle }
    }

    /// Returns true if several transitions lead to a state, so that its data come from one of them.
    pub(crate) fn is_join(&self, state: usize) -> bool {
        self.arrivals[state] > 1
    }

    /// Returns true if a transition leads back to an earlier state.
    pub(crate) fn has_cycle(&self) -> bool {
        self.has_cycle
    }

    /// Returns true if a transition leads into the middle of a cycle.
    pub(crate) fn is_into_middle(&self, from: usize, to: usize) -> bool {
        self.into_middle.contains(&(from, to))
    }
}

fn reverse_postorder(next: &[Vec<usize>], start: usize) -> Vec<usize> {
    let mut seen = vec![false; next.len()];
    seen[start] = true;
    let mut order = Vec::new();
    // States on the path from the start, each with the number of its targets that were visited.
    let mut path = vec![(start, 0)];
    while let Some((state, visited)) = path.last_mut() {
        // The first target is visited last, so that it stands first in the reversed order.
        let target = next[*state].len().checked_sub(*visited + 1).map(|index| next[*state][index]);
        *visited += 1;
        match target {
            Some(target) if !seen[target] => {
                seen[target] = true;
                path.push((target, 0));
            }
            Some(_) => {}
            None => {
                order.push(*state);
                path.pop();
            }
        }
    }
    order.reverse();
    order
}

/// Returns the immediate dominator of each state, by the iteration of Cooper, Harvey and Kennedy.
fn dominators(states: &[usize], rank: &[usize], before: &[Vec<usize>]) -> Vec<usize> {
    let mut dominator = vec![usize::MAX; rank.len()];
    dominator[states[0]] = states[0];
    let mut changed = true;
    while changed {
        changed = false;
        for state in &states[1..] {
            let known = before[*state].iter().copied().filter(|from| dominator[*from] != usize::MAX);
            let common = known.reduce(|mut left, mut right| {
                while left != right {
                    if rank[left] > rank[right] {
                        left = dominator[left];
                    } else {
                        right = dominator[right];
                    }
                }
                left
            });
            if let Some(common) = common.filter(|common| dominator[*state] != *common) {
                dominator[*state] = common;
                changed = true;
            }
        }
    }
    dominator
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joins_and_cycles_are_found() {
        // 0 -> 1 -> 2 -> 1, 2 -> 3, 0 -> 3
        let order = Order::new(&[vec![1, 3], vec![2], vec![3, 1], vec![]], 0);
        assert_eq!(order.states, [0, 1, 2, 3]);
        assert_eq!([0, 1, 2, 3].map(|state| order.is_join(state)), [false, true, false, true]);
        assert!(order.into_middle.is_empty());
    }

    #[test]
    fn a_transition_into_the_middle_of_a_cycle_is_found() {
        // 0 leads to both states of the cycle 1 <-> 2.
        let order = Order::new(&[vec![1, 2], vec![2], vec![1]], 0);
        assert_eq!(order.into_middle.len(), 1);
        assert_eq!(order.states.len(), 3);
    }

    #[test]
    fn a_state_that_leads_to_itself_is_a_join() {
        let order = Order::new(&[vec![0], vec![0]], 0);
        assert!(order.is_join(0));
        assert_eq!(order.states, [0], "the second one is never reached");
    }

    #[test]
    fn long_chains_need_no_stack() {
        let next: Vec<_> = (0..100_000).map(|state| vec![state + 1]).chain([vec![]]).collect();
        assert_eq!(Order::new(&next, 0).states.len(), 100_001);
    }
}
