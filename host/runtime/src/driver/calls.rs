//! Calls of a run that leave the host: those that a person has to allow, those that wait for the journal, and those
//! that have left.

use std::{
    collections::HashMap,
    panic::AssertUnwindSafe,
    sync::Arc,
    task::{Context, Poll},
};

use flowcell_contract::{Capability, Effect, Failure, Outgoing, code};
use futures_util::{
    FutureExt, StreamExt,
    future::{AbortHandle, Aborted, BoxFuture, abortable},
    stream::FuturesUnordered,
};

use crate::{call_log::Reply, fact::TaskKey, state::Task};

/// A call of a run: its task, attempt and number.
pub(super) type CallKey = (TaskKey, u32, u32);

/// Returns true if the task's attempt has made the call, and the call has not ended.
pub(super) fn is_under_way(task: &Task, (_, attempt, ordinal): CallKey) -> bool {
    task.calls.as_ref().is_some_and(|calls| calls.is_under_way((attempt, ordinal)))
}

/// Returns true if the task's attempt has made the call, and the call has no final reply.
pub(super) fn is_open(task: &Task, (_, attempt, ordinal): CallKey) -> bool {
    task.calls.as_ref().is_some_and(|calls| calls.digest_of((attempt, ordinal)).is_some())
}

/// The end of a call, as the capability reports it.
pub(super) struct Ended {
    pub(super) call: CallKey,
    pub(super) reply: Reply,
}

/// The calls of a run.
#[derive(Default)]
pub(super) struct Calls {
    /// Calls that a person has to allow.
    asked: HashMap<CallKey, Box<Outgoing>>,
    /// Calls that have left, with the handle that aborts them. `None`: the call has not left, because its record is not
    /// durable yet.
    leaving: HashMap<CallKey, Option<AbortHandle>>,
    under_way: FuturesUnordered<BoxFuture<'static, Result<Ended, Aborted>>>,
}

impl Calls {
    /// Stores a call until a person allows it.
    pub(super) fn ask(&mut self, call: CallKey, outgoing: Box<Outgoing>) {
        self.asked.insert(call, outgoing);
    }

    /// Removes and returns a call after a person has answered its question.
    pub(super) fn take_asked(&mut self, call: CallKey) -> Option<Box<Outgoing>> {
        self.asked.remove(&call)
    }

    /// Records that a call leaves as soon as its record is durable.
    pub(super) fn set_leaving(&mut self, call: CallKey) {
        self.leaving.insert(call, None);
    }

    /// Makes the call. [`Calls::poll`] returns its end. A panic in the capability is a failure of this call alone.
    pub(super) fn make(&mut self, call: CallKey, capability: &Arc<dyn Capability>, outgoing: Outgoing) {
        let effect = outgoing.effect;
        let performed = AssertUnwindSafe(capability.perform(outgoing)).catch_unwind();
        let ended = performed.map(move |reply| {
            let reply = reply.unwrap_or_else(|_| Err(panicked(effect))).map_err(Box::new);
            Ended { call, reply }
        });
        let (ended, abort) = abortable(ended);
        self.leaving.insert(call, Some(abort));
        self.under_way.push(ended.boxed());
    }

    /// Forgets a call that has ended, or whose end is no longer needed.
    pub(super) fn forget(&mut self, call: CallKey) {
        self.leaving.remove(&call);
    }

    /// Removes a call whose end is in the journal. Aborts the call if it is still in progress.
    pub(super) fn settle(&mut self, call: CallKey) {
        if let Some(Some(abort)) = self.leaving.remove(&call) {
            abort.abort();
        }
        self.asked.remove(&call);
    }

    /// Returns whether a call has left, or waits to leave.
    pub(super) fn is_dispatched(&self, call: CallKey) -> bool {
        self.leaving.contains_key(&call)
    }

    /// Returns whether no call is in progress or waits to leave.
    pub(super) fn is_quiet(&self) -> bool {
        self.leaving.is_empty()
    }

    /// Returns the calls that have left, and those that wait to leave.
    #[cfg(test)]
    pub(super) fn leaving(&self) -> impl Iterator<Item = &CallKey> {
        self.leaving.keys()
    }

    /// Aborts all calls, since the run has ended. This also releases the runs that the calls drive.
    pub(super) fn clear(&mut self) {
        self.asked.clear();
        self.leaving.clear();
        self.under_way.clear();
    }

    /// Returns the next end of a call. Pending if no call is in progress.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Ended> {
        while let Poll::Ready(Some(ended)) = self.under_way.poll_next_unpin(context) {
            if let Ok(ended) = ended {
                return Poll::Ready(ended);
            }
        }
        Poll::Pending
    }
}

/// Returns the failure of a call whose capability has panicked.
fn panicked(effect: Effect) -> Failure {
    let message = "the capability panicked";
    match effect {
        Effect::Once => Failure::new(code::AMBIGUOUS, message),
        _ => Failure::retryable(code::LOST_WORKER, message),
    }
}

#[cfg(test)]
mod tests;
