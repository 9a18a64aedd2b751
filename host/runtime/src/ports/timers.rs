//! Timers: the clock of runs.

use futures_util::future::BoxFuture;

/// The clock, and waiting for it.
pub trait Timers: Send + Sync {
    /// Milliseconds since 1970.
    fn now(&self) -> u64;

    /// Waits until the clock shows `due`, or later.
    fn wait(&self, due: u64) -> BoxFuture<'static, ()>;
}
