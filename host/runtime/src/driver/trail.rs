//! What may leave a run only once the journal holds what it follows from.

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
    fact::{Fact, ParkReason, RunEnd},
    ports::{Durable, StoredStatus, Unit},
    result::RunStatus,
    sabotage,
};

/// Something that waits for the journal.
pub(super) enum Deferred {
    /// Facts to tell to subscribers.
    Tell(Arc<Unit>),
    /// What a child that has ended still tells; what the run tells of it comes after.
    Follow(JoinHandle<()>),
    /// A call that leaves the host.
    Leave(CallKey, Box<Outgoing>),
    /// The outcome of a request.
    Acknowledge(oneshot::Sender<Result<(), HubError>>, Result<(), HubError>),
}

/// What waits for the journal, in order.
#[derive(Default)]
pub(super) struct Trail {
    durable: Arc<Durable>,
    waiting: VecDeque<(u64, Deferred)>,
    /// What comes before this number has been told.
    told: u64,
}

impl Trail {
    /// A trail for a run of which everything before `seq` is durable and told.
    pub(super) fn from(seq: u64) -> Trail {
        let trail = Trail { told: seq, ..Trail::default() };
        trail.durable.advance(seq);
        trail
    }

    /// How far the journal is durable.
    pub(super) fn durable(&self) -> Arc<Durable> {
        self.durable.clone()
    }

    /// What comes before this number has been told.
    pub(super) fn told(&self) -> u64 {
        self.told
    }

    /// Whether everything before `seq` is on stable storage.
    fn is_durable(&self, seq: u64) -> bool {
        seq <= self.durable.next_seq() || sabotage::forcing_is_off()
    }

    /// Holds something back until everything before `seq` is durable.
    pub(super) fn add(&mut self, seq: u64, deferred: Deferred) {
        self.waiting.push_back((seq, deferred));
    }

    /// Whether the store takes nothing more from this driver.
    pub(super) fn is_refused(&self) -> bool {
        self.durable.is_refused()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The next that may go.
    pub(super) fn next(&mut self) -> Option<Deferred> {
        let (seq, first) = self.waiting.front()?;
        let held = !self.is_durable(*seq) || matches!(first, Deferred::Follow(child) if !child.is_finished());
        if held {
            return None;
        }
        let (seq, deferred) = self.waiting.pop_front()?;
        self.told = seq;
        Some(deferred)
    }

    /// Ready when the next may go.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.durable.register(context.waker());
        if self.durable.is_refused() {
            return Poll::Ready(());
        }
        let Some(seq) = self.waiting.front().map(|(seq, _)| *seq) else { return Poll::Pending };
        let durable = self.is_durable(seq);
        let Some((_, first)) = self.waiting.front_mut().filter(|_| durable) else { return Poll::Pending };
        match first {
            // A finished task is not asked twice: the next poll finds it finished.
            Deferred::Follow(child) if !child.is_finished() => Pin::new(child).poll(context).map(drop),
            _ => Poll::Ready(()),
        }
    }
}

/// Whether somebody outside waits for the fact, so that the journal has to hurry. Of a child run only the questions are
/// waited for: it is accepted with its parent's facts, and its end is told to its parent alone.
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

/// How a run stands after a fact, if the fact changes it.
pub(super) fn standing(fact: &Fact) -> Option<StoredStatus> {
    match fact {
        Fact::RunStarted { .. } | Fact::RunResumed { .. } => Some(StoredStatus::Active),
        Fact::RunParked { due, reason } => {
            let needs_attention = !matches!(reason, ParkReason::Waiting);
            Some(StoredStatus::Parked { due: *due, needs_attention })
        }
        Fact::RunEnded { end } => Some(StoredStatus::Ended(match **end {
            RunEnd::Succeeded { .. } => RunStatus::Succeeded,
            RunEnd::Failed { .. } => RunStatus::Failed,
            RunEnd::Cancelled { .. } => RunStatus::Cancelled,
        })),
        _ => None,
    }
}
