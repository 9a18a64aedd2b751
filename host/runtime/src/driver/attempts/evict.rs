//! Eviction: ends the sandbox of an attempt that waits for long, and lets the attempt continue in a new one.
//!
//! The driver evicts an attempt that has waited for [`EVICT_MS`](crate::limits::EVICT_MS): it ends the attempt's
//! sandbox. When a message, a reply or an answer arrives for the attempt, or when its wait for people reaches its time
//! limit, the driver *rehydrates* the attempt: the attempt runs again in a new sandbox, as after a crash. It gets the
//! answers that it got before, and continues from there.

use super::{AttemptNumber, Attempts, PendingInput};
use crate::fact::TaskKey;

impl Attempts {
    /// Schedules a check whether an attempt still waits at the time `due`. Callers must not pass a `due` that is
    /// earlier than that of the previous call.
    pub(in crate::driver) fn check_at(&mut self, due: u64, task: TaskKey, attempt: AttemptNumber) {
        self.checks.push_back((due, task, attempt));
    }

    /// Returns the time of the next check.
    pub(in crate::driver) fn next_check(&self) -> Option<u64> {
        self.checks.front().map(|(due, ..)| *due)
    }

    /// Returns the next attempt that still waits and whose check is due at `now`. Removes this check, and the due
    /// checks of attempts that no longer wait.
    pub(in crate::driver) fn next_waiting(&mut self, now: u64) -> Option<(TaskKey, AttemptNumber)> {
        while let Some((_, task, attempt)) = self.checks.pop_front_if(|(due, ..)| *due <= now) {
            if self.live.get(&task).is_some_and(|live| live.calls.is_blocked()) {
                return Some((task, attempt));
            }
        }
        None
    }

    /// Ends the sandbox of an attempt. Keeps only the digest of its input.
    pub(in crate::driver) fn evict(&mut self, task: TaskKey, attempt: AttemptNumber) {
        self.withdraw(task);
        if let Some(given) = self.given.remove(&task) {
            self.given.insert(task, PendingInput::Known(given.record()));
        }
        self.keep_evicted(task, attempt);
    }

    /// Records that an attempt has no sandbox until something arrives for it.
    pub(in crate::driver) fn keep_evicted(&mut self, task: TaskKey, attempt: AttemptNumber) {
        self.evicted.insert(task, attempt);
    }

    /// Removes the task's attempt from the evicted ones, because a message, a reply or an answer has arrived for
    /// it, or its wait for people has reached its time limit. Returns true if the attempt was evicted: the caller
    /// then begins it again.
    pub(in crate::driver) fn rehydrate(&mut self, task: TaskKey) -> bool {
        self.evicted.remove(&task).is_some()
    }
}
