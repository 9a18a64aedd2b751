//! Live events of a run for many subscribers. Each event is serialized once, and kept for a while for slow subscribers.
//!
//! | module | content |
//! |---|---|
//! | remote | the events of a run that another process drives |
//! | ring | the latest events of a run, bounded by their number and by the tenant's share of bytes |

mod remote;
pub(super) mod ring;

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use flowcell_contract::{RunId, Tenant};
use flowcell_engine::{FairSemaphore, Permit};
use flowcell_runtime::{
    Channel, Event, FlowRunner, LiveEvent,
    limits::MAX_READ_BYTES,
    paging::{Filling, PageLimits},
};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::json;

use self::{
    remote::Remote,
    ring::{Lagged, Listener, MAX_EVENTS_BYTES, Ring},
};
use super::api_error::ApiError;
use crate::blocking::blocking;
use flowcell_platform::{Host, host::events::EventReader};

/// The type of the notice that a stream has lost events.
pub(crate) const LAGGED: &str = "lagged";
/// Maximum size in bytes of the events in all rings together. A [`FairSemaphore`] divides it among tenants.
pub(crate) const MAX_RINGS_BYTES: u64 = 256 << 20;
/// Maximum size in bytes of all pages in memory: pages of lists, and pages of events that a stream reads from the
/// journal. A page counts from before its read until it is sent. A [`FairSemaphore`] divides the bytes among tenants.
pub(crate) const MAX_PAGES_BYTES: u64 = 512 << 20;
/// An event of the run itself with at least this many bytes of JSON text is announced to subscribers without its text.
/// They then read it from the journal.
pub(crate) const MIN_ANNOUNCED_BYTES: usize = 64 << 10;
/// The limits of a page that a stream reads from the journal.
const PAGE_LIMITS: PageLimits = PageLimits { items: 256, bytes: 256 << 10 };
/// Estimated overhead of an event in memory, in bytes.
const EVENT_OVERHEAD: u64 = 128;
/// The interval between two checks of a run that this process does not drive.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// One serialized event for subscribers.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// The JSON text. It is empty if subscribers have to read the event from the journal.
    pub(crate) text: Bytes,
    /// The number of the event in the run's journal. `None` for live events, which no journal records, for events of
    /// called runs, and for notices such as `lagged`.
    pub(crate) seq: Option<u64>,
    pub(crate) kind: Box<str>,
}

impl Frame {
    /// Returns the approximate size in memory, in bytes.
    fn bytes(&self) -> u64 {
        self.text.len() as u64 + EVENT_OVERHEAD
    }
}

/// The broadcasts of all runs that have subscribers.
pub(crate) struct Broadcasts {
    all: Mutex<HashMap<(Tenant, RunId), Weak<Broadcast>>>,
    /// Permits for the bytes that the rings hold.
    rings: FairSemaphore,
    /// Permits for the bytes of pages.
    pages: FairSemaphore,
}

impl Default for Broadcasts {
    fn default() -> Broadcasts {
        Broadcasts {
            all: Mutex::default(),
            rings: FairSemaphore::new(MAX_RINGS_BYTES),
            pages: FairSemaphore::new(MAX_PAGES_BYTES),
        }
    }
}

/// The broadcast of one run to its subscribers.
struct Broadcast {
    run: RunId,
    ring: Arc<Ring>,
    /// The number of the next expected event, for the run and each run that it has called.
    next: Mutex<HashMap<RunId, u64>>,
    /// The number of [`Forwarder`]s attached to the run. It is 0 if this process does not drive the run.
    forwarders: AtomicUsize,
    /// The events of the process that drives the run, if this process does not.
    remote: Remote,
    /// The time of the latest look at the store, and the number of the next event in it.
    looked: tokio::sync::Mutex<Option<(Instant, u64)>>,
}

impl Broadcasts {
    /// Waits for the permit of a page, and returns it. The permit covers the page, and the part of the journal that is
    /// read ahead ([`MAX_READ_BYTES`]).
    pub(crate) async fn take_page_permit(&self, tenant: &Tenant, most: PageLimits) -> Permit {
        self.pages.take(tenant, MAX_READ_BYTES as u64 + most.bytes).await
    }

