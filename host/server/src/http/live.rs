//! Events as they happen, for many who watch the same run: told once, and kept for a while for those who are slow.
//!
//! | room | what it is |
//! |---|---|
//! | ring | the latest events of a run, within a number and within the bytes of its tenant |

mod ring;

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use flowcell_contract::{RunId, Tenant};
use flowcell_engine::{Place, Room};
use flowcell_runtime::{
    Channel, Event, FlowRunner, LiveEvent,
    limits::READ_BYTES,
    paging::{Filling, Most},
};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::json;

use self::ring::{KEPT_BYTES, Lagged, Listener, Ring};
use super::fault::Fault;
use flowcell_platform::{Host, host::events::EventReader};

/// Bytes of events that all rings hold together, shared by tenants.
pub(crate) const RINGS_BYTES: u64 = 256 << 20;
/// Bytes of events that pages and streams hold together while they read and tell them, shared by tenants.
pub(crate) const PAGES_BYTES: u64 = 512 << 20;
/// Bytes of an event, as JSON text, that subscribers of its own run are told at once; they read a larger one.
pub(crate) const TOLD_BYTES: usize = 64 << 10;
/// Events of a page of a stream.
const PAGE: Most = Most { items: 256, bytes: 256 << 10 };
/// Bytes that an event takes beside its text.
const EVERY: u64 = 128;
/// Time between two looks at a run that nobody drives here.
const LOOK: Duration = Duration::from_secs(1);

/// One thing that is told.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    /// As JSON.
    pub(crate) text: Bytes,
    /// The number of the event, if it is one of the run itself that the journal holds.
    pub(crate) seq: Option<u64>,
    pub(crate) kind: Box<str>,
}

impl Told {
    /// The bytes, about, that it takes.
    fn bytes(&self) -> u64 {
        self.text.len() as u64 + EVERY
    }
}

/// Those who watch, run by run.
pub(crate) struct Audiences {
    all: Mutex<HashMap<(Tenant, RunId), Weak<Audience>>>,
    /// The bytes of what their rings hold.
    rings: Room,
    /// The bytes of pages.
    pages: Room,
}

impl Default for Audiences {
    fn default() -> Audiences {
        Audiences { all: Mutex::default(), rings: Room::new(RINGS_BYTES), pages: Room::new(PAGES_BYTES) }
    }
}

/// Those who watch one run.
struct Audience {
    run: RunId,
    told: Arc<Ring>,
    /// The number of the event of each run that comes next.
    next: Mutex<HashMap<RunId, u64>>,
    /// How often it hears the run.
    relays: AtomicUsize,
}

impl Audiences {
    /// Waits for room for a page of events of a tenant: for what is read of the journal, and for the page.
    pub(crate) async fn room(&self, tenant: &Tenant, most: Most) -> Place {
        self.pages.take(tenant, READ_BYTES as u64 + most.bytes).await
    }

    /// Those who watch a run; `from` is the event that they are told first, if they are the first.
    fn of(&self, tenant: &Tenant, run: &RunId, from: u64) -> Arc<Audience> {
        let mut all = self.all.lock();
        if let Some(audience) = all.get(&(tenant.clone(), run.clone())).and_then(Weak::upgrade) {
            return audience;
        }
        all.retain(|_, audience| audience.strong_count() > 0);
        let audience = Arc::new(Audience {
            run: run.clone(),
            told: Arc::new(Ring::new(tenant.clone(), self.rings.clone())),
            next: Mutex::new(HashMap::from([(run.clone(), from)])),
            relays: AtomicUsize::new(0),
        });
        all.insert((tenant.clone(), run.clone()), Arc::downgrade(&audience));
        audience
    }

    /// Lets those who watch a run hear it from its beginning.
    pub(crate) fn attend(&self, tenant: &Tenant, runner: &mut FlowRunner) {
        let audience = self.all.lock().get(&(tenant.clone(), runner.run_id().clone())).and_then(Weak::upgrade);
        if let Some(audience) = audience {
            runner.attach(Arc::new(Relay::new(audience)));
        }
    }
}

