//! The shared store: a MySQL, MariaDB or PostgreSQL server, and any number of processes.
//!
//! | module | content |
//! |---|---|
//! | `units` | the journals of runs |
//! | `runs`, `search` | lists of runs, and the columns that they search |
//! | `state` | state of flows |
//! | `blobs` | blobs, and the large values that rows refer to |
//! | `place`, `upload` | the object store that has large files, and the files that go to it |
//! | `inbox` | messages to runs that another process drives |
//! | `index`, `indexed` | rows of runs whose journals are in another store |
//! | `documents` | the documents of operators |
//! | `sessions` | sessions and step states |
//! | `sweep` | the removal of runs, and of blobs that nothing refers to |
//! | `erase` | the removal of a tenant |
//! | `cache` | the cache |
//! | `claims`, `leases`, `work` | the runs that this process may write to, and how it claims them |
//! | `connection`, `sql_error`, `values` | statements, rows, and the meaning of errors |
//! | `copy_and_check` | checks of the whole store, and copies |
//! | `dialect` | the differences between the servers |
//! | `epoch`, `witness` | the detection of a database that was restored from an older copy |
//! | `heartbeat` | the lease of this process |
//! | `hosts` | the hosts of a URL, and the search for the primary |
//! | `outage`, `recovery` | the times in which the server cannot be used, and the tests for their end |
//! | `options` | how this process uses the store |
//! | `presence` | the proof that a process on the same machine has died |
//! | `queue`, `writer` | the items for the writer, and the tokio task that writes |
//! | `commit`, `side_writes` | one commit: units, and the writes beside them |
//! | `schema`, `backfill` | the tables, and their upgrades |
//! | `relay` | messages between the processes of a store that may be lost |
//! | `settings`, `replication` | the checks of the server's settings |
//! | `worker` | the jobs for the thread that uses the server |
//!
//! Each process writes in the order of its appends, and a commit is all or nothing, as in the embedded store. A process
//! writes only to runs that it has claimed, unless another process has claimed them since. Every commit locks the rows
//! of its runs, and compares the epochs of its claims.
//!
//! A commit writes state if the versions are the expected ones. If not, the runs of that flow continue from the
//! durable state, as after a crash. While the server is unreachable or accepts no writes, the writer repeats commits.
//! After a lost connection it first checks whether the commit has happened. Only when the server refuses the values of
//! a commit, the process stops.
//!
//! The store has one thread, which alone uses the server. Readers wait for that thread.

mod backfill;
mod blobs;
mod cache;
mod claims;
mod commit;
mod connection;
mod copy_and_check;
mod dialect;
mod documents;
mod epoch;
mod erase;
mod heartbeat;
mod hosts;
mod inbox;
mod index;
mod indexed;
mod leases;
mod options;
mod outage;
mod place;
mod presence;
mod queue;
mod recovery;
mod relay;
mod remove;
mod replication;
mod runs;
mod schema;
mod search;
mod sessions;
mod settings;
mod side_writes;
mod sql_error;
mod state;
mod sweep;
mod units;
mod upload;
mod values;
mod witness;
mod work;
mod worker;
mod writer;

