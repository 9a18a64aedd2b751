//! The requests that wait for one origin. The runs take turns, so that a run with many requests delays no other run.

use std::collections::VecDeque;

/// Maximum number of requests of a tenant that wait for one origin.
pub(super) const MAX_WAITING: usize = 1_000;

/// A queue whose runs take turns.
#[derive(Debug)]
pub(super) struct Queue<R, T> {
    runs: VecDeque<(R, VecDeque<T>)>,
    count: usize,
}

impl<R, T> Default for Queue<R, T> {
    fn default() -> Queue<R, T> {
        Queue { runs: VecDeque::new(), count: 0 }
    }
}

impl<R: PartialEq, T> Queue<R, T> {
    /// Adds a request at the end of its run, or returns it if the run may have no more. A run has at most as many waiting
    /// requests as are still free for other runs.
    pub(super) fn push(&mut self, run: R, item: T) -> Result<(), T> {
        let own = self.runs.iter().position(|(other, _)| *other == run);
        let waiting = own.map_or(0, |own| self.runs[own].1.len());
        if waiting >= MAX_WAITING.saturating_sub(self.count) {
            return Err(item);
        }
        self.count += 1;
        match own {
            Some(own) => self.runs[own].1.push_back(item),
            None => self.runs.push_back((run, VecDeque::from([item]))),
        }
        Ok(())
    }

    /// Removes the first request of the run whose turn it is.
    pub(super) fn pop(&mut self) -> Option<T> {
        let (run, mut items) = self.runs.pop_front()?;
        let item = items.pop_front()?;
        self.count -= 1;
        if !items.is_empty() {
            self.runs.push_back((run, items));
        }
        Some(item)
    }

    /// Returns about how many requests begin before a new one of a run.
    pub(super) fn ahead_of(&self, run: &R) -> usize {
        let own = self.runs.iter().find(|(other, _)| other == run).map_or(0, |(_, items)| items.len());
        self.runs.iter().map(|(_, items)| items.len().min(own + 1)).sum::<usize>().min(self.count)
    }

    /// Removes the requests that `is_kept` does not keep.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&T) -> bool) {
        self.runs.retain_mut(|(_, items)| {
            items.retain(&is_kept);
            !items.is_empty()
        });
        self.count = self.runs.iter().map(|(_, items)| items.len()).sum();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }
}
