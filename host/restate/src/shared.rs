//! The part of one store that its ports, its handlers and its threads share.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use flowcell_contract::{RunId, Tenant};
use flowcell_runtime::{
    World,
    blocking::blocking,
    ports::{Entry, Journal, Record, StoreError},
    sql::SharedStore,
};
use parking_lot::Mutex;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use tokio::{runtime::Handle, task::spawn_blocking};

use crate::{
    blobs::ClusterBlobs,
    client::{Client, RequestError},
    index::Index,
    messages,
    recorded::Recorded,
    state::{Undecided, Versioned},
    tree::{Key, Pending, Queued, Tree, object_key},
    units,
    wire::{Drive, Form, Found, INBOX, PageOfUnits, RUN, ReadUnits, STATE},
};

/// The time that the end of this process waits until its trees are handed over.
const RETIRE_PATIENCE: Duration = Duration::from_secs(3);
/// The time after which a process looks whether another one got the invocation that it has asked for.
const LOOK_AFTER: Duration = Duration::from_millis(100);
/// The longest pause between two such looks.
const MAX_LOOK_PAUSE: Duration = Duration::from_secs(1);
/// The time that drivers wait for an invocation that they have asked for.
const INVOCATION_PATIENCE: Duration = Duration::from_secs(10);
/// The interval between two questions whether the ingress answers.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// The time for which the first units of a run are sent again while the cluster does not answer.
const SEND_PATIENCE: Duration = Duration::from_secs(600);
/// The time for which a read is tried again while the cluster does not answer.
const READ_PATIENCE: Duration = Duration::from_secs(5);

/// The answer to a one-way request.
#[derive(Deserialize)]
struct Sent {
    status: SentStatus,
}

#[derive(Deserialize, PartialEq, Eq)]
enum SentStatus {
    Accepted,
    /// A request with the same id was sent before.
    PreviouslyAccepted,
}

pub(crate) struct Shared {
    pub(crate) ingress: Client,
    pub(crate) index: Index,
    pub(crate) blobs: Arc<ClusterBlobs>,
    pub(crate) runtime: Handle,
    pub(crate) sessions: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) pending: Arc<Pending>,
    pub(crate) undecided: Arc<Undecided>,
    trees: Mutex<HashMap<Key, Arc<Tree>>>,
    /// The top runs of runs below them, for trees in this process.
    tops: Mutex<HashMap<Key, RunId>>,
    pub(crate) offers: Mutex<VecDeque<Arc<Tree>>>,
    /// Trees with entries for which no caller waits.
    dirty: Mutex<Vec<Arc<Tree>>>,
    /// The worlds of the tenants whose runs get messages.
    worlds: Mutex<HashMap<Tenant, Weak<World>>>,
    retired: AtomicBool,
}

impl Shared {
    pub(crate) fn new(ingress: Client, tables: &Arc<SharedStore>, runtime: Handle) -> Shared {
        Shared {
            ingress,
            index: Index::new(tables.clone()),
            blobs: Arc::new(ClusterBlobs::new(tables.clone())),
            runtime,
            sessions: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            pending: Arc::default(),
            undecided: Arc::default(),
            trees: Mutex::default(),
            tops: Mutex::default(),
            offers: Mutex::default(),
            dirty: Mutex::default(),
            worlds: Mutex::default(),
            retired: AtomicBool::new(false),
        }
    }