use std::{
    collections::HashMap,
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use flowcell_contract::{Tenant, Value};
use parking_lot::{Mutex, MutexGuard};
use tokio::{sync::mpsc as jobs, task::LocalSet};

use crate::{
    limits::{MIGRATION_PATIENCE_MS, SERVER_PATIENCE_MS, SLOW_STATEMENT_MS},
    objects::{ObjectsError, Place},
    pieces::LargeFile,
    ports::{Entry, StoreError},
};
use claims::Claims;
use connection::{Connection, Connections};
pub use dialect::Dialect;
use epoch::Epoch;
pub use indexed::{IndexedRun, Journals, StatusNote};
pub use options::Options;
use presence::Presence;
use queue::{Item, Queue, Turn};
use relay::SqlRelay;
use sql_error::SqlError;
use worker::{Job, Worker};

/// An error of opening a shared store.
#[derive(Debug, thiserror::Error)]
pub enum OpenSharedStoreError {
    /// The server does not answer.
    #[error("the server cannot be reached: {0}")]
    Unreachable(String),
    /// The server refuses this process: the user, the password or the database is wrong.
    #[error("the server refuses the store: {0}")]
    Refused(String),
    /// The server is too old for the store.
    #[error("{name} {found} is too old: the store needs {least} or later")]
    TooOld {
        /// The name of the server.
        name: &'static str,
        /// The version of the server.
        found: String,
        /// The first sufficient version.
        least: String,
    },
    /// A setting of the server breaks a guarantee of the store.
    #[error("`{setting}` is `{found}`: {why}; set it with: {fix}")]
    Unsafe {
        /// The name of the setting.
        setting: &'static str,
        /// The value of the setting.
        found: String,
        /// The consequence of the value.
        why: &'static str,
        /// The statement or setting that corrects it.
        fix: String,
    },
    /// The files of the store are in an object store that cannot be used, or they are not where they were looked for.
    #[error(transparent)]
    Objects(#[from] ObjectsError),
    /// A later version of Flowcell wrote the store.
    #[error(
        "the store has version {found}, and this Flowcell reads up to {known}: use the version that wrote it, or a later \
         one"
    )]
    Newer {
        /// The version of the store.
        found: u64,
        /// The latest known version.
        known: u64,
    },
}

impl From<SqlError> for OpenSharedStoreError {
    fn from(error: SqlError) -> OpenSharedStoreError {
        match error.is_transient() {
            true => OpenSharedStoreError::Unreachable(error.to_string()),
            false => OpenSharedStoreError::Refused(error.to_string()),
        }
    }
}

/// The data that the tokio tasks of a store share.
struct Shared {
    connections: Connections,
    claims: Claims,
    presence: Presence,
    epoch: Epoch,
    queue: Queue,
    visible: Mutex<Visible>,
    /// The place of the large files.
    place: Place,
    /// The lock of the tokio task that replaces an expired lease. Two tasks may find the same expired lease. The second
    /// one then waits for this lock, sees the new lease, and so keeps the claims that were made under it.
    entering: tokio::sync::Mutex<()>,
    /// The connection that all reads use, once a snapshot is pinned.
    snapshot: tokio::sync::OnceCell<tokio::sync::Mutex<Connection>>,
    relay: Arc<SqlRelay>,
    /// The tenants whose messages this process delivers.
    served: Mutex<inbox::Served>,
    options: Options,
}

impl Shared {
    fn visible(&self) -> MutexGuard<'_, Visible> {
        self.visible.lock()
    }

    /// Drops the staged state of a flow whose write was refused, and gives up the runs that may have read this state.
    /// Returns true if there were such runs.
    fn drop_staged(&self, tenant: &Tenant, flow: &str) -> bool {
        self.visible().state.retain(|(whose, of, _), _| whose != tenant || **of != *flow);
        self.claims.lose_flow(tenant, flow)
    }
}

type StateKey = (Tenant, Arc<str>, String);

/// The values that this process sees before they are durable.
#[derive(Default)]
struct Visible {
    state: HashMap<StateKey, (Value, u64)>,
    blobs: HashMap<(Tenant, Arc<str>), Arc<[u8]>>,
    objects: HashMap<(Tenant, Arc<str>), LargeFile>,
    cache: HashMap<(Tenant, String), (Value, Option<u64>)>,
}

impl Visible {
    /// Drops the staged state of an entry that is durable or was refused.
    fn settle(&mut self, entry: &Entry, written: bool) {
        let Some(staged) = &entry.writes else { return };
        for (write, version) in &staged.writes {
            let key = (entry.tenant.clone(), staged.flow.clone(), write.key.clone());
            // The value of a later write stays, because it is not durable yet. After a refused write, a later one
            // never becomes durable, so its value is also dropped.
            if !written || self.state.get(&key).is_some_and(|(_, latest)| latest == version) {
                self.state.remove(&key);
            }
        }
    }
}

/// A store on a server, in the view of one process.
pub struct SharedStore {
    worker: Worker,
    shared: Arc<Shared>,
    /// The lock held while state is staged, so that the versions do not change meanwhile.
    staging: Mutex<()>,
    thread: Option<JoinHandle<()>>,
}

