//! The shared store: a MySQL, MariaDB or PostgreSQL server, and any number of processes.
//!
//! | room | what it is |
//! |---|---|
//! | `dialect` | what differs between the servers |
//! | `link`, `values` | connections: statements out, rows in, and what an error means |
//! | `schema`, `settings` | the tables, and whether the server keeps what it says that it keeps |
//! | `options` | what a process chooses |
//! | `claims` | which runs this process may write to |
//! | `door` | the way into the thread that talks to the server |
//! | `queue`, `writer` | what waits to be written, and the one task that writes |
//! | `batch`, `beside` | what one commit writes: units, and everything beside them |
//! | `registry` | what operators keep beside the runs |
//! | `sessions` | sessions and the states of steps, written with the units that they follow from |
//! | `work`, `sweep` | what is done between two commits: claims, and removing what nothing names |
//! | `reader` | everything that is read |
//! | `heartbeat` | the lease of this process |
//! | `whole` | the store as a whole, to be looked through and copied |
//! | `ports` | the ports of the driver, over all of this |
//! | `inbox` | what is asked of runs that another process drives |
//!
//! Each process writes in the order of its appends, and a commit is all or nothing, as with the embedded store. What
//! another process may have taken is not written: every commit locks the rows of its runs and compares the epochs under
//! which they were claimed. State is written if its versions are those that were seen; if they are not, the runs of that
//! flow go on from what is durable, like after a crash. While the server is away, commits are tried again: one whose end
//! nobody knows is looked for before it is repeated. When a commit fails for another reason, the process stops.
//!
//! Everything that talks to the server runs on one thread, the store's. Whoever reads waits for that thread.

mod batch;
mod beside;
mod claims;
mod dialect;
mod door;
mod heartbeat;
mod inbox;
mod link;
mod options;
mod ports;
mod queue;
mod reader;
mod registry;
mod schema;
mod sessions;
mod settings;
mod sweep;
mod trouble;
mod values;
mod whole;
mod work;
mod writer;

use std::{
    collections::HashMap,
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use flowcell_contract::{RunId, Tenant, Value};
use parking_lot::{Mutex, MutexGuard};
use tokio::{sync::mpsc as jobs, task::LocalSet};

use crate::{
    limits::SERVER_PATIENCE_MS,
    ports::{Entry, Lease, StoreError},
    rows::Swept,
};
use claims::{Claims, Grant, Key};
pub use dialect::Dialect;
use door::{Door, Job};
pub use inbox::Outcome;
use link::{Links, Trouble};
pub use options::Options;
use queue::{Item, Queue, Turn};

/// Why a shared store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenServerError {
    /// It is not there, or does not let this process in.
    #[error("the server cannot be reached: {0}")]
    Unreachable(String),
    /// The server lacks what the store needs.
    #[error("{name} {found} is too old: the store needs {least} or later")]
    TooOld {
        /// Which server.
        name: &'static str,
        /// The version that it has.
        found: String,
        /// The first that will do.
        least: String,
    },
    /// A setting of the server breaks what the store promises.
    #[error("`{setting}` is `{found}`: {why}; set it with: {fix}")]
    Unsafe {
        /// Which setting.
        setting: &'static str,
        /// What it is.
        found: String,
        /// What could happen.
        why: &'static str,
        /// What mends it.
        fix: String,
    },
    /// A later version of Flowcell wrote it.
    #[error("the store has version {found}, and this Flowcell reads up to {known}")]
    Newer {
        /// The version that it has.
        found: u64,
        /// The latest that is known.
        known: u64,
    },
}

impl From<Trouble> for OpenServerError {
    fn from(trouble: Trouble) -> OpenServerError {
        OpenServerError::Unreachable(trouble.to_string())
    }
}

/// What the tasks of a store share.
struct Shared {
    links: Links,
    claims: Claims,
    queue: Queue,
    visible: Mutex<Visible>,
    /// Held by whoever may find that the lease is over, until this process is an owner again: what is claimed after that is
    /// not lost to somebody who finds the same later.
    entering: tokio::sync::Mutex<()>,
    options: Options,
}