    /// Returns the present time in milliseconds since 1970.
    pub(crate) fn now(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// Asks repeatedly whether an ingress answers. The client records it.
    pub(crate) fn watch_ingress(self: &Arc<Shared>) {
        let shared = Arc::downgrade(self);
        self.runtime.spawn(async move {
            loop {
                tokio::time::sleep(PROBE_INTERVAL).await;
                let Some(shared) = shared.upgrade() else { return };
                shared.ingress.probe("/restate/health").await;
            }
        });
    }

    /// Ends the work of this process: hands its trees without a driver over to other processes.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
        let trees: Vec<_> = self.trees.lock().values().cloned().collect();
        trees.iter().for_each(|tree| tree.changed.notify_one());
        let until = Instant::now() + RETIRE_PATIENCE;
        let has_session = |tree: &Arc<Tree>| {
            let state = tree.lock();
            state.session.is_some() && state.drivers.is_empty()
        };
        while Instant::now() < until && trees.iter().any(has_session) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns the key of the tree of a run. Fails if only the database knows the runs above it, and does not answer.
    pub(crate) fn tree_key(&self, tenant: &Tenant, run: &RunId) -> Result<Key, StoreError> {
        let mut key = (tenant.clone(), run.clone());
        if let Some(top) = self.tops.lock().get(&key) {
            return Ok((key.0, top.clone()));
        }
        while !self.trees.lock().contains_key(&key) {
            match self.index.tables.find(tenant, &key.1) {
                Ok(Some(Record { parent: Some(parent), .. })) => key.1 = parent,
                Ok(_) => break,
                // Only a top run is known to be removed.
                Err(error) if error == StoreError::removed(&key.1) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(key)
    }

    /// Records the top run of a run below it.
    pub(crate) fn set_top(&self, tenant: &Tenant, run: &RunId, top: &RunId) {
        self.tops.lock().insert((tenant.clone(), run.clone()), top.clone());
    }

    /// Returns the key of the tree of an entry, also of one that begins a run.
    fn key_of(&self, entry: &Entry) -> Result<Key, StoreError> {
        let Some(parent) = entry.record.as_ref().and_then(|record| record.parent.as_ref()) else {
            return self.tree_key(&entry.tenant, &entry.run);
        };
        let key = self.tree_key(&entry.tenant, parent)?;
        self.set_top(&entry.tenant, &entry.run, &key.1);
        Ok(key)
    }

    /// Returns the tree with this top run, if this process has it.
    pub(crate) fn find(&self, key: &Key) -> Option<Arc<Tree>> {
        self.trees.lock().get(key).cloned()
    }

    pub(crate) fn tree(&self, key: &Key) -> Arc<Tree> {
        self.trees.lock().entry(key.clone()).or_insert_with(|| Tree::new(key.clone())).clone()
    }

    /// Drops a tree that nothing in this process needs.
    pub(crate) fn drop_if_idle(&self, tree: &Arc<Tree>) {
        let mut trees = self.trees.lock();
        if tree.is_idle() && trees.get(&tree.key).is_some_and(|known| Arc::ptr_eq(known, tree)) {
            trees.remove(&tree.key);
            drop(trees);
            let below = tree.lock().heads.len() > 1;
            if below {
                self.tops.lock().retain(|(tenant, _), top| *tenant != tree.key.0 || *top != tree.key.1);
            }
        }
    }

    /// Queues an entry for the next commit of its tree.
    pub(crate) fn push(self: &Arc<Shared>, entry: Entry) {
        let key = match self.key_of(&entry) {
            Ok(key) => key,
            Err(error) => {
                tracing::warn!(run = %entry.run, "the driver stops, because the runs above its run are not known: {error}");
                return entry.durable.refuse();
            }
        };
        let tree = self.tree(&key);
        let is_forced = entry.force || entry.writes.is_some();
        let decision = entry.writes.as_ref().map(|staged| self.undecided.of_entry(&entry.tenant, staged));
        if !entry.rows.is_empty() {
            tracing::error!(run = %entry.run, "sessions of flows need another store than a Restate cluster");
            entry.durable.refuse();
            return;
        }
        if tree.push(Queued { _unsettled: self.pending.count(), _decision: decision, entry }) {
            self.begin(&tree);
        } else if !is_forced {
            self.dirty.lock().push(tree);
        }
    }

    /// Makes all queued entries due.
    pub(crate) fn force(self: &Arc<Shared>) {
        for tree in std::mem::take(&mut *self.dirty.lock()) {
            if tree.force() {
                self.begin(&tree);
            }
        }
    }

    /// Asks the cluster for an invocation that takes the queued entries. The first units of a new run travel with it.
    pub(crate) fn begin(self: &Arc<Shared>, tree: &Arc<Tree>) {
        let mut state = tree.lock();
        if state.session.is_some() || state.is_asked || state.queue.is_empty() {
            return;
        }
        state.is_asked = true;
        state.asked = self.sessions.fetch_add(1, Ordering::Relaxed) + 1;
        let number = state.asked;
        // The state of a flow decides about units with writes, so these are no input of an invocation.
        let is_new = state.queue.iter().all(|queued| queued.entry.writes.is_none())
            && state
                .queue
                .first()
                .is_some_and(|first| first.entry.run == tree.key.1 && first.entry.new_record().is_some());
        let first = if is_new { state.take_some() } else { Vec::new() };
        drop(state);
        let (shared, tree) = (self.clone(), tree.clone());
        self.runtime.spawn(async move {
            match is_new {
                true => shared.send_first(&tree, first).await,
                false => {
                    if let Err(error) = shared.send_drive(&tree.key, &Drive::default(), None, SEND_PATIENCE).await {
                        tracing::warn!(run = %tree.key.1, "cannot ask for an invocation: {error}");
                    }
                }
            }
            shared.watch_request(&tree, number);
        });
    }

    /// Sends the first units of a new run. The run is accepted when the cluster has them.
    async fn send_first(&self, tree: &Arc<Tree>, first: Vec<Queued>) {
        let refuse = |first: Vec<Queued>| first.iter().for_each(|queued| queued.entry.durable.refuse());
        let units = first.iter().map(|queued| units::stored(&self.blobs, &queued.entry)).collect::<Result<Vec<_>, _>>();
        let blobs = self.blobs.clone();
        let settled = spawn_blocking(move || blobs.settle()).await;
        let settled = settled.unwrap_or_else(|error| Err(StoreError::unavailable(error.to_string())));
        let units = match units.and_then(|units| settled.map(|()| units)) {
            Ok(units) => units,
            Err(error) => {
                tracing::warn!(run = %tree.key.1, "cannot store the first events of the run: {error}");
                tree.lock().refuse();
                return refuse(first);
            }
        };
        let drive = Drive { form: Form::PRESENT, first: units, ..Drive::default() };
        let sent = self.send_drive(&tree.key, &drive, Some("first"), SEND_PATIENCE).await;
        let is_accepted = match sent {
            Ok(true) => true,
            // This request was sent before, or another process has accepted a run with this id.
            Ok(false) => self.has_first(&tree.key, &drive).await,
            Err(error) => {
                tracing::warn!(run = %tree.key.1, "cannot accept the run: {error}");
                false
            }
        };
        if !is_accepted {
            self.index.forget(&tree.key.0, &tree.key.1);
            tree.lock().refuse();
            return refuse(first);
        }
        let mut recorded = Recorded::default();
        recorded.add(&drive.first);
        if let Err(error) = self.index.add_all(&tree.key.0, &recorded) {
            tracing::warn!(run = %tree.key.1, "lists do not show the run yet: {error}");
        }
        let mut state = tree.lock();
        for (run, head) in recorded.heads {
            state.heads.entry(run).or_insert(head);
        }
        for queued in &first {
            state.add_to_tail(&queued.entry.run, queued.entry.unit.clone());
        }
        drop(state);
        first.iter().for_each(|queued| queued.entry.durable.advance(queued.entry.unit.next_seq()));
    }

    /// Returns true if the object began with these units.
    async fn has_first(&self, key: &Key, drive: &Drive) -> bool {
        let Some(first) = drive.first.first() else { return false };
        for _ in 0..100 {
            let wanted = ReadUnits { run: first.run.clone(), from: 0, pages: 1 };
            if let Ok(page) = self.units(key, &wanted).await
                && let Some(unit) = page.units.first()
            {
                return unit.get() == first.unit.get();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        false
    }

    /// Refuses the drivers of a tree if the invocation that they asked for has begun in another process. Looks after
    /// [`LOOK_AFTER`] whether another process drives the tree or has driven it, and gives up after
    /// [`INVOCATION_PATIENCE`].
    pub(crate) fn watch_request(self: &Arc<Shared>, tree: &Arc<Tree>, number: u64) {
        let (shared, tree) = (self.clone(), tree.clone());
        self.runtime.spawn(async move {
            let until = Instant::now() + INVOCATION_PATIENCE;
            let waits = || {
                let state = tree.lock();
                state.session.is_none() && state.is_asked && state.asked == number
            };
            let (mut pause, mut seen) = (LOOK_AFTER, 0);
            // The invocation of a single look may be one of this process, which ends or begins.
            while Instant::now() < until && seen < 2 {
                tokio::time::sleep(pause).await;
                if !waits() {
                    return shared.drop_if_idle(&tree);
                }
                let known = tree.lock().heads.get(&tree.key.1).map_or(0, |head| head.next);
                let found = shared.clone().head(tree.key.clone(), tree.key.1.clone()).await;
                let is_elsewhere = |found: Found| found.driven || found.head.is_some_and(|head| head.next > known);
                seen = if found.is_ok_and(is_elsewhere) { seen + 1 } else { 0 };
                pause = (pause * 2).min(MAX_LOOK_PAUSE);
            }
            let mut state = tree.lock();
            if state.session.is_none() && state.is_asked && state.asked == number {
                state.is_asked = false;
                state.refuse();
            }
            drop(state);
            shared.drop_if_idle(&tree);
        });
    }

    /// Delivers the messages of a tree, if this process knows the tenant. Otherwise they wait until it does. Does nothing if
    /// they are being delivered: a driver applies a message as often as it gets it.
    pub(crate) fn deliver(&self, tree: &Arc<Tree>) {
        let world = self.worlds.lock().get(&tree.key.0).cloned();
        let Some(world) = world else { return };
        if !std::mem::replace(&mut tree.lock().is_delivering, true) {
            messages::begin(&self.runtime, world, tree.clone());
        }
    }

    /// Adds the world of a tenant, whose runs get messages from now on.
    pub(crate) fn add_world(&self, world: &Arc<World>) {
        self.worlds.lock().insert(world.tenant.clone(), Arc::downgrade(world));
        let trees: Vec<_> = self.trees.lock().values().filter(|tree| tree.key.0 == world.tenant).cloned().collect();
        trees.iter().filter(|tree| !tree.lock().mail.is_empty()).for_each(|tree| self.deliver(tree));
    }

    /// Sends a request to drive a tree. Returns false if a request with the same id was sent before.
    pub(crate) async fn send_drive(
        &self,
        key: &Key,
        drive: &Drive,
        id: Option<&str>,
        patience: Duration,
    ) -> Result<bool, StoreError> {
        let path = format!("{}/send", tree_path(RUN, key, "drive"));
        let sent: Sent = self.ingress.post(&path, id, drive, patience).await?;
        Ok(sent.status == SentStatus::Accepted)
    }

    /// Asks for an invocation of a tree, and waits until it has ended.
    pub(crate) async fn call_drive(&self, key: &Key, drive: &Drive) -> Result<(), StoreError> {
        let _: Option<()> = self.ingress.post(&tree_path(RUN, key, "drive"), None, drive, Duration::ZERO).await?;
        Ok(())
    }

    pub(crate) async fn head(self: Arc<Shared>, key: Key, run: RunId) -> Result<Found, StoreError> {
        Ok(self.ingress.post(&tree_path(RUN, &key, "head"), None, &run, READ_PATIENCE).await?)
    }

    pub(crate) async fn units(&self, key: &Key, wanted: &ReadUnits) -> Result<PageOfUnits, StoreError> {
        Ok(self.ingress.post(&tree_path(RUN, key, "units"), None, wanted, READ_PATIENCE).await?)
    }

    /// Returns a value of a flow's state.
    pub(crate) async fn state(&self, tenant: &Tenant, flow: &str, key: &str) -> Result<Option<Versioned>, StoreError> {
        let path = path(STATE, &object_key(tenant, flow), "get");
        Ok(self.ingress.post(&path, None, &key, READ_PATIENCE).await?)
    }

    /// Sends a request to the inbox of a tree.
    pub(crate) async fn call_inbox<I: serde::Serialize, O: serde::de::DeserializeOwned>(
        &self,
        key: &Key,
        handler: &str,
        input: &I,
    ) -> Result<O, RequestError> {
        self.ingress.post(&tree_path(INBOX, key, handler), None, input, READ_PATIENCE).await
    }

    /// Removes the objects of a tree.
    pub(crate) async fn remove(&self, key: &Key) -> Result<(), StoreError> {
        for (object, handler) in [(RUN, "remove"), (INBOX, "clear")] {
            let path = tree_path(object, key, handler);
            let _: Option<()> = self.ingress.post(&path, None, &(), READ_PATIENCE).await?;
        }
        Ok(())
    }

    /// Blocks this thread until a request is answered.
    pub(crate) fn block_on<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, answered) = std::sync::mpsc::sync_channel(1);
        self.runtime.spawn(async move { _ = answer.send(work.await) });
        blocking(|| answered.recv()).map_err(|_| StoreError::unavailable("the store is closed"))?
    }
}

/// Returns the path of a handler of an object in the ingress.
fn path(object: &str, key: &str, handler: &str) -> String {
    format!("/{object}/{}/{handler}", utf8_percent_encode(key, NON_ALPHANUMERIC))
}

/// Returns the path of a handler of an object of a run tree.
fn tree_path(object: &str, (tenant, top): &Key, handler: &str) -> String {
    path(object, &object_key(tenant, top.as_str()), handler)
}
