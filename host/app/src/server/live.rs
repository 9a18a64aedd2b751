//! Events as they happen, for many who watch the same run: told once, and kept for a while for those who are slow.

use std::{
    collections::HashMap,
    ops::ControlFlow,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use flowcell_contract::{RunId, Tenant};
use flowcell_runtime::{Channel, Event, FlowRunner, LiveEvent};
use serde::Serialize;
use serde_json::json;
use tokio::sync::broadcast::{self, error::RecvError};

use super::fault::Fault;
use crate::Host;

/// Events that are kept for a subscriber who is slow.
pub(crate) const KEPT: usize = 1_024;
/// Events that are read from the journal at a time.
const PAGE: usize = 256;
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

/// Those who watch, run by run.
#[derive(Default)]
pub(crate) struct Audiences(Mutex<HashMap<(Tenant, RunId), Weak<Audience>>>);

/// Those who watch one run.
struct Audience {
    run: RunId,
    told: broadcast::Sender<Told>,
    /// The number of the event of each run that comes next.
    next: Mutex<HashMap<RunId, u64>>,
    /// How often it hears the run.
    relays: AtomicUsize,
}

impl Audiences {
    fn all(&self) -> MutexGuard<'_, HashMap<(Tenant, RunId), Weak<Audience>>> {
        // A panic while the lock was held cannot have left the map half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those who watch a run; `from` is the event that they are told first, if they are the first.
    fn of(&self, tenant: &Tenant, run: &RunId, from: u64) -> Arc<Audience> {
        let mut all = self.all();
        if let Some(audience) = all.get(&(tenant.clone(), run.clone())).and_then(Weak::upgrade) {
            return audience;
        }
        all.retain(|_, audience| audience.strong_count() > 0);
        let audience = Arc::new(Audience {
            run: run.clone(),
            told: broadcast::Sender::new(KEPT),
            next: Mutex::new(HashMap::from([(run.clone(), from)])),
            relays: AtomicUsize::new(0),
        });
        all.insert((tenant.clone(), run.clone()), Arc::downgrade(&audience));
        audience
    }

    /// Lets those who watch a run hear it from its beginning.
    pub(crate) fn attend(&self, tenant: &Tenant, runner: &mut FlowRunner) {
        let audience = self.all().get(&(tenant.clone(), runner.run_id().clone())).and_then(Weak::upgrade);
        if let Some(audience) = audience {
            runner.attach(Arc::new(Relay::new(audience)));
        }
    }
}

impl Audience {
    /// Takes the number of an event; false if it was told already.
    fn is_new(&self, event: &Event) -> bool {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let next = next.entry(event.run_id.clone()).or_insert(0);
        let new = event.seq >= *next;
        *next = (*next).max(event.seq + 1);
        new
    }

    fn tell(&self, told: Told) {
        // Nobody may listen at the moment.
        let _ = self.told.send(told);
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
            let own = event.run_id == self.0.run;
            self.0.tell(told(event, own.then_some(event.seq), event.kind));
        }
    }

    fn on_live(&self, event: &LiveEvent) {
        self.0.tell(told(event, None, &event.kind));
    }
}

fn told(event: &impl Serialize, seq: Option<u64>, kind: &str) -> Told {
    // Events are made of JSON, which can be written.
    let text = serde_json::to_vec(event).unwrap_or_default();
    Told { text: text.into(), seq, kind: kind.into() }
}

/// Events of a run from a number on, at most so many, and the number of the next.
pub(crate) fn page(host: &Host, run: &RunId, from: u64, limit: usize) -> Result<(Vec<Told>, u64), Fault> {
    let (mut page, mut next) = (Vec::new(), from);
    if limit > 0 {
        host.each_event(run, from, |event| {
            next = event.seq + 1;
            page.push(told(&event, Some(event.seq), event.kind));
            if page.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
    }
    Ok((page, next))
}

/// One who watches a run: what was so far, and then what comes, until the run has ended.
pub(crate) struct Subscriber {
    host: Host,
    run: RunId,
    audience: Arc<Audience>,
    coming: broadcast::Receiver<Told>,
    /// What was read and not told yet, the last first.
    read: Vec<Told>,
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
        audiences: &Audiences,
        run: RunId,
        from: u64,
        coming: u64,
        ended: bool,
    ) -> Subscriber {
        let audience = audiences.of(host.tenant(), &run, coming);
        // What is told from here on is kept while the journal is read.
        let coming = audience.told.subscribe();
        let read = Vec::new();
        Subscriber { host, run, audience, coming, read, next: from, caught_up: false, lagged: false, ended }
    }

    /// Whether there is no more to tell.
    pub(crate) fn is_over(&self) -> bool {
        self.ended
    }

    /// What is told next; none: the run has ended.
    pub(crate) async fn next(&mut self) -> Option<Told> {
        loop {
            if let Some(told) = self.read.pop() {
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
            match tokio::time::timeout(LOOK, self.coming.recv()).await {
                Ok(Ok(told)) => self.hear(told),
                Ok(Err(RecvError::Lagged(_))) => self.lagged = true,
                // The audience is kept, and so is its sender.
                Ok(Err(RecvError::Closed)) => return None,
                Err(_) => self.look().await,
            }
        }
    }

    /// Takes in what the audience is told.
    fn hear(&mut self, told: Told) {
        match told.seq {
            Some(seq) if seq < self.next => return,
            Some(seq) if seq > self.next && self.lagged => {
                let lagged = json!({ "v": 1, "type": "lagged", "runId": self.run, "from": self.next, "to": seq - 1 });
                self.read = vec![told, self::told(&lagged, None, "lagged")];
                self.next = seq + 1;
            }
            // Others began to listen later: the journal has what is between.
            Some(seq) if seq > self.next => return self.caught_up = false,
            Some(seq) => {
                self.next = seq + 1;
                self.read.push(told);
            }
            None => return self.read.push(told),
        }
        self.lagged = false;
    }

    /// Reads a page of the journal, and listens once there is nothing more.
    async fn catch_up(&mut self) -> Option<()> {
        let (host, run, from) = (self.host.clone(), self.run.clone(), self.next);
        let read = tokio::task::spawn_blocking(move || page(&host, &run, from, PAGE)).await;
        let (mut page, next) = read.ok()?.ok()?;
        self.caught_up = page.len() < PAGE;
        self.next = next;
        page.reverse();
        self.read = page;
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
