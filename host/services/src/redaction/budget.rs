//! The work that the searches of one call may do.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Maximum steps of all searches of a call: of an answer, and of each value in it if it is JSON. A search of 32 MiB of
/// ordinary text takes fewer.
pub(super) const MAX_STEPS: u64 = 1 << 27;

/// Maximum bytes that all searches of a call decompress.
const MAX_UNPACKED: u64 = 64 << 20;

/// Number of steps between two looks whether the caller has given up.
const STEPS_PER_LOOK: u64 = 1 << 12;

/// The work that the searches of a call may still do.
pub(super) struct Budget {
    steps: Cell<u64>,
    unpacked: Cell<u64>,
    cancelled: Arc<AtomicBool>,
}

/// The steps of one search. It takes them from a budget, and returns those that it has not spent.
pub(super) struct Steps<'a> {
    budget: &'a Budget,
    left: Cell<u64>,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget::new(Arc::default())
    }
}

impl Budget {
    /// Creates the budget of a call, which gives up when `cancelled` becomes true.
    pub(super) fn new(cancelled: Arc<AtomicBool>) -> Budget {
        Budget { steps: Cell::new(MAX_STEPS), unpacked: Cell::new(MAX_UNPACKED), cancelled }
    }

    /// Returns true if the caller has given up. Its searches end then.
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Takes `bytes` from the bytes that may still be decompressed. Returns false, and changes nothing, if fewer are left.
    pub(super) fn take_unpacked(&self, bytes: u64) -> bool {
        let Some(left) = self.unpacked.get().checked_sub(bytes) else { return false };
        self.unpacked.set(left);
        true
    }

    /// Returns bytes that were not decompressed after all.
    pub(super) fn return_unpacked(&self, bytes: u64) {
        self.unpacked.set(self.unpacked.get() + bytes);
    }

    /// Takes up to `steps` steps. Returns the number of those that were left.
    fn take(&self, steps: u64) -> u64 {
        let taken = if self.is_cancelled() { 0 } else { steps.min(self.steps.get()) };
        self.steps.set(self.steps.get() - taken);
        taken
    }
}

impl<'a> Steps<'a> {
    /// Takes up to `most` steps from a budget.
    pub(super) fn new(budget: &'a Budget, most: u64) -> Steps<'a> {
        Steps { budget, left: Cell::new(budget.take(most)) }
    }

    /// Takes up to `most` further steps from the budget.
    pub(super) fn add(&self, most: u64) {
        self.left.set(self.left.get() + self.budget.take(most));
    }

    /// Spends steps. None is left after the last one, or when the caller has given up.
    pub(super) fn spend(&self, steps: u64) {
        let before = self.left.get();
        let left = before.saturating_sub(steps);
        let looks = before / STEPS_PER_LOOK != left / STEPS_PER_LOOK;
        self.left.set(if looks && self.budget.is_cancelled() { 0 } else { left });
    }

    /// Returns true if no step is left.
    pub(super) fn is_spent(&self) -> bool {
        self.left.get() == 0
    }
}

impl Drop for Steps<'_> {
    fn drop(&mut self) {
        self.budget.steps.set(self.budget.steps.get() + self.left.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searches_share_the_steps_and_the_bytes_of_their_budget() {
        let budget = Budget::default();
        let first = Steps::new(&budget, MAX_STEPS - 10);
        first.spend(MAX_STEPS - 30);
        assert!(!first.is_spent());
        let second = Steps::new(&budget, 15);
        second.spend(10);
        assert!(second.is_spent(), "only 10 steps were left");
        drop(first);
        second.add(25);
        second.spend(19);
        assert!(!second.is_spent());
        second.spend(1);
        assert!(second.is_spent(), "the first one has returned 20 steps");
        assert!(budget.take_unpacked(MAX_UNPACKED) && !budget.take_unpacked(1));
        budget.return_unpacked(1);
        assert!(budget.take_unpacked(1));
    }

    #[test]
    fn a_search_of_a_caller_that_gives_up_has_no_steps() {
        let cancelled = Arc::<AtomicBool>::default();
        let budget = Budget::new(cancelled.clone());
        let steps = Steps::new(&budget, 3 * STEPS_PER_LOOK);
        cancelled.store(true, Ordering::Relaxed);
        (0..STEPS_PER_LOOK).for_each(|_| steps.spend(1));
        assert!(steps.is_spent(), "it looks at least once in {STEPS_PER_LOOK} steps");
        assert!(Steps::new(&budget, 1).is_spent(), "and so has the next search");
    }
}
