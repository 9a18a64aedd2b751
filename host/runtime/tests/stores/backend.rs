//! Opens a store of any kind, and gives the tests one interface to all kinds.

use std::sync::{Arc, Mutex};

use flowcell_contract::{RunId, Tenant};
use flowcell_runtime::{
    RunStatus, World,
    memory::{LocalLeases, MemoryBlobs, MemoryCache, MemoryDocuments, MemoryJournal, MemoryState},
    ports::{
        Blobs, CacheStore, DocumentStore, Entry, Journal, LabelChange, Lease, Leases, RelabelError, Removed, Removing,
        Runs, Sessions, StateStore, StoreError, StoredStatus, Sweep, Swept, Undeletable,
    },
    shared::SharedRuns,
    sql::{Dialect, Options, SharedStore},
    sqlite::{SqliteStore, stop_process},
};

use super::{
    servers::{Server, server},
    units::{everything, unit, with_status},
};
use crate::flows::{FlowMap, Nodes, graph, tenant};

/// Where a store is: in memory, in a folder, or in a database on a server. A store that is opened again in a folder or
/// on a server has the same data as before.
pub(crate) enum Backend {
    Memory,
    Folder(tempfile::TempDir),
    Server(&'static Server, String),
}

/// An open store, with each interface of the runtime that it implements.
pub(crate) struct Store {
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) state: Arc<dyn StateStore>,
    pub(crate) cache: Arc<dyn CacheStore>,
    pub(crate) blobs: Arc<dyn Blobs>,
    pub(crate) leases: Arc<dyn Leases>,
    pub(crate) sessions: Arc<dyn Sessions>,
    pub(crate) documents: Arc<dyn DocumentStore>,
    pub(crate) sweep: Arc<dyn Sweep>,
    pub(crate) sqlite: Option<Arc<SqliteStore>>,
    pub(crate) server: Option<Arc<SharedStore>>,
    /// The claims of the runs to which tests append units without a driver.
    claimed: Mutex<Vec<(RunId, Lease)>>,
}

impl Backend {
    pub(crate) fn sqlite() -> Backend {
        Backend::Folder(tempfile::tempdir().unwrap())
    }

    /// Creates a database on a server. Returns `None` if the server is not installed.
    pub(crate) fn server(dialect: Dialect) -> Option<Backend> {
        let server = server(dialect)?;
        Some(Backend::Server(server, server.database()))
    }

    /// Returns true if the data outlive the process.
    pub(crate) fn lasts(&self) -> bool {
        !matches!(self, Backend::Memory)
    }

    pub(crate) fn open(&self) -> Store {
        self.open_with(Options { spared: std::time::Duration::ZERO, ..Options::default() })
    }

    pub(crate) fn open_with(&self, options: Options) -> Store {
        match self {
            Backend::Memory => {
                let journal = Arc::new(MemoryJournal::default());
                Store {
                    sessions: journal.clone(),
                    sweep: journal.clone(),
                    documents: Arc::new(MemoryDocuments::default()),
                    journal,
                    state: Arc::new(MemoryState::default()),
                    cache: Arc::new(MemoryCache::default()),
                    blobs: Arc::new(MemoryBlobs::default()),
                    leases: Arc::new(LocalLeases::default()),
                    sqlite: None,
                    server: None,
                    claimed: Mutex::default(),
                }
            }
            Backend::Folder(folder) => {
                let store = SqliteStore::open_with(folder.path(), stop_process, &options.objects);
                let store = Arc::new(store.unwrap());
                Store {
                    journal: store.clone(),
                    state: store.clone(),
                    cache: Arc::new(MemoryCache::default()),
                    blobs: store.clone(),
                    leases: Arc::new(LocalLeases::default()),
                    sessions: store.clone(),
                    documents: store.clone(),
                    sweep: store.clone(),
                    sqlite: Some(store),
                    server: None,
                    claimed: Mutex::default(),
                }
            }
            Backend::Server(server, database) => {
                let store = Arc::new(SharedStore::open(&server.url(database), options).unwrap());
                Store {
                    journal: store.clone(),
                    state: store.clone(),
                    cache: store.clone(),
                    blobs: store.clone(),
                    leases: store.clone(),
                    sessions: store.clone(),
                    documents: store.clone(),
                    sweep: store.clone(),
                    sqlite: None,
                    server: Some(store),
                    claimed: Mutex::default(),
                }
            }
        }
    }

