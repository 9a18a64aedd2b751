//! The timers of a run, and the sleep until the next one.

use std::{
    collections::HashMap,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::{FutureExt, future::BoxFuture};

use crate::{
    fact::{ScopeId, TaskKey},
    outstanding::Timer,
    ports::Timers,
    state::RunState,
    timing::TimerHeap,
};

/// When the next timer of an idle run continues it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextDue {
    /// A timer is due soon enough for the driver to wait for it.
    Soon,
    /// The first timer is due at this time (milliseconds since 1970).
    At(u64),
    /// The run has no timer.
    Never,
}

/// The timers of a run.
pub(super) struct Clock {
    clock: Arc<dyn Timers>,
    heap: TimerHeap,
    /// The owners whose time limits stand still, by the scopes of the undos in progress.
    held: HashMap<ScopeId, TaskKey>,
    sleeping: Option<(u64, BoxFuture<'static, ()>)>,
}

impl Clock {
    pub(super) fn new(clock: Arc<dyn Timers>) -> Clock {
        Clock { clock, heap: TimerHeap::default(), held: HashMap::new(), sleeping: None }
    }

    /// Returns the current time in milliseconds since 1970.
    pub(super) fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Waits until the clock shows `due` or a later time.
    pub(super) fn wait(&self, due: u64) -> BoxFuture<'static, ()> {
        self.clock.wait(due)
    }

    /// Adds a timer, if the state has it.
    pub(super) fn add(&mut self, state: &RunState, timer: Timer) {
        self.heap.add(state, timer);
    }

    /// Notes that the time limit of an owner stands still while the task of the scope `undo` undoes another one.
    pub(super) fn hold(&mut self, state: &RunState, undo: ScopeId) {
        let within = state.scopes.get(&undo).and_then(|scope| Some(scope.undoing.as_ref()?.within));
        let owner = within.and_then(|within| state.scopes.get(&within)?.owner);
        self.held.extend(owner.map(|owner| (undo, owner)));
    }

    /// Adds the time limit of an owner again, if the undo that has ended was the last one.
    pub(super) fn release(&mut self, state: &RunState, undo: ScopeId) {
        if let Some(owner) = self.held.remove(&undo) {
            self.heap.add(state, Timer::Total { task: owner });
        }
    }

    /// Returns the timer that is due first.
    pub(super) fn first(&mut self, state: &RunState) -> Option<(u64, Timer)> {
        self.heap.first(state)
    }

    /// Returns all timers that the state has.
    #[cfg(test)]
    pub(super) fn live(&self, state: &RunState) -> std::collections::HashSet<(Timer, u64)> {
        self.heap.live(state)
    }

    /// Returns when the next timer continues the run. With `patience_ms`, [`NextDue::Soon`] means that a timer is due
    /// within this time.
    ///
    /// Without `patience_ms`, the driver waits for a timer of any time, and [`NextDue::Soon`] means that there is
    /// one. Three kinds of timers are an exception: the time limit of the run, the time limit for a person to allow a
    /// call, and the renewal of a quota. Such a timer counts as `Soon` only when it is due.
    pub(super) fn next_due(&self, state: &RunState, patience_ms: Option<u64>) -> NextDue {
        let now = self.now();
        let mut next = NextDue::Never;
        for (timer, at) in self.heap.live(state) {
            let is_soon = match patience_ms {
                Some(patience) => at <= now.saturating_add(patience),
                None => at <= now || !matches!(timer, Timer::Flow | Timer::Ask { .. } | Timer::Quota),
            };
            next = match next {
                _ if is_soon => return NextDue::Soon,
                NextDue::At(first) => NextDue::At(first.min(at)),
                _ => NextDue::At(at),
            };
        }
        next
    }

    /// Makes the driver wake at the time `due` or earlier. `None`: no timer wakes the driver. A present sleep that ends
    /// earlier is kept: most timers are withdrawn before they are due, and starting a new sleep costs more than one
    /// needless wake.
    pub(super) fn set_wake(&mut self, due: Option<u64>) {
        match (due, &self.sleeping) {
            (None, _) => self.sleeping = None,
            (Some(due), Some((sleeping, _))) if *sleeping <= due => {}
            (Some(due), _) => self.sleeping = Some((due, self.clock.wait(due))),
        }
    }

    /// Returns the time until which the driver has slept. Pending if it does not sleep.
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
mod tests;