    /// Creates a ring whose bytes count towards the tenant's share of the memory of all rings.
    pub(super) fn new_ring(&self, tenant: &Tenant) -> Arc<Ring> {
        Arc::new(Ring::new(tenant.clone(), self.rings.clone()))
    }

    /// Returns the broadcast of a run, and creates it if the run has none. A new broadcast begins with the event
    /// `from`.
    fn get_or_create(&self, tenant: &Tenant, run: &RunId, from: u64) -> Arc<Broadcast> {
        let mut all = self.all.lock();
        if let Some(broadcast) = all.get(&(tenant.clone(), run.clone())).and_then(Weak::upgrade) {
            return broadcast;
        }
        all.retain(|_, broadcast| broadcast.strong_count() > 0);
        let broadcast = Arc::new(Broadcast {
            run: run.clone(),
            ring: self.new_ring(tenant),
            next: Mutex::new(HashMap::from([(run.clone(), from)])),
            forwarders: AtomicUsize::new(0),
            remote: Remote::default(),
            looked: tokio::sync::Mutex::default(),
        });
        all.insert((tenant.clone(), run.clone()), Arc::downgrade(&broadcast));
        broadcast
    }

    /// If the run of `runner` has subscribers, attaches their broadcast to the run. The runner must not have begun to
    /// drive the run, so that the subscribers receive all events from then on. The run itself may have started
    /// earlier.
    pub(crate) fn attach_to(&self, tenant: &Tenant, runner: &mut FlowRunner) {
        let broadcast = self.all.lock().get(&(tenant.clone(), runner.run_id().clone())).and_then(Weak::upgrade);
        if let Some(broadcast) = broadcast {
            runner.attach(Arc::new(Forwarder::new(broadcast)));
        }
    }
}

impl Broadcast {
    /// Returns the number of the next event in the store. One subscriber looks at a time, and the others take its result
    /// for half of [`POLL_INTERVAL`]: each look blocks a thread, and thousands may listen to a parked run.
    async fn next_in_store(&self, host: &Host) -> u64 {
        let mut looked = self.looked.lock().await;
        if let Some((time, next)) = *looked
            && time.elapsed() < POLL_INTERVAL / 2
        {
            return next;
        }
        let (host, run) = (host.clone(), self.run.clone());
        let row = move || host.runs().and_then(|runs| runs.run(host.tenant(), &run).ok().flatten());
        let next = blocking(row).await.ok().flatten().map_or(0, |(_, next)| next);
        *looked = Some((Instant::now(), next));
        next
    }

    /// Records the number of an event. Returns false if the event was already sent.
    fn is_new(&self, event: &Event) -> bool {
        let mut next = self.next.lock();
        let next = next.entry(event.run_id.clone()).or_insert(0);
        let new = event.seq >= *next;
        *next = (*next).max(event.seq + 1);
        new
    }

    /// Sends an event to the subscribers. A large event of the run itself is announced without its text. An event of a
    /// called run that does not fit into the ring is replaced by a `lagged` notice.
    fn send_event(&self, event: &Event) {
        let own = event.run_id == self.run;
        let frame = frame(event, own.then_some(event.seq), event.kind);
        let large = frame.text.len();
        self.ring.push(match (own, large) {
            (true, MIN_ANNOUNCED_BYTES..) => Frame { text: Bytes::new(), ..frame },
            (false, _) if large as u64 > MAX_EVENTS_BYTES => lagged(&event.run_id, event.seq, event.seq),
            _ => frame,
        });
    }
}

/// A channel that forwards the events of a run to its broadcast.
struct Forwarder(Arc<Broadcast>);

