//! The times and the chance of a turn come through one door, so that a test owns them.

use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// The next attempt.
    Backoff,
    /// The next bytes of an answer, until they are given up.
    Idle,
    /// The end of a turn, until it is given up.
    Total,
    /// More pieces of text, to be told together.
    Coalesce,
    /// What a simulated provider takes to answer.
    Simulated,
}

/// Where a turn gets its times and its chance from.
pub trait Clock: Send + Sync {
    /// Waits. It may be dropped before it ends.
    fn sleep(&self, why: Wait, how_long: Duration) -> BoxFuture<'static, ()>;

    /// The time of day.
    fn now(&self) -> SystemTime;

    /// A random number from 0 up to but not 1.
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
