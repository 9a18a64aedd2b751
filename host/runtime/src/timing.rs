//! The driver's timers: a heap. Withdrawn timers stay in the heap and are skipped.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashSet},
};

use crate::{
    outstanding::{self, Timer},
    state::RunState,
};

/// The number of entries up to which the heap is never cleaned.
const CLEAN_ABOVE_ENTRIES: usize = 4_096;

/// Timers by the times at which they are due. An entry counts only while the state has the same timer at the same
/// time.
#[derive(Debug)]
pub(crate) struct TimerHeap {
    heap: BinaryHeap<Reverse<(u64, Timer)>>,
    clean_above: usize,
}

impl Default for TimerHeap {
    fn default() -> TimerHeap {
        TimerHeap { heap: BinaryHeap::new(), clean_above: CLEAN_ABOVE_ENTRIES }
    }
}

impl TimerHeap {
    /// Adds a timer, if the state has it.
    pub(crate) fn add(&mut self, state: &RunState, timer: Timer) {
        let Some(due) = outstanding::due(state, &timer) else { return };
        self.heap.push(Reverse((due, timer)));
        if self.heap.len() > self.clean_above {
            self.heap.retain(|Reverse((due, timer))| outstanding::due(state, timer) == Some(*due));
            self.clean_above = CLEAN_ABOVE_ENTRIES.max(2 * self.heap.len());
        }
    }

    /// Returns the timer that is due first.
    pub(crate) fn first(&mut self, state: &RunState) -> Option<(u64, Timer)> {
        while let Some(Reverse((due, timer))) = self.heap.peek() {
            if outstanding::due(state, timer) == Some(*due) {
                return Some((*due, *timer));
            }
            self.heap.pop();
        }
        None
    }

    /// Returns all timers that the state still has.
    pub(crate) fn live(&self, state: &RunState) -> HashSet<(Timer, u64)> {
        let entries = self.heap.iter().map(|Reverse((due, timer))| (*timer, *due));
        entries.filter(|(timer, due)| outstanding::due(state, timer) == Some(*due)).collect()
    }
}
