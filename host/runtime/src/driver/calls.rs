//! Calls of a run that leave the host: those that somebody has to allow, those that wait for the journal, and those that
//! have left.

use std::{
    collections::HashMap,
    future::Future,
    task::{Context, Poll},
};

use flowcell_contract::Outgoing;
use futures_util::{
    FutureExt, StreamExt,
    future::{AbortHandle, Aborted, BoxFuture, abortable},
    stream::FuturesUnordered,
};

use crate::{call_log::Reply, fact::TaskKey};

/// One call of a run: whose, in which attempt, which.
pub(super) type CallKey = (TaskKey, u32, u32);

/// A call has ended.
pub(super) struct Ended {
    pub(super) call: CallKey,
    pub(super) reply: Reply,
}

/// The calls of a run.
#[derive(Default)]
pub(super) struct Calls {
    /// Calls that somebody has to allow.
    asked: HashMap<CallKey, Box<Outgoing>>,
    /// Calls that have left, and those that wait for the journal.
    leaving: HashMap<CallKey, Option<AbortHandle>>,
    under_way: FuturesUnordered<BoxFuture<'static, Result<Ended, Aborted>>>,
}

impl Calls {
    /// Keeps a call until somebody allows it.
    pub(super) fn ask(&mut self, call: CallKey, outgoing: Box<Outgoing>) {
        self.asked.insert(call, outgoing);
    }

    /// A call of which somebody has said whether it may leave.
    pub(super) fn decided(&mut self, call: CallKey) -> Option<Box<Outgoing>> {
        self.asked.remove(&call)
    }

    /// The call leaves once the journal has it.
    pub(super) fn wait(&mut self, call: CallKey) {
        self.leaving.insert(call, None);
    }

    /// Makes the call. Its end comes out of [`Calls::poll`].
    pub(super) fn make(&mut self, call: CallKey, ended: impl Future<Output = Reply> + Send + 'static) {
        let (ended, abort) = abortable(ended.map(move |reply| Ended { call, reply }));
        self.leaving.insert(call, Some(abort));
        self.under_way.push(ended.boxed());
    }

    /// The call has ended, or nobody wants its end.
    pub(super) fn forget(&mut self, call: CallKey) {
        self.leaving.remove(&call);
    }

    /// The journal has an end of the call. If it came otherwise than by itself, the call is given up.
    pub(super) fn settle(&mut self, call: CallKey) {
        if let Some(Some(abort)) = self.leaving.remove(&call) {
            abort.abort();
        }
        self.asked.remove(&call);
    }

    /// Whether a call has left, or will.
    pub(super) fn leaves(&self, call: CallKey) -> bool {
        self.leaving.contains_key(&call)
    }

    /// Whether no call has left or will.
    pub(super) fn is_quiet(&self) -> bool {
        self.leaving.is_empty()
    }

    /// The calls that have left, and those that will.
    #[cfg(test)]
    pub(super) fn leaving(&self) -> impl Iterator<Item = &CallKey> {
        self.leaving.keys()
    }

    /// Everything is over. Runs that calls were making are free for whoever ends them.
    pub(super) fn clear(&mut self) {
        self.asked.clear();
        self.leaving.clear();
        self.under_way.clear();
    }

    /// The next end of a call. Pending if none is under way, too.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Ended> {
        while let Poll::Ready(Some(ended)) = self.under_way.poll_next_unpin(context) {
            if let Ok(ended) = ended {
                return Poll::Ready(ended);
            }
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use flowcell_contract::Value;

    use super::{CallKey, Calls, Ended};
    use crate::fact::{ScopeId, TaskKey};

    fn call(ordinal: u32) -> CallKey {
        let node = flowcell_flow::graph::NodeIx(0);
        (TaskKey { scope: ScopeId::ROOT, node }, 1, ordinal)
    }

    fn poll(calls: &mut Calls) -> Poll<Ended> {
        calls.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_call_that_is_settled_has_no_end_of_its_own() {
        let mut calls = Calls::default();
        for ordinal in [1, 2] {
            calls.wait(call(ordinal));
            calls.make(call(ordinal), std::future::ready(Ok(Value::null())));
        }
        calls.settle(call(1));
        assert!(matches!(poll(&mut calls), Poll::Ready(Ended { call: found, .. }) if found == call(2)));
        assert!(poll(&mut calls).is_pending());
        assert!(!calls.leaves(call(1)) && calls.leaves(call(2)) && !calls.is_quiet());
        calls.forget(call(2));
        assert!(calls.is_quiet());
    }

    #[test]
    fn nothing_comes_of_calls_behind_the_end() {
        let mut calls = Calls::default();
        calls.make(call(1), std::future::ready(Ok(Value::null())));
        calls.clear();
        assert!(calls.is_quiet() && poll(&mut calls).is_pending());
    }
}
