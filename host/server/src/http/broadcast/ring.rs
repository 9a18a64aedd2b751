//! A buffer of the latest events of a run, for subscribers that have not received them yet.
//!
//! An event is kept until all subscribers have received it. If the ring has too many events or bytes, the oldest
//! events are dropped earlier, and the subscribers that have not received them get [`Lagged`]. The bytes count towards
//! the tenant's share of the memory of all rings.

use std::{collections::VecDeque, sync::Arc};

use flowcell_contract::Tenant;
use flowcell_engine::{FairSemaphore, Permit};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Frame;

/// The maximum number of events in a ring.
const MAX_EVENTS: usize = 1_024;
/// The maximum size of the events in a ring: approximate bytes in memory.
pub(super) const MAX_EVENTS_BYTES: u64 = 4 << 20;

/// The latest events of a run.
pub(in crate::http) struct Ring {
    tenant: Tenant,
    semaphore: FairSemaphore,
    kept: Mutex<KeptEvents>,
    added: Notify,
}

#[derive(Default)]
struct KeptEvents {
    /// The number of the first kept event, counted from the creation of the ring.
    first: u64,
    events: VecDeque<Entry>,
    bytes: u64,
    listeners: usize,
}

struct Entry {
    frame: Frame,
    /// The number of listeners that have not received the event.
    pending_listeners: usize,
    _permit: Permit,
}

/// Events were dropped before the listener received them.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::http) struct Lagged;

impl Ring {
    pub(super) fn new(tenant: Tenant, semaphore: FairSemaphore) -> Ring {
        Ring { tenant, semaphore, kept: Mutex::default(), added: Notify::new() }
    }

    /// Creates a listener that receives the events from now on.
    pub(in crate::http) fn listen(self: &Arc<Ring>) -> Listener {
        let mut kept = self.kept.lock();
        kept.listeners += 1;
        Listener { ring: self.clone(), next: kept.end() }
    }

    /// Adds an event to the ring, if it has listeners. Drops the oldest events if the ring would exceed its limits or
    /// the tenant's share.
    pub(in crate::http) fn push(&self, frame: Frame) {
        let mut kept = self.kept.lock();
        if kept.listeners == 0 {
            return;
        }
        let bytes = frame.bytes();
        while kept.events.len() >= MAX_EVENTS || !kept.events.is_empty() && kept.bytes + bytes > MAX_EVENTS_BYTES {
            kept.drop_first();
        }
        let permit = loop {
            match self.semaphore.try_take(&self.tenant, bytes) {
                Some(permit) => break Some(permit),
                None if kept.events.is_empty() => break None,
                None => kept.drop_first(),
            }
        };
        match permit {
            Some(permit) => {
                kept.bytes += bytes;
                let pending_listeners = kept.listeners;
                kept.events.push_back(Entry { frame, pending_listeners, _permit: permit });
            }
            // Even an empty ring has no bytes for this event. It is dropped, and every listener gets `Lagged`.
            None => kept.first += 1,
        }
        drop(kept);
        self.added.notify_waiters();
    }
}

impl KeptEvents {
    /// Returns the number of the next event.
    fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    fn drop_first(&mut self) {
        if let Some(entry) = self.events.pop_front() {
            self.first += 1;
            self.bytes -= entry.frame.bytes();
        }
    }

    /// Drops the oldest events that all listeners have received.
    fn drop_received(&mut self) {
        while self.events.front().is_some_and(|entry| entry.pending_listeners == 0) {
            self.drop_first();
        }
    }
}

/// A receiver of a ring's events.
pub(in crate::http) struct Listener {
    ring: Arc<Ring>,
    /// The number of the next event to receive.
    next: u64,
}

impl Listener {
    /// Waits for the next event. Returns `Lagged` if the ring has dropped events before this listener received them.
    pub(in crate::http) async fn receive(&mut self) -> Result<Frame, Lagged> {
        loop {
            let ring = self.ring.clone();
            let added = ring.added.notified();
            tokio::pin!(added);
            // From here on, a new event wakes this listener.
            added.as_mut().enable();
            if let Some(received) = self.next_frame() {
                return received;
            }
            added.await;
        }
    }