impl SharedStore {
    /// Opens the store at a URL, `mysql://…`, `mariadb://…` or `postgres://…`. Creates missing tables. Refuses
    /// servers that are too old, or whose settings could lose acknowledged data.
    pub fn open(url: &str, options: Options) -> Result<SharedStore, OpenSharedStoreError> {
        let (opened, answer) = mpsc::channel();
        let (jobs, taken) = jobs::unbounded_channel();
        let url = url.to_owned();
        let failed = |error: std::io::Error| OpenSharedStoreError::Unreachable(error.to_string());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let work = move || {
            LocalSet::new().block_on(&runtime, async move {
                match prepare(&url, options).await {
                    Err(error) => _ = opened.send(Err(error)),
                    Ok(shared) => {
                        let _ = opened.send(Ok(shared.clone()));
                        run_thread(shared, taken).await;
                    }
                }
            });
        };
        let thread = std::thread::Builder::new().name("flowcell-store".into()).spawn(work).map_err(failed)?;
        let gone = |_| OpenSharedStoreError::Unreachable("the store's thread ended".into());
        let shared = answer.recv().map_err(gone)??;
        let worker = Worker::new(jobs, shared.clone());
        Ok(SharedStore { worker, shared, staging: Mutex::new(()), thread: Some(thread) })
    }

    /// Returns the number of commits. All entries of one commit wait for the server together.
    pub fn commits(&self) -> u64 {
        self.shared.queue.commits()
    }

    /// Returns the random name that the store got when its tables were made. Copies of the database have it, too.
    pub fn name(&self) -> Result<String, StoreError> {
        self.worker.read(async |connection| place::name(connection).await)
    }

    /// Queues the row of a run whose journal is in another store. The row of a parent comes before those of its children.
    pub fn index(&self, run: IndexedRun) {
        self.shared.queue.push(Item::Index(Box::new(run)));
    }

    /// Waits until all earlier writes are durable or refused.
    pub fn settle(&self) -> Result<(), StoreError> {
        self.worker.turn(Turn::Settle)
    }
}

/// Checks the server, creates missing tables, and becomes an owner.
async fn prepare(url: &str, options: Options) -> Result<Arc<Shared>, OpenSharedStoreError> {
    let connections = Connections::new(url, options.patience)?;
    let mut connection = connect_first(&connections, &options).await?;
    settings::check(&mut connection).await?;
    if connections.may_fail_over() && hosts::without_lossy(url).is_none() {
        replication::check(&mut connection).await?;
    }
    let patience = connection.replace_patience(Duration::from_millis(MIGRATION_PATIENCE_MS));
    schema::migrate(&mut connection, options.start_patience, backfill::fill_searched_columns).await?;
    let epoch = Epoch::new(options.epoch_file.clone());
    epoch.check(&mut connection).await?;
    connection.replace_patience(patience);
    index::claim_journals(&mut connection, options.journals).await?;
    let place = place::claim(&mut connection, &options.objects).await?;
    let presence = Presence::new(options.presence_folder.as_deref(), &options.name, &epoch.lineage());
    let asked = Instant::now();
    connection.replace_patience(options.start_patience.max(patience));
    let entering = async {
        loop {
            let lease = options.lease.as_millis() as u64;
            match heartbeat::become_owner(&mut connection, presence.name(), lease).await {
                // A commit of another process that waits for a replica may hold a lock for longer than a statement waits.
                Err(SqlError::Transient(_)) if asked.elapsed() < options.start_patience => {
                    tokio::time::sleep(START_RETRY_INTERVAL).await;
                }
                owner => return owner,
            }
        }
    };
    let owner = tell_while(entering, Duration::from_millis(SLOW_STATEMENT_MS), || {
        let (hosts, seconds) = (connections.addresses(), options.start_patience.as_secs());
        tell_waiting(&format!(
            "waiting for the database server {hosts}, for at most {seconds} s: it answers, but a commit has not returned; a \
             synchronous replica may be away"
        ));
    });
    let owner = owner.await?;
    // After the first commit, which waits for a replica that is away for as long as this one may.
    connection.replace_patience(patience);
    if let Err(error) = presence::end_leases(&mut connection, &presence.find_dead()).await {
        tracing::warn!("cannot end the leases of processes that have died, and tries again: {error}");
    }
    drop(connection);
    let claims = Claims::new(owner, asked, options.unfenced);
    Ok(Arc::new(Shared {
        connections,
        claims,
        presence,
        epoch,
        queue: Queue::default(),
        visible: Mutex::default(),
        place,
        entering: Default::default(),
        snapshot: Default::default(),
        relay: Arc::default(),
        served: Mutex::default(),
        options,
    }))
}

