//! A clock for tests.

use std::{
    future,
    sync::atomic::{AtomicU64, Ordering},
};

use flowcell_runtime::ports::Timers;
use futures_util::future::BoxFuture;

/// A clock on which every wait is over at once, or, if `stands` is true, no wait ever ends.
pub(crate) struct Clock {
    now: AtomicU64,
    stands: bool,
}

impl Clock {
    pub(crate) fn new(stands: bool) -> Clock {
        Clock { now: AtomicU64::new(1), stands }
    }
}

impl Timers for Clock {
    fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    fn wait(&self, due: u64) -> BoxFuture<'static, ()> {
        if self.stands {
            return Box::pin(future::pending());
        }
        self.now.fetch_max(due, Ordering::Relaxed);
        Box::pin(future::ready(()))
    }
}