    fn next_frame(&mut self) -> Option<Result<Frame, Lagged>> {
        let mut kept = self.ring.kept.lock();
        if self.next < kept.first {
            self.next = kept.first;
            return Some(Err(Lagged));
        }
        let at = (self.next - kept.first) as usize;
        let entry = kept.events.get_mut(at)?;
        entry.pending_listeners -= 1;
        let frame = entry.frame.clone();
        self.next += 1;
        kept.drop_received();
        Some(Ok(frame))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut kept = self.ring.kept.lock();
        kept.listeners -= 1;
        let received = self.next.saturating_sub(kept.first) as usize;
        kept.events.iter_mut().skip(received).for_each(|entry| entry.pending_listeners -= 1);
        kept.drop_received();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use futures_util::FutureExt;

    use super::*;

    fn ring(semaphore: u64) -> (Arc<Ring>, FairSemaphore) {
        let semaphore = FairSemaphore::new(semaphore);
        (Arc::new(Ring::new("a".into(), semaphore.clone())), semaphore)
    }

    fn frame(seq: u64, bytes: usize) -> Frame {
        Frame { text: vec![b'x'; bytes].into(), seq: Some(seq), kind: "log".into() }
    }

    fn receive_now(listener: &mut Listener) -> Option<Result<Option<u64>, Lagged>> {
        listener.receive().now_or_never().map(|received| received.map(|frame| frame.seq))
    }

    #[test]
    fn an_event_is_kept_until_all_listeners_have_received_it() {
        let (ring, semaphore) = ring(1 << 30);
        ring.push(frame(0, 100));
        assert_eq!(semaphore.taken(), 0, "nobody listens");
        let (mut one, mut other) = (ring.listen(), ring.listen());
        ring.push(frame(1, 100));
        assert_eq!((receive_now(&mut one), receive_now(&mut one)), (Some(Ok(Some(1))), None));
        assert!(semaphore.taken() >= 100);
        assert_eq!(receive_now(&mut other), Some(Ok(Some(1))));
        assert_eq!(semaphore.taken(), 0);
        ring.push(frame(2, 100));
        assert_eq!(receive_now(&mut one), Some(Ok(Some(2))));
        drop(other);
        assert_eq!(semaphore.taken(), 0, "whoever has gone hears nothing");
    }

    #[test]
    fn a_slow_listener_lags_after_too_many_events_or_bytes() {
        for (events, bytes, left) in [(MAX_EVENTS as u64 + 5, 1, MAX_EVENTS as u64), (10, 1 << 20, 3)] {
            let (ring, semaphore) = ring(1 << 30);
            let mut slow = ring.listen();
            (0..events).for_each(|seq| ring.push(frame(seq, bytes)));
            assert!(semaphore.taken() <= MAX_EVENTS_BYTES, "{}", semaphore.taken());
            assert_eq!(receive_now(&mut slow), Some(Err(Lagged)));
            let received: Vec<_> = std::iter::from_fn(|| receive_now(&mut slow)).map(Result::unwrap).collect();
            assert_eq!(received.len() as u64, left);
            assert_eq!(*received.last().unwrap(), Some(events - 1));
        }
    }

    #[test]
    fn the_rings_of_a_tenant_share_its_bytes() {
        let (ring, semaphore) = ring(10_000);
        let other = Arc::new(Ring::new("b".into(), semaphore.clone()));
        let (mut slow, mut theirs) = (ring.listen(), other.listen());
        (0..100).for_each(|seq| ring.push(frame(seq, 1_000)));
        other.push(frame(0, 1_000));
        assert_eq!(receive_now(&mut theirs), Some(Ok(Some(0))), "another tenant gets a permit");
        assert_eq!(receive_now(&mut slow), Some(Err(Lagged)));
        // An event that finds no free bytes is dropped, and the listener gets `Lagged`.
        ring.push(frame(100, 20_000));
        assert_eq!(receive_now(&mut slow), Some(Err(Lagged)));
        assert_eq!(receive_now(&mut slow), None);
    }
}