/// The pause between two tries at the start.
const START_RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// Interval between two messages about a wait at the start.
const TELL_INTERVAL: Duration = Duration::from_secs(60);

/// Connects to the server for the first time. Waits for a server that does not answer, and says so at once and then
/// each minute.
async fn connect_first(connections: &Connections, options: &Options) -> Result<Connection, SqlError> {
    let (began, mut told) = (Instant::now(), None::<Instant>);
    // The creation of tables may take longer than any later statement.
    let patience = options.patience.max(Duration::from_millis(SERVER_PATIENCE_MS));
    let left = || options.start_patience.saturating_sub(began.elapsed());
    let mut tell = |reason: &dyn std::fmt::Display| {
        if told.is_none_or(|told| told.elapsed() >= TELL_INTERVAL) {
            told = Some(Instant::now());
            let (hosts, seconds) = (connections.addresses(), left().as_millis().div_ceil(1_000));
            tell_waiting(&format!("waiting for the database server {hosts}, for at most {seconds} s: {reason}"));
        }
    };
    loop {
        match tell_while(connections.find(), Duration::from_secs(1), || tell(&"no answer yet")).await {
            Ok(()) => return connections.acquire(patience).await,
            Err(error) if error.is_transient() && !left().is_zero() => {
                tell(&error);
                tokio::time::sleep(START_RETRY_INTERVAL.min(left())).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Waits for work. Calls `tell` after a silence, and then each minute.
async fn tell_while<T>(work: impl Future<Output = T>, mut silence: Duration, mut tell: impl FnMut()) -> T {
    let mut working = std::pin::pin!(work);
    loop {
        if let Ok(done) = tokio::time::timeout(silence, &mut working).await {
            return done;
        }
        tell();
        silence = TELL_INTERVAL;
    }
}

/// Writes a message to the log. Without a log, writes it to standard error.
fn tell_waiting(message: &str) {
    if tracing::enabled!(target: "flowcell::store", tracing::Level::WARN) {
        tracing::warn!(target: "flowcell::store", "{message}");
    } else {
        eprintln!("flowcell: {message}");
    }
}

/// Runs the store's thread until the store is dropped.
async fn run_thread(shared: Arc<Shared>, mut taken: jobs::UnboundedReceiver<Job>) {
    tokio::task::spawn_local(heartbeat::renew_repeatedly(shared.clone()));
    let testing = tokio::task::spawn_local(recovery::test_suspect_server(shared.clone()));
    tokio::task::spawn_local(presence::watch(shared.clone()));
    let relaying = tokio::task::spawn_local(relay::run(shared.clone()));
    let writer = tokio::task::spawn_local(writer::Writer::new(shared.clone()).run());
    let answering = shared.clone();
    let answers = tokio::task::spawn_local(async move {
        while let Some(job) = taken.recv().await {
            tokio::task::spawn_local(job(answering.clone()));
        }
    });
    let _ = writer.await;
    // A pool waits for its connections when it is closed, and a test commit may wait for long.
    testing.abort();
    if let Some(pinned) = shared.snapshot.get() {
        pinned.lock().await.discard();
    }
    if shared.queue.is_closed() {
        // Releases the runs at once. Otherwise other processes could claim them only after the lease has ended.
        let patience = match shared.connections.outages().error(outage::Blocked::Writes, Duration::ZERO) {
            // The claims end with the lease.
            Some(_) => Duration::ZERO,
            None => shared.options.patience,
        };
        if let Ok(mut connection) = shared.connections.acquire(patience).await {
            let _ = heartbeat::release_runs(&mut connection, shared.claims.owner()).await;
        }
        shared.connections.close().await;
    } else {
        // The writer has failed, but reads continue.
        let _ = answers.await;
    }
    // The listener has to be dropped while this thread has a tokio runtime.
    relaying.abort();
    let _ = relaying.await;
}

impl Drop for SharedStore {
    /// Writes the queued items.
    fn drop(&mut self) {
        self.shared.queue.close();
        self.worker.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
