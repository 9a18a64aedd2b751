//! The work that the searches of one call, or of one stream, may do.
//!
//! A [`SearchBudget`] counts the steps and the unpacked bytes of all searches of a call: of the head of its answer, of
//! the body, of a failure. A [`Work`] is one search operation, on the current thread or on a thread for blocking work. It
//! consists of one text or of many, such as the values of a JSON text. [`Steps`] are the steps of one text.

use std::{
    cell::Cell,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use flowcell_contract::Tenant;

use super::permits::{Permit, Permits};

/// Maximum steps of all searches of a call. A search of 32 MiB of ordinary text takes fewer.
pub(super) const MAX_STEPS: u64 = 1 << 27;

/// Maximum steps of all searches of a stream, over its whole life. It searches the end of each piece twice.
const MAX_STREAM_STEPS: u64 = 1 << 28;

/// Maximum bytes that all searches of a call, or of a stream, decompress.
pub(super) const MAX_UNPACKED: u64 = 64 << 20;

/// Maximum steps of one operation on the current thread.
pub(super) const MAX_INLINE_STEPS: u64 = 1 << 17;

/// Maximum steps on the threads of its callers that all searches of a call, or of a stream, take. The others run on threads
/// for blocking work.
const MAX_INLINE_STEPS_OF_CALL: u64 = 1 << 22;

/// Number of steps between two looks whether the caller has given up.
const STEPS_PER_LOOK: u64 = 1 << 12;

/// The work that the searches of a call, or of a stream, may still do. Clones share it.
#[derive(Clone)]
pub(crate) struct SearchBudget(Arc<Shared>);

struct Shared {
    /// The tenant that waits for a permit.
    tenant: Tenant,
    permits: Permits,
    steps: AtomicU64,
    unpacked: AtomicU64,
    /// The steps that may still run on the threads of callers.
    inline: AtomicU64,
    /// The steps on the threads of callers since one of them yielded.
    unyielded: AtomicU64,
    has_withheld: AtomicBool,
}

impl fmt::Debug for SearchBudget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SearchBudget").field("steps", &self.0.steps).finish_non_exhaustive()
    }
}

impl Default for SearchBudget {
    fn default() -> SearchBudget {
        SearchBudget::for_call(&Tenant::local())
    }
}

impl SearchBudget {
    /// Creates the budget of one call of a tenant.
    pub(crate) fn for_call(tenant: &Tenant) -> SearchBudget {
        SearchBudget::new(tenant, MAX_STEPS, MAX_UNPACKED, Permits::of_process())
    }

    /// Creates the budget of one stream of a tenant, for its whole life.
    pub(crate) fn for_stream(tenant: &Tenant) -> SearchBudget {
        SearchBudget::new(tenant, MAX_STREAM_STEPS, MAX_UNPACKED, Permits::of_process())
    }

    /// Creates a budget with this number of steps, and of bytes to decompress.
    pub(super) fn new(tenant: &Tenant, steps: u64, unpacked: u64, permits: Permits) -> SearchBudget {
        SearchBudget(Arc::new(Shared {
            tenant: tenant.clone(),
            permits,
            steps: AtomicU64::new(steps),
            unpacked: AtomicU64::new(unpacked),
            inline: AtomicU64::new(MAX_INLINE_STEPS_OF_CALL),
            unyielded: AtomicU64::new(0),
            has_withheld: AtomicBool::new(false),
        }))
    }

    /// Returns the steps that are left.
    #[cfg(test)]
    pub(super) fn steps(&self) -> u64 {
        self.0.steps.load(Ordering::Relaxed)
    }

    /// Returns true if a text was withheld, because no search could end within this budget.
    pub(crate) fn has_withheld(&self) -> bool {
        self.0.has_withheld.load(Ordering::Relaxed)
    }

    /// Notes that a text is withheld. Logs the first one.
    pub(super) fn note_withheld(&self) {
        if !self.0.has_withheld.swap(true, Ordering::Relaxed) {
            tracing::warn!(tenant = %self.0.tenant, "an answer is withheld: it takes too long to search it for secrets");
        }
    }

    /// Waits until the tenant may have one more search on a thread for blocking work.
    pub(super) async fn permit(&self) -> Permit {
        self.0.permits.take(&self.0.tenant).await
    }

    /// Returns true if the caller must yield to the other tasks of its thread, because its searches have taken
    /// [`MAX_INLINE_STEPS`] since the last time.
    pub(super) fn must_yield(&self) -> bool {
        let is_due = self.0.unyielded.load(Ordering::Relaxed) >= MAX_INLINE_STEPS;
        if is_due {
            self.0.unyielded.store(0, Ordering::Relaxed);
        }
        is_due
    }

