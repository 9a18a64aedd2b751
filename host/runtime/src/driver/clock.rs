//! The timers of a run, and the sleep until the next one.

use std::{
    collections::HashSet,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::{FutureExt, future::BoxFuture};

use crate::{outstanding::Timer, ports::Timers, state::RunState, timing::TimerHeap};

/// The timers of a run.
pub(super) struct Clock {
    clock: Arc<dyn Timers>,
    heap: TimerHeap,
    sleeping: Option<(u64, BoxFuture<'static, ()>)>,
}

impl Clock {
    pub(super) fn new(clock: Arc<dyn Timers>) -> Clock {
        Clock { clock, heap: TimerHeap::default(), sleeping: None }
    }

    /// Milliseconds since 1970.
    pub(super) fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Waits until the clock shows `due`, or later.
    pub(super) fn wait(&self, due: u64) -> BoxFuture<'static, ()> {
        self.clock.wait(due)
    }

    /// Adds a timer, if the state has it.
    pub(super) fn add(&mut self, state: &RunState, timer: Timer) {
        self.heap.add(state, timer);
    }

    /// The timer that is due first.
    pub(super) fn first(&mut self, state: &RunState) -> Option<(u64, Timer)> {
        self.heap.first(state)
    }

    /// All timers that are meant.
    pub(super) fn live(&self, state: &RunState) -> HashSet<(Timer, u64)> {
        self.heap.live(state)
    }

    /// Sees to it that the driver wakes at this time. Most timers are withdrawn before they are due, and setting the clock
    /// costs more than waking once too often: a sleep that ends earlier is kept.
    pub(super) fn sleep_until(&mut self, due: Option<u64>) {
        match (due, &self.sleeping) {
            (None, _) => self.sleeping = None,
            (Some(due), Some((sleeping, _))) if *sleeping <= due => {}
            (Some(due), _) => self.sleeping = Some((due, self.clock.wait(due))),
        }
    }

    /// Until when the driver has slept. Pending if it does not sleep, too.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<u64> {
        let Some((until, sleep)) = &mut self.sleeping else { return Poll::Pending };
        if sleep.poll_unpin(context).is_pending() {
            return Poll::Pending;
        }
        let until = *until;
        self.sleeping = None;
        Poll::Ready(until)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::{pending, ready},
        sync::{
            Arc,
            atomic::{AtomicU64, Ordering::Relaxed},
        },
        task::{Context, Poll, Waker},
    };

    use futures_util::{FutureExt, future::BoxFuture};

    use super::Clock;
    use crate::ports::Timers;

    /// A clock that stands still, and counts how often it was set.
    #[derive(Default)]
    struct Still(AtomicU64);

    impl Timers for Still {
        fn now(&self) -> u64 {
            10
        }

        fn wait(&self, due: u64) -> BoxFuture<'static, ()> {
            self.0.fetch_add(1, Relaxed);
            if due <= 10 { ready(()).boxed() } else { pending().boxed() }
        }
    }

    #[test]
    fn a_sleep_that_ends_earlier_is_kept() {
        let still = Arc::new(Still::default());
        let mut clock = Clock::new(still.clone());
        let context = &mut Context::from_waker(Waker::noop());
        assert!(clock.poll(context).is_pending());
        for (due, set) in [(Some(20), 1), (Some(30), 1), (Some(15), 2), (None, 2), (Some(10), 3)] {
            clock.sleep_until(due);
            assert_eq!(still.0.load(Relaxed), set, "{due:?}");
        }
        assert_eq!(clock.poll(context), Poll::Ready(10));
        assert!(clock.poll(context).is_pending(), "it sleeps once");
    }
}