impl Shared {
    fn visible(&self) -> MutexGuard<'_, Visible> {
        self.visible.lock()
    }

    /// State of a flow that this process has shown is not written: it is not shown any more, and the runs that may have
    /// seen it are given up. Answers whether there were any.
    fn distrust(&self, tenant: &Tenant, flow: &str) -> bool {
        self.visible().state.retain(|(whose, of, _), _| whose != tenant || **of != *flow);
        self.claims.lose_flow(tenant, flow)
    }
}

type StateKey = (Tenant, Arc<str>, String);

/// What this process sees though it is not durable yet.
#[derive(Default)]
struct Visible {
    state: HashMap<StateKey, (Value, u64)>,
    blobs: HashMap<(Tenant, Arc<str>), Arc<[u8]>>,
    cache: HashMap<(Tenant, String), (Value, Option<u64>)>,
}

impl Visible {
    /// The state that came with an entry is durable, or never will be.
    fn settle(&mut self, entry: &Entry, written: bool) {
        let Some(staged) = &entry.writes else { return };
        for (write, version) in &staged.writes {
            let key = (entry.tenant.clone(), staged.flow.clone(), write.key.clone());
            // A later write of the same key is not durable yet; after one that is refused it will not be either.
            if !written || self.state.get(&key).is_some_and(|(_, latest)| latest == version) {
                self.state.remove(&key);
            }
        }
    }
}

/// This process's share of a store.
pub struct ServerStore {
    door: Door,
    shared: Arc<Shared>,
    /// Held by whoever stages state: what is seen and what is staged belong together.
    staging: Mutex<()>,
    thread: Option<JoinHandle<()>>,
}

/// A run that somebody should drive, and that this process has claimed. It is given back when the offer is dropped and
/// nobody drives the run.
pub struct Offer {
    /// Whose run.
    pub tenant: Tenant,
    /// Which run.
    pub run: RunId,
    /// The claim.
    pub lease: Lease,
}

impl ServerStore {
    /// Opens the store at a URL, `mysql://…`, `mariadb://…` or `postgres://…`, and makes its tables if they are missing.
    /// Refused are servers that are too old, or set so that they could lose what they have acknowledged.
    pub fn open(url: &str, options: Options) -> Result<ServerStore, OpenServerError> {
        let (opened, answer) = mpsc::channel();
        let (jobs, taken) = jobs::unbounded_channel();
        let url = url.to_owned();
        let failed = |error: std::io::Error| OpenServerError::Unreachable(error.to_string());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let work = move || {
            LocalSet::new().block_on(&runtime, async move {
                match prepare(&url, options).await {
                    Err(error) => _ = opened.send(Err(error)),
                    Ok(shared) => {
                        let _ = opened.send(Ok(shared.clone()));
                        attend(shared, taken).await;
                    }
                }
            });
        };
        let thread = std::thread::Builder::new().name("flowcell-store".into()).spawn(work).map_err(failed)?;
        let gone = |_| OpenServerError::Unreachable("the store's thread ended".into());
        let shared = answer.recv().map_err(gone)??;
        let door = Door::new(jobs, shared.clone());
        Ok(ServerStore { door, shared, staging: Mutex::new(()), thread: Some(thread) })
    }

    /// How many commits there were. Everything that one commit makes durable has waited for the server together.
    pub fn commits(&self) -> u64 {
        self.shared.queue.commits()
    }

    /// Removes the facts of a run that is over, and of the runs below it. Its id is not used again.
    pub fn forget(&self, tenant: &Tenant, run: &RunId) {
        self.shared.queue.push(Item::Forget { tenant: tenant.clone(), run: run.clone() });
    }

    /// Removes the blobs that nothing names, and that nobody has put for a while. Waits until it is done.
    pub fn sweep(&self, tenant: &Tenant) -> Result<Swept, StoreError> {
        self.door.turn(|told| Turn::Sweep(tenant.clone(), told))
    }

