//! The driver wakes in time, and stays only for timers that continue the run.

use std::{
    future::{pending, ready},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
};

use futures_util::{FutureExt, future::BoxFuture};

use super::{Clock, NextDue};
use crate::{
    driver::testing::{begun, task, task_in},
    outstanding::Timer,
    ports::Timers,
    tests::graphs::Plan,
};

/// A clock that stands still and counts the calls of `wait`.
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
        clock.set_wake(due);
        assert_eq!(still.0.load(Relaxed), set, "{due:?}");
    }
    assert_eq!(clock.poll(context), Poll::Ready(10));
    assert!(clock.poll(context).is_pending(), "it sleeps once");
}

#[test]
fn a_driver_stays_for_timers_that_continue_the_run() {
    let mut state = begun(vec![Plan::Hang]).state;
    let mut clock = Clock::new(Arc::new(Still::default()));
    assert_eq!(clock.next_due(&state, None), NextDue::Never);
    state.deadline = Some(50);
    clock.add(&state, Timer::Flow);
    assert_eq!(clock.next_due(&state, None), NextDue::At(50), "it only ends the time of the run");
    assert_eq!(clock.next_due(&state, Some(39)), NextDue::At(50));
    assert_eq!(clock.next_due(&state, Some(40)), NextDue::Soon);
    task_in(&mut state, 0).deadline = Some(40);
    clock.add(&state, Timer::Total { task: task(0) });
    assert_eq!(clock.next_due(&state, Some(29)), NextDue::At(40), "the first of both");
    assert_eq!(clock.next_due(&state, None), NextDue::Soon, "it moves the run on");
}

#[test]
fn withdrawn_timers_are_not_waited_for() {
    let mut state = begun(vec![Plan::Hang]).state;
    let mut clock = Clock::new(Arc::new(Still::default()));
    state.deadline = Some(10);
    clock.add(&state, Timer::Flow);
    assert_eq!(clock.next_due(&state, None), NextDue::Soon, "it is due now");
    state.deadline = None;
    assert_eq!((clock.next_due(&state, None), clock.first(&state)), (NextDue::Never, None));
}
