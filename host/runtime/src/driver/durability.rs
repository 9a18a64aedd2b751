//! The effects of a run that wait until the facts before them are durable.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use flowcell_contract::{Outgoing, Wake};
use tokio::{sync::oneshot, task::JoinHandle};

use super::calls::CallKey;
use crate::{
    command::HubError,
    fact::Fact,
    ports::{Durable, Unit},
    sabotage,
};

/// An effect that waits until facts are durable.
pub(super) enum OnDurable {
    /// Publishes the events of a unit to subscribers.
    Publish(Arc<Unit>),
    /// Waits until a child that has ended has published all its events. The run publishes the end of the child
    /// afterwards.
    Follow(JoinHandle<()>),
    /// Makes a call that leaves the host.
    Dispatch(CallKey, Box<Outgoing>),
    /// Answers a request.
    Acknowledge(oneshot::Sender<Result<(), HubError>>, Result<(), HubError>),
}

/// The effects that wait for the journal, in order.
#[derive(Default)]
pub(super) struct DurabilityQueue {
    durable: Arc<Durable>,
    waiting: VecDeque<(u64, OnDurable)>,
    /// All events of the facts before this number are published.
    published_until: u64,
}

impl DurabilityQueue {
    /// Returns the queue of a run whose facts before `seq` are durable and published.
    pub(super) fn from(seq: u64) -> DurabilityQueue {
        let queue = DurabilityQueue { published_until: seq, ..DurabilityQueue::default() };
        queue.durable.advance(seq);
        queue
    }

    /// Returns the durable progress of the run's journal. The store updates it.
    pub(super) fn durable(&self) -> Arc<Durable> {
        self.durable.clone()
    }

    /// Returns the number before which the events of all facts are published.
    pub(super) fn published_until(&self) -> u64 {
        self.published_until
    }

    /// Returns whether everything before `seq` is on stable storage.
    fn is_durable(&self, seq: u64) -> bool {
        seq <= self.durable.next_seq() || sabotage::forcing_is_off()
    }

    /// Holds an effect back until all facts before `seq` are durable.
    pub(super) fn add(&mut self, seq: u64, deferred: OnDurable) {
        self.waiting.push_back((seq, deferred));
    }

    /// Returns whether the store refuses all further units of this driver.
    pub(super) fn is_refused(&self) -> bool {
        self.durable.is_refused()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Removes and returns the next effect whose facts are durable.
    pub(super) fn next_effect(&mut self) -> Option<OnDurable> {
        let (seq, first) = self.waiting.front()?;
        let held = !self.is_durable(*seq) || matches!(first, OnDurable::Follow(child) if !child.is_finished());
        if held {
            return None;
        }
        let (seq, deferred) = self.waiting.pop_front()?;
        self.published_until = seq;
        Some(deferred)
    }

    /// Becomes ready when the facts of the next effect are durable, or the store refuses the driver.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.durable.register(context.waker());
        if self.durable.is_refused() {
            return Poll::Ready(());
        }
        let Some(seq) = self.waiting.front().map(|(seq, _)| *seq) else { return Poll::Pending };
        let durable = self.is_durable(seq);
        let Some((_, first)) = self.waiting.front_mut().filter(|_| durable) else { return Poll::Pending };
        match first {
            // A finished tokio task must not be polled again: `is_finished` recognises it at the next poll.
            OnDurable::Follow(child) if !child.is_finished() => Pin::new(child).poll(context).map(drop),
            _ => Poll::Ready(()),
        }
    }
}

/// Returns true if the driver has to force the journal for a fact, because a caller of the host waits for it. Callers
/// wait for the calls, parks and questions of every run. They wait for the start and the end only of a run without a
/// parent (`top`).
pub(super) fn is_waited_for(fact: &Fact, top: bool) -> bool {
    match fact {
        Fact::RunStarted { .. } | Fact::RunEnded { .. } => top,
        Fact::RunResumed { .. } | Fact::RunParked { .. } | Fact::CallStarted { .. } => true,
        Fact::TaskPaused { pause, .. } => {
            pause.until.iter().any(|wake| matches!(wake, Wake::Answer(_) | Wake::Event(_)))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use tokio::sync::oneshot;

    use super::{DurabilityQueue, OnDurable};
    use crate::tests::driving::block;

    fn acknowledge() -> OnDurable {
        OnDurable::Acknowledge(oneshot::channel().0, Ok(()))
    }

    #[test]
    fn effects_wait_for_their_facts_and_keep_their_order() {
        let mut queue = DurabilityQueue::from(3);
        assert_eq!(queue.published_until(), 3);
        queue.add(4, acknowledge());
        queue.add(6, acknowledge());
        assert!(queue.next_effect().is_none());
        queue.durable().advance(5);
        assert!(queue.next_effect().is_some() && queue.next_effect().is_none());
        assert_eq!(queue.published_until(), 4, "only the facts before the first effect are told");
        queue.durable().advance(6);
        assert!(queue.next_effect().is_some() && queue.is_empty());
    }

    #[test]
    fn effects_wait_until_a_child_has_published_all_events() {
        block(async {
            let mut queue = DurabilityQueue::default();
            let (release, released) = oneshot::channel::<()>();
            queue.add(0, OnDurable::Follow(tokio::spawn(async move { _ = released.await })));
            queue.add(0, acknowledge());
            assert!(queue.next_effect().is_none());
            drop(release);
            std::future::poll_fn(|context| queue.poll(context)).await;
            assert!(matches!(queue.next_effect(), Some(OnDurable::Follow(_))));
            assert!(matches!(queue.next_effect(), Some(OnDurable::Acknowledge(..))));
        });
    }

    #[test]
    fn a_refusal_of_the_store_wakes_the_driver() {
        let mut queue = DurabilityQueue::default();
        queue.add(1, acknowledge());
        let context = &mut Context::from_waker(Waker::noop());
        assert!(queue.poll(context).is_pending());
        queue.durable().refuse();
        assert!(queue.poll(context).is_ready() && queue.is_refused());
        assert!(queue.next_effect().is_none(), "nothing happens that the store does not have");
    }
}