    /// Takes up to `most` from what is left. Returns the amount that was taken.
    fn take(left: &AtomicU64, most: u64) -> u64 {
        let rest = |left: u64| Some(left - left.min(most));
        let before = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest).unwrap_or_default();
        before.min(most)
    }
}

/// One search operation.
pub(super) struct Work<'a> {
    budget: &'a SearchBudget,
    /// The steps that this operation may take.
    granted: u64,
    /// The steps that this operation may still take.
    left: Cell<u64>,
    /// True after the caller has given up. `None`: the operation runs on the thread of its caller.
    cancelled: Option<&'a AtomicBool>,
    is_interrupted: Cell<bool>,
}

impl<'a> Work<'a> {
    /// Begins an operation on the thread of its caller. `None`: the call has used up its steps there.
    pub(super) fn inline(budget: &'a SearchBudget) -> Option<Work<'a>> {
        let granted = budget.0.inline.load(Ordering::Relaxed).min(MAX_INLINE_STEPS);
        (granted > 0).then(|| Work::new(budget, granted, None))
    }

    /// Begins an operation on a thread for blocking work. It ends soon after `cancelled` becomes true.
    pub(super) fn on_thread(budget: &'a SearchBudget, cancelled: &'a AtomicBool) -> Work<'a> {
        Work::new(budget, u64::MAX, Some(cancelled))
    }

    fn new(budget: &'a SearchBudget, granted: u64, cancelled: Option<&'a AtomicBool>) -> Work<'a> {
        Work { budget, granted, left: Cell::new(granted), cancelled, is_interrupted: Cell::new(false) }
    }

    /// Returns true if the operation needs more than it may do on the thread of its caller. Its result means nothing.
    pub(super) fn is_interrupted(&self) -> bool {
        self.is_interrupted.get()
    }

    /// Notes that a text is withheld, unless the result of the operation means nothing.
    pub(super) fn note_withheld(&self) {
        if !self.is_interrupted() && !self.is_cancelled() {
            self.budget.note_withheld();
        }
    }

    /// Returns true if the operation runs on the thread of its caller, so that it must not unpack.
    pub(super) fn is_inline(&self) -> bool {
        self.cancelled.is_none()
    }

    /// Notes that the operation needs more than it may do on the thread of its caller.
    pub(super) fn interrupt(&self) {
        self.is_interrupted.set(true);
    }

    /// Takes `bytes` from the bytes that may still be decompressed. Returns false, and changes nothing, if fewer are left.
    pub(super) fn take_unpacked(&self, bytes: u64) -> bool {
        let rest = |left: u64| left.checked_sub(bytes);
        self.budget.0.unpacked.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest).is_ok()
    }

    /// Returns bytes that were not decompressed after all.
    pub(super) fn return_unpacked(&self, bytes: u64) {
        self.budget.0.unpacked.fetch_add(bytes, Ordering::Relaxed);
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.is_some_and(|cancelled| cancelled.load(Ordering::Relaxed))
    }

    /// Takes up to `most` steps. Returns the number of those that were left.
    fn take(&self, most: u64) -> u64 {
        if self.is_cancelled() || self.is_interrupted() {
            return 0;
        }
        let taken = SearchBudget::take(&self.budget.0.steps, most.min(self.left.get()));
        self.left.set(self.left.get() - taken);
        taken
    }

    fn give_back(&self, steps: u64) {
        self.left.set(self.left.get().saturating_add(steps));
        self.budget.0.steps.fetch_add(steps, Ordering::Relaxed);
    }
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        if self.is_inline() {
            let spent = self.granted - self.left.get();
            SearchBudget::take(&self.budget.0.inline, spent);
            self.budget.0.unyielded.fetch_add(spent, Ordering::Relaxed);
        }
    }
}

/// The steps of the search of one text. It takes them from an operation, and returns those that it has not spent.
pub(super) struct Steps<'a> {
    work: &'a Work<'a>,
    left: Cell<u64>,
}

impl<'a> Steps<'a> {
    /// Takes up to `most` steps from an operation.
    pub(super) fn new(work: &'a Work<'a>, most: u64) -> Steps<'a> {
        let steps = Steps { work, left: Cell::new(0) };
        steps.add(most);
        steps
    }

    /// Takes up to `most` further steps from the operation.
    pub(super) fn add(&self, most: u64) {
        self.left.set(self.left.get() + self.work.take(most));
        self.check();
    }

    /// Spends steps. None is left after the last one, or when the caller has given up.
    pub(super) fn spend(&self, steps: u64) {
        let before = self.left.get();
        let left = before.saturating_sub(steps);
        let looks = before / STEPS_PER_LOOK != left / STEPS_PER_LOOK;
        self.left.set(if looks && self.work.is_cancelled() { 0 } else { left });
        self.check();
    }

    /// Returns all steps that are left, so that the search of this text ends.
    pub(super) fn exhaust(&self) {
        self.work.give_back(self.left.replace(0));
    }

    /// Returns true if no step is left.
    pub(super) fn is_spent(&self) -> bool {
        self.left.get() == 0
    }

    /// If no step is left on the thread of its caller, interrupts the operation. Then all later ones of the call run
    /// elsewhere: a peer whose answer is hard to search may send others.
    fn check(&self) {
        if self.is_spent() && self.work.is_inline() && !self.work.is_interrupted() {
            self.work.interrupt();
            self.work.budget.0.inline.store(0, Ordering::Relaxed);
        }
    }
}

