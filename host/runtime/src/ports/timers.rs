//! Timers: the clock of runs.

use futures_util::future::BoxFuture;

/// The clock of a process, and waits for a time.
pub trait Timers: Send + Sync {
    /// Returns the current time in milliseconds since 1970.
    fn now(&self) -> u64;

    /// Waits until the clock shows `due`, or later.
    fn wait(&self, due: u64) -> BoxFuture<'static, ()>;
}