    /// Executes a statement directly in the database: `sqlite` for a folder, `server` for a server. Does nothing in
    /// memory.
    pub(crate) fn execute(&self, sqlite: &str, server: &str) {
        match self {
            Backend::Memory => {}
            Backend::Folder(folder) => {
                let database = rusqlite::Connection::open(folder.path().join("flowcell.db")).unwrap();
                database.execute_batch(sqlite).unwrap();
            }
            Backend::Server(on, database) => on.execute(database, &[server]),
        }
    }
}

impl Store {
    /// Returns a world with this store, whose only flow has these nodes.
    pub(crate) fn world(&self, nodes: &str) -> Arc<World> {
        let mut world = World::in_memory(Arc::new(Nodes), Arc::new(FlowMap(graph(nodes))));
        world.journal = self.journal.clone();
        world.state = self.state.clone();
        world.cache = self.cache.clone();
        world.blobs = self.blobs.clone();
        world.leases = self.leases.clone();
        Arc::new(world)
    }

    /// Appends a unit to a run. The store first claims the run, and holds the claim until `let_go`. A child run belongs
    /// to the claim of its parent.
    pub(crate) fn append(&self, entry: Entry) {
        if entry.record.as_ref().is_none_or(|record| record.parent.is_none()) {
            self.hold(entry.run.as_str());
        }
        self.journal.append(entry);
    }

    /// Claims a run until `let_go` is called or the store is dropped.
    pub(crate) fn hold(&self, run: &str) {
        let mut claimed = self.claimed.lock().unwrap();
        if !claimed.iter().any(|(known, _)| known.as_str() == run) {
            claimed.extend(self.leases.claim(&tenant(), &run.into()).unwrap().map(|lease| (run.into(), lease)));
        }
    }

    /// Gives up all claims of `append` and `hold`.
    pub(crate) fn let_go(&self) {
        self.claimed.lock().unwrap().clear();
    }

    /// Waits until all writes are durable.
    pub(crate) fn settle(&self) {
        match (&self.sqlite, &self.server) {
            (Some(store), _) => store.settle().unwrap(),
            (_, Some(store)) => store.settle().unwrap(),
            _ => {}
        }
    }

    pub(crate) fn runs(&self) -> &dyn Runs {
        match (&self.sqlite, &self.server) {
            (Some(store), _) => store.reader(),
            (_, Some(store)) => &**store,
            _ => panic!("a store in memory has no lists"),
        }
    }

    /// Changes labels of runs, and returns the result of each run.
    pub(crate) fn relabel(
        &self,
        tenant: &Tenant,
        runs: &[RunId],
        change: &LabelChange,
    ) -> Vec<Result<(), RelabelError>> {
        match (&self.sqlite, &self.server) {
            (Some(store), _) => store.relabel(tenant, runs, change).unwrap(),
            (_, Some(store)) => store.relabel(tenant, runs, change).unwrap(),
            _ => panic!("a store in memory has no labels"),
        }
    }

    /// Removes a run. Ends it before, if it has not ended.
    pub(crate) fn forget(&self, run: &str) {
        self.let_go_of(run);
        if let [Undeletable::NotEnded { .. }] = &self.remove(&[run]).kept[..] {
            let end = everything(&*self.journal, run).last().map_or(0, |unit| unit.next_seq());
            self.append(with_status(run, unit(end), StoredStatus::Ended(RunStatus::Succeeded)));
            self.let_go_of(run);
            assert_eq!(self.remove(&[run]).kept, []);
        }
    }

    /// Removes those of the runs that may be removed.
    pub(crate) fn remove(&self, runs: &[&str]) -> Removed {
        let runs: Vec<RunId> = runs.iter().map(|run| RunId::from(*run)).collect();
        self.sweep.remove(&tenant(), &runs, Removing::Each).unwrap()
    }

    /// Gives up the claim of one run.
    fn let_go_of(&self, run: &str) {
        self.claimed.lock().unwrap().retain(|(known, _)| known.as_str() != run);
    }

    pub(crate) fn sweep(&self) -> Result<Swept, StoreError> {
        self.sweep.sweep(&tenant())
    }
}