impl Forwarder {
    fn new(broadcast: Arc<Broadcast>) -> Forwarder {
        broadcast.forwarders.fetch_add(1, Ordering::AcqRel);
        broadcast.remote.unsubscribe();
        Forwarder(broadcast)
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.0.forwarders.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Channel for Forwarder {
    fn on_event(&self, event: &Event) {
        if self.0.is_new(event) {
            self.0.send_event(event);
        }
    }

    fn on_live(&self, event: &LiveEvent) {
        self.0.ring.push(frame(event, None, &event.kind));
    }
}

pub(super) fn frame(event: &impl Serialize, seq: Option<u64>, kind: &str) -> Frame {
    // Events consist of JSON values, so they can always be serialized.
    let text = serde_json::to_vec(event).unwrap_or_default();
    Frame { text: text.into(), seq, kind: kind.into() }
}

/// Creates the notice `lagged`: the subscriber does not receive the events `from` to `to` of this run, and has to read
/// them by page.
fn lagged(run: &RunId, from: u64, to: u64) -> Frame {
    frame(&json!({ "v": 1, "type": LAGGED, "runId": run, "from": from, "to": to }), None, LAGGED)
}
/// A page of events from the journal.
pub(crate) struct Page {
    pub(crate) frames: Vec<Frame>,
    /// The number of the first event of the next page.
    pub(crate) next: u64,
    /// True if the page was filled, so that more events may follow.
    pub(crate) is_full: bool,
    /// The size of the events in memory, in bytes.
    pub(crate) bytes: u64,
}

/// Reads a page of a run's events, beginning with the event number `from`. If the next event would exceed the limits
/// `most`, puts it back into the reader, for the next page.
pub(crate) fn read_page(reader: &mut EventReader, from: u64, most: PageLimits) -> Result<Page, ApiError> {
    let mut page = Page { frames: Vec::new(), next: from, is_full: false, bytes: 0 };
    let mut filling = Filling::new(most);
    while let Some(event) = reader.next(page.next)? {
        if !filling.fits(event.data.measure(filling.left()).unwrap_or(u64::MAX)) {
            reader.put_back(event);
            page.is_full = true;
            break;
        }
        page.next = event.seq + 1;
        let frame = frame(&event, Some(event.seq), event.kind);
        filling.add(frame.bytes());
        page.frames.push(frame);
    }
    page.bytes = filling.bytes();
    reader.drop_read_ahead();
    Ok(page)
}

/// Events that are not sent to the client yet, in reverse order, so that `pop` takes the next one. Events from the
/// journal come with the permit for their bytes.
#[derive(Default)]
struct PendingEvents {
    frames: Vec<Frame>,
    permit: Option<Permit>,
}

impl PendingEvents {
    /// Returns the next event to send, or `None` after the last one. The caller asks again only when it has sent the
    /// previous event, so the permit is held until all events are sent.
    fn next(&mut self) -> Option<Frame> {
        let frame = self.frames.pop();
        if frame.is_none() {
            self.permit = None;
        }
        frame
    }
}

/// A subscriber of one run. It gets the past events from the journal, then the live events until the run has ended.
pub(crate) struct Subscriber {
    host: Host,
    run: RunId,
    broadcasts: Arc<Broadcasts>,
    broadcast: Arc<Broadcast>,
    coming: Listener,
    read: PendingEvents,
    /// The reader of the journal, until all its events are sent.
    reader: Option<EventReader>,
    /// The number of the next event to send.
    next: u64,
    /// True once all events of the journal are sent.
    caught_up: bool,
    /// The time of the latest check of the store.
    checked: Instant,
    /// True if the ring has dropped events after the last one that this subscriber received.
    lagged: bool,
    ended: bool,
}

impl Subscriber {
    /// Subscribes to an existing run. `from` is the number of the first event to send, and `coming` the number that the
    /// run's next event will have. `ended` is true if the run has ended and no event from `from` on is left to send.
    pub(crate) fn new(
        host: Host,
        broadcasts: &Arc<Broadcasts>,
        run: RunId,
        from: u64,
        coming: u64,
        ended: bool,
    ) -> Subscriber {
        let broadcast = broadcasts.get_or_create(host.tenant(), &run, coming);
        // From here on the ring keeps new events, so none is lost while the journal is read.
        let coming = broadcast.ring.listen();
        Subscriber {
            host,
            run,
            broadcasts: broadcasts.clone(),
            broadcast,
            coming,
            read: PendingEvents::default(),
            reader: None,
            next: from,
            caught_up: false,
            checked: Instant::now(),
            lagged: false,
            ended,
        }
    }

    /// Returns true if the run has ended and its last event was returned.
    pub(crate) fn is_over(&self) -> bool {
        self.ended
    }

    /// Returns the next event, or `None` if the run has ended or its journal cannot be read.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.read.next() {
                self.ended |= frame.seq.is_some() && &*frame.kind == "harness:complete";
                return Some(frame);
            }
            if self.ended {
                return None;
            }
            if !self.caught_up {
                self.catch_up().await?;
                continue;
            }
            // Live events of another process that follow each other quickly do not delay the check.
            let left = POLL_INTERVAL.saturating_sub(self.checked.elapsed());
            if left.is_zero() {
                self.poll_store().await;
                continue;
            }
            match tokio::time::timeout(left, self.coming.receive()).await {
                Ok(Ok(frame)) => self.process(frame),
                Ok(Err(Lagged)) => self.lagged = true,
                Err(_) => {}
            }
        }
    }

    /// Processes one event of the broadcast.
    fn process(&mut self, frame: Frame) {
        match frame.seq {
            Some(seq) if seq < self.next => return,
            Some(seq) if seq > self.next && self.lagged && !frame.text.is_empty() => {
                let lost = lagged(&self.run, self.next, seq - 1);
                self.next = seq;
                self.lagged = false;
                self.process(frame);
                return self.read.frames.push(lost);
            }
            // Events are missing because the broadcast began after them, or this event was announced without its text.
            // Read the journal.
            Some(seq) if seq > self.next || frame.text.is_empty() => return self.caught_up = false,
            Some(seq) => {
                self.next = seq + 1;
                self.read.frames.push(frame);
            }
            None => return self.read.frames.push(frame),
        }
        self.lagged = false;
    }

    /// Reads the next page of the journal. After the last page, attaches the broadcast to the live run. Returns `None`
    /// if the journal cannot be read.
    async fn catch_up(&mut self) -> Option<()> {
        let mut permit = self.broadcasts.take_page_permit(self.host.tenant(), PAGE_LIMITS).await;
        let (host, run, from, reader) = (self.host.clone(), self.run.clone(), self.next, self.reader.take());
        let read = blocking(move || {
            let mut reader = reader.map_or_else(|| host.events(&run), Ok)?;
            let page = read_page(&mut reader, from, PAGE_LIMITS)?;
            Ok::<_, ApiError>((page, reader))
        });
        let (mut page, reader) = read.await.ok()?.ok()?;
        permit.shrink(page.bytes);
        self.caught_up = !page.is_full;
        self.reader = page.is_full.then_some(reader);
        self.next = page.next;
        let has_end = page.frames.last().is_some_and(|frame| &*frame.kind == "harness:complete");
        page.frames.reverse();
        self.read = PendingEvents { frames: page.frames, permit: Some(permit) };
        if self.caught_up && !has_end {
            self.listen().await;
        }
        Some(())
    }

    /// If this process drives the run, and the broadcast is not attached to the run yet, attaches it. If another process
    /// may drive the run, subscribes to the events of that process.
    async fn listen(&self) {
        if self.broadcast.forwarders.load(Ordering::Acquire) > 0 {
            return;
        }
        if let Some(hub) = self.host.hubs().get(self.host.tenant(), &self.run) {
            // If the run has ended in the meantime, its last events are in the journal.
            let _ = hub.attach(Arc::new(Forwarder::new(self.broadcast.clone()))).await;
        } else if let Some(relay) = self.host.live_relay() {
            let Broadcast { run, ring, remote, .. } = &*self.broadcast;
            remote.subscribe(relay, self.host.tenant(), run, self.next, ring);
        }
    }

    /// Checks whether another process has written events that are not sent yet, so that the journal is read again.
    /// Attaches the broadcast to the run if this process drives the run by now. Does nothing while a [`Forwarder`] is
    /// attached.
    async fn poll_store(&mut self) {
        self.checked = Instant::now();
        if self.broadcast.forwarders.load(Ordering::Acquire) == 0 {
            let next = self.broadcast.next_in_store(&self.host).await;
            self.caught_up = next <= self.next;
            self.listen().await;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn events_hold_their_permit_until_the_reader_asks_for_more() {
        let semaphore = FairSemaphore::new(100);
        let frame = Frame { text: Bytes::from_static(b"{}"), seq: Some(0), kind: "a".into() };
        let mut read =
            PendingEvents { frames: vec![frame.clone(), frame], permit: semaphore.try_take(&Tenant::local(), 30) };
        for _ in 0..2 {
            assert!(read.next().is_some());
            assert_eq!(semaphore.taken(), 30);
        }
        assert!(read.next().is_none());
        assert_eq!(semaphore.taken(), 0);
    }
}