    /// Waits until everything that was handed over before is durable, or refused.
    pub fn settle(&self) -> Result<(), StoreError> {
        self.door.turn(Turn::Settle)
    }

    /// Writes what was handed over, and gives back at once what this process owns, as its end would: for a process that
    /// ends without dropping the store.
    pub fn retire(&self) {
        let _ = self.settle();
        let owner = self.shared.claims.owner();
        // Who cannot be told notices when the lease is over.
        let _ = self.door.read(async move |link| heartbeat::leave(link, owner).await);
    }

    /// Claims up to so many runs that somebody should drive and nobody does, the longest waiting first: active ones, and
    /// parked ones with a timer that is due at `now`. A claim of which nothing came is no evidence against a run: its driver
    /// parks it when the process has died while the run was alone there.
    pub fn work(&self, tenant: &Tenant, now: u64, limit: usize) -> Result<Vec<Offer>, StoreError> {
        let found = self.door.turn(|told| Turn::Work { tenant: tenant.clone(), now, limit, told })?;
        let offer = |(run, grant): (Key, Grant)| Offer { tenant: run.0, run: run.1, lease: self.lease(None, grant) };
        Ok(found.into_iter().map(offer).collect())
    }

    /// A lease of a tree, for whoever drives a run of it.
    fn lease(&self, driven: Option<Key>, grant: Grant) -> Lease {
        let shared = self.shared.clone();
        Lease::new(move || {
            driven.iter().for_each(|run| shared.claims.stop(run));
            if shared.claims.leave(&grant) {
                shared.queue.push(Item::Release(grant));
            }
        })
    }

    /// Keeps bytes of which the caller knows the SHA-256, in hexadecimal.
    pub fn keep(&self, tenant: &Tenant, hash: &Arc<str>, bytes: Arc<[u8]>, mime: &str) {
        self.shared.visible().blobs.insert((tenant.clone(), hash.clone()), bytes.clone());
        let blob = Item::Blob { tenant: tenant.clone(), hash: hash.clone(), bytes, mime: mime.into() };
        self.shared.queue.push(blob);
    }
}

/// Looks at the server, makes what is missing, and becomes an owner.
async fn prepare(url: &str, options: Options) -> Result<Arc<Shared>, OpenServerError> {
    let links = Links::new(url, options.patience)?;
    // Making tables may take longer than whatever comes later.
    let mut link = links.link(options.patience.max(Duration::from_millis(SERVER_PATIENCE_MS))).await?;
    settings::check(&mut link).await?;
    schema::migrate(&mut link).await?;
    let asked = Instant::now();
    let owner = heartbeat::enter(&mut link, &options.name, options.lease.as_millis() as u64).await?;
    drop(link);
    let claims = Claims::new(owner, asked, options.unfenced);
    Ok(Arc::new(Shared {
        links,
        claims,
        queue: Queue::default(),
        visible: Mutex::default(),
        entering: Default::default(),
        options,
    }))
}

/// What the store's thread does until the store is dropped.
async fn attend(shared: Arc<Shared>, mut taken: jobs::UnboundedReceiver<Job>) {
    tokio::task::spawn_local(heartbeat::beat(shared.clone()));
    let writer = tokio::task::spawn_local(writer::Writer::new(shared.clone()).run());
    let answering = shared.clone();
    let answers = tokio::task::spawn_local(async move {
        while let Some(job) = taken.recv().await {
            tokio::task::spawn_local(job(answering.clone()));
        }
    });
    let _ = writer.await;
    if shared.queue.is_closed() {
        // Others take what is left when the lease is over.
        if let Ok(mut link) = shared.links.link(shared.options.patience).await {
            let _ = heartbeat::leave(&mut link, shared.claims.owner()).await;
        }
        shared.links.close().await;
    } else {
        // Nothing is written any more, and what is there can be read.
        let _ = answers.await;
    }
}

impl Drop for ServerStore {
    /// Writes what is queued.
    fn drop(&mut self) {
        self.shared.queue.close();
        self.door.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
