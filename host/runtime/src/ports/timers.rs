//! The clock of a process: the current time, and waits until a later time.

use futures_util::future::BoxFuture;

/// Reads the clock of a process, and waits until it shows a given time.
pub trait Timers: Send + Sync {
    /// Returns the current time in milliseconds since 1970.
    fn now(&self) -> u64;

    /// Waits until the clock shows `due`, or later.
    fn wait(&self, due: u64) -> BoxFuture<'static, ()>;
}