impl Drop for Steps<'_> {
    fn drop(&mut self) {
        self.work.give_back(self.left.get());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn searches_share_the_steps_and_the_bytes_of_their_budget() {
        let (budget, cancelled) = (SearchBudget::default(), AtomicBool::default());
        let (one, other) = (Work::on_thread(&budget, &cancelled), Work::on_thread(&budget, &cancelled));
        let first = Steps::new(&one, MAX_STEPS - 10);
        first.spend(MAX_STEPS - 30);
        assert!(!first.is_spent());
        let second = Steps::new(&other, 15);
        second.spend(10);
        assert!(second.is_spent(), "only 10 steps were left");
        drop(first);
        second.add(25);
        second.spend(19);
        assert!(!second.is_spent());
        second.spend(1);
        assert!(second.is_spent(), "the first one has returned 20 steps");
        assert!(one.take_unpacked(MAX_UNPACKED) && !other.take_unpacked(1));
        one.return_unpacked(1);
        assert!(other.take_unpacked(1));
        let third = Steps::new(&one, 1);
        assert!(third.is_spent() && !one.is_interrupted());
    }

    #[test]
    fn a_search_that_is_exhausted_leaves_its_steps_to_the_others() {
        let (budget, cancelled) = (SearchBudget::default(), AtomicBool::default());
        let work = Work::on_thread(&budget, &cancelled);
        let first = Steps::new(&work, MAX_STEPS);
        first.spend(7);
        first.exhaust();
        assert!(first.is_spent());
        let second = Steps::new(&work, MAX_STEPS);
        second.spend(MAX_STEPS - 8);
        assert!(!second.is_spent());
        second.spend(1);
        assert!(second.is_spent());
    }

    #[test]
    fn a_search_of_a_caller_that_gives_up_has_no_steps() {
        let (budget, cancelled) = (SearchBudget::default(), AtomicBool::default());
        let work = Work::on_thread(&budget, &cancelled);
        let steps = Steps::new(&work, 3 * STEPS_PER_LOOK);
        cancelled.store(true, Ordering::Relaxed);
        (0..STEPS_PER_LOOK).for_each(|_| steps.spend(1));
        assert!(steps.is_spent(), "it looks at least once in {STEPS_PER_LOOK} steps");
        assert!(Steps::new(&work, 1).is_spent(), "and so has the next search");
        work.note_withheld();
        assert!(!budget.has_withheld());
    }

    #[test]
    fn a_call_takes_few_steps_on_the_thread_of_its_caller() {
        let budget = SearchBudget::default();
        let spend = |steps: u64| {
            let work = Work::inline(&budget).unwrap();
            Steps::new(&work, u64::MAX).spend(steps);
            work.is_interrupted()
        };
        assert!(!spend(MAX_INLINE_STEPS - 1) && !budget.must_yield());
        assert!(!spend(1) && budget.must_yield() && !budget.must_yield());
        let most = MAX_INLINE_STEPS_OF_CALL / MAX_INLINE_STEPS;
        assert!((2..most).all(|_| !spend(MAX_INLINE_STEPS - 1)));
        assert!(!spend(MAX_INLINE_STEPS - 1), "the call has a few steps more");
        assert!(spend(MAX_INLINE_STEPS) && Work::inline(&budget).is_none(), "after that, none");
        let spent = MAX_STEPS - budget.0.steps.load(Ordering::Relaxed);
        assert!((MAX_INLINE_STEPS_OF_CALL - most..=MAX_INLINE_STEPS_OF_CALL).contains(&spent), "{spent}");
    }

    #[test]
    fn an_interrupted_search_leaves_its_steps_to_the_others() {
        let budget = SearchBudget::default();
        let work = Work::inline(&budget).unwrap();
        let steps = Steps::new(&work, 100);
        work.interrupt();
        steps.exhaust();
        steps.spend(1);
        assert!(Steps::new(&work, 1).is_spent());
        drop(steps);
        drop(work);
        assert_eq!(budget.0.steps.load(Ordering::Relaxed), MAX_STEPS);
        assert!(Work::inline(&budget).is_some());
    }
}
