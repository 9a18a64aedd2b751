//! The time and randomness of turns, behind a trait so that a test controls both.

use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;

/// The reason for a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// The wait before the next attempt.
    Backoff,
    /// The longest wait for the next bytes of an answer. After it the host gives up.
    Idle,
    /// The longest wait for the end of a turn, or of other work with a time limit. After it the host gives up.
    Total,
    /// The wait for more pieces of text, to report them together.
    Coalesce,
    /// The time that a simulated provider takes to answer.
    Simulated,
}

/// The source of time and randomness of a turn.
pub trait Clock: Send + Sync {
    /// Waits for `how_long`. The caller may drop the future before it ends.
    fn sleep(&self, why: Wait, how_long: Duration) -> BoxFuture<'static, ()>;

    /// Returns the time of day.
    fn now(&self) -> SystemTime;

    /// Returns a random number from 0 (inclusive) to 1 (exclusive).
    fn chance(&self) -> f64;
}

/// The clock of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn sleep(&self, _why: Wait, how_long: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(how_long))
    }

    fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    fn chance(&self) -> f64 {
        rand::random()
    }
}