impl Audience {
    /// Takes the number of an event; false if it was told already.
    fn is_new(&self, event: &Event) -> bool {
        let mut next = self.next.lock();
        let next = next.entry(event.run_id.clone()).or_insert(0);
        let new = event.seq >= *next;
        *next = (*next).max(event.seq + 1);
        new
    }

    /// Tells an event. Of a large one subscribers are told that it is there: the journal has it.
    fn tell_event(&self, event: &Event) {
        let own = event.run_id == self.run;
        let told = told(event, own.then_some(event.seq), event.kind);
        let large = told.text.len();
        self.told.tell(match (own, large) {
            (true, TOLD_BYTES..) => Told { text: Bytes::new(), ..told },
            (false, _) if large as u64 > KEPT_BYTES => lagged(&event.run_id, event.seq, event.seq),
            _ => told,
        });
    }
}

/// Brings the events of a run to its audience.
struct Relay(Arc<Audience>);

impl Relay {
    fn new(audience: Arc<Audience>) -> Relay {
        audience.relays.fetch_add(1, Ordering::AcqRel);
        Relay(audience)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.0.relays.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Channel for Relay {
    fn on_event(&self, event: &Event) {
        if self.0.is_new(event) {
            self.0.tell_event(event);
        }
    }

    fn on_live(&self, event: &LiveEvent) {
        self.0.told.tell(told(event, None, &event.kind));
    }
}

fn told(event: &impl Serialize, seq: Option<u64>, kind: &str) -> Told {
    // Events are made of JSON, which can be written.
    let text = serde_json::to_vec(event).unwrap_or_default();
    Told { text: text.into(), seq, kind: kind.into() }
}

/// Says that events of a run are not told here.
fn lagged(run: &RunId, from: u64, to: u64) -> Told {
    told(&json!({ "v": 1, "type": "lagged", "runId": run, "from": from, "to": to }), None, "lagged")
}
/// A page of events.
pub(crate) struct Page {
    pub(crate) told: Vec<Told>,
    /// The number of the next event.
    pub(crate) next: u64,
    /// There may be more.
    pub(crate) is_full: bool,
    /// What it takes.
    pub(crate) bytes: u64,
}

/// Reads a page of a run's events from a number on. An event that does not fit is measured and not written.
pub(crate) fn page(reader: &mut EventReader, from: u64, most: Most) -> Result<Page, Fault> {
    let mut page = Page { told: Vec::new(), next: from, is_full: false, bytes: 0 };
    let mut filling = Filling::new(most);
    while let Some(event) = reader.next(page.next)? {
        if !filling.fits(event.data.measure(filling.left()).unwrap_or(u64::MAX)) {
            reader.put_back(event);
            page.is_full = true;
            break;
        }
        page.next = event.seq + 1;
        let told = told(&event, Some(event.seq), event.kind);
        filling.add(told.bytes());
        page.told.push(told);
    }
    page.bytes = filling.bytes();
    reader.pause();
    Ok(page)
}

/// What was read and not told yet, the last first, and the room that it takes.
#[derive(Default)]
struct Read {
    told: Vec<Told>,
    place: Option<Place>,
}

impl Read {
    /// What is told next. Only who has taken what was told last comes for more: until then it is in memory, and keeps its room.
    fn next(&mut self) -> Option<Told> {
        let told = self.told.pop();
        if told.is_none() {
            self.place = None;
        }
        told
    }
}

/// One who watches a run: what was so far, and then what comes, until the run has ended.
pub(crate) struct Subscriber {
    host: Host,
    run: RunId,
    audiences: Arc<Audiences>,
    audience: Arc<Audience>,
    coming: Listener,
    read: Read,
    /// What reads the journal, until everything in it is told.
    reader: Option<EventReader>,
    /// The number of the next event.
    next: u64,
    /// Everything that the journal had is told.
    caught_up: bool,
    /// Something was lost since the last event.
    lagged: bool,
    ended: bool,
}

impl Subscriber {
    /// Begins to watch a run that exists, and whose next event will have the number `coming`; `ended` says that there is none
    /// after `from`.
    pub(crate) fn new(
        host: Host,
        audiences: &Arc<Audiences>,
        run: RunId,
        from: u64,
        coming: u64,
        ended: bool,
    ) -> Subscriber {
        let audience = audiences.of(host.tenant(), &run, coming);
        // What is told from here on is kept while the journal is read.
        let coming = audience.told.listen();
        Subscriber {
            host,
            run,
            audiences: audiences.clone(),
            audience,
            coming,
            read: Read::default(),
            reader: None,
            next: from,
            caught_up: false,
            lagged: false,
            ended,
        }
    }

    /// Whether there is no more to tell.
    pub(crate) fn is_over(&self) -> bool {
        self.ended
    }

    /// What is told next; none: the run has ended.
    pub(crate) async fn next(&mut self) -> Option<Told> {
        loop {
            if let Some(told) = self.read.next() {
                self.ended |= told.seq.is_some() && &*told.kind == "harness:complete";
                return Some(told);
            }
            if self.ended {
                return None;
            }
            if !self.caught_up {
                self.catch_up().await?;
                continue;
            }
            match tokio::time::timeout(LOOK, self.coming.hear()).await {
                Ok(Ok(told)) => self.hear(told),
                Ok(Err(Lagged)) => self.lagged = true,
                Err(_) => self.look().await,
            }
        }
    }

    /// Takes in what the audience is told.
    fn hear(&mut self, told: Told) {
        match told.seq {
            Some(seq) if seq < self.next => return,
            Some(seq) if seq > self.next && self.lagged => {
                let lost = lagged(&self.run, self.next, seq - 1);
                self.next = seq;
                self.lagged = false;
                self.hear(told);
                return self.read.told.push(lost);
            }
            // Others began to listen later, or it is too large to be told here: the journal has it.
            Some(seq) if seq > self.next || told.text.is_empty() => return self.caught_up = false,
            Some(seq) => {
                self.next = seq + 1;
                self.read.told.push(told);
            }
            None => return self.read.told.push(told),
        }
        self.lagged = false;
    }

    /// Reads a page of the journal, and listens once there is nothing more.
    async fn catch_up(&mut self) -> Option<()> {
        let mut place = self.audiences.room(self.host.tenant(), PAGE).await;
        let (host, run, from, reader) = (self.host.clone(), self.run.clone(), self.next, self.reader.take());
        let read = tokio::task::spawn_blocking(move || {
            let mut reader = reader.map_or_else(|| host.events(&run), Ok)?;
            let page = page(&mut reader, from, PAGE)?;
            Ok::<_, Fault>((page, reader))
        });
        let (mut page, reader) = read.await.ok()?.ok()?;
        place.shrink(page.bytes);
        self.caught_up = !page.is_full;
        self.reader = page.is_full.then_some(reader);
        self.next = page.next;
        page.told.reverse();
        self.read = Read { told: page.told, place: Some(place) };
        if self.caught_up {
            self.listen().await;
        }
        Some(())
    }

    /// Hears whoever drives the run in this process.
    async fn listen(&self) {
        if self.audience.relays.load(Ordering::Acquire) > 0 {
            return;
        }
        if let Some(hub) = self.host.hubs().get(self.host.tenant(), &self.run) {
            // A run that has ended meanwhile tells the rest by its journal.
            let _ = hub.attach(Arc::new(Relay::new(self.audience.clone()))).await;
        }
    }

    /// Looks whether somebody drives the run by now, or another process has.
    async fn look(&mut self) {
        if self.audience.relays.load(Ordering::Acquire) == 0 {
            let (host, run) = (self.host.clone(), self.run.clone());
            let row = move || host.runs().and_then(|runs| runs.run(host.tenant(), &run).ok().flatten());
            let next = tokio::task::spawn_blocking(row).await.ok().flatten().map_or(0, |(_, next)| next);
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
    fn what_was_told_last_keeps_its_room_until_more_is_asked_for() {
        let room = Room::new(100);
        let told = Told { text: Bytes::from_static(b"{}"), seq: Some(0), kind: "a".into() };
        let mut read = Read { told: vec![told.clone(), told], place: room.try_take(&Tenant::local(), 30) };
        for _ in 0..2 {
            assert!(read.next().is_some());
            assert_eq!(room.taken(), 30);
        }
        assert!(read.next().is_none());
        assert_eq!(room.taken(), 0);
    }
}
