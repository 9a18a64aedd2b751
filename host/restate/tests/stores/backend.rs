//! Opens stores on the cluster, with the interface that the suite of the runtime expects.

use std::sync::{Arc, Mutex};

use flowcell_contract::RunId;
use flowcell_restate::RestateStore;
use flowcell_runtime::{
    RunStatus, World,
    ports::{
        Blobs, CacheStore, Entry, Journal, Lease, Leases, Removed, Removing, Runs, StateStore, StoreError,
        StoredStatus, Sweep, Swept, Undeletable,
    },
    shared::SharedRuns,
};

use super::units::{everything, unit, with_status};
use crate::{
    flows::{FlowMap, Nodes, graph, tenant},
    server::{Own, free_port, own_server, tables},
    supervisor::open,
};

/// A cluster of one node, and the place of a process.
pub(crate) struct Backend {
    _server: Own,
    url: String,
}

/// An open store.
pub(crate) struct Store {
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) state: Arc<dyn StateStore>,
    pub(crate) cache: Arc<dyn CacheStore>,
    pub(crate) blobs: Arc<dyn Blobs>,
    pub(crate) leases: Arc<dyn Leases>,
    pub(crate) sweep: Arc<dyn Sweep>,
    /// `None`: the suite asks whether the cache outlives the process.
    pub(crate) server: Option<()>,
    store: Arc<RestateStore>,
    claimed: Mutex<Vec<(RunId, Lease)>>,
}

impl Backend {
    /// Starts a cluster. Returns `None` if the server is not installed.
    pub(crate) fn on_the_cluster() -> Option<Backend> {
        let server = own_server()?;
        let url = server.url(&tables()?, free_port());
        Some(Backend { _server: server, url })
    }

    /// Returns true: the data outlive the process.
    pub(crate) fn lasts(&self) -> bool {
        true
    }

    pub(crate) fn open(&self) -> Store {
        let store = Arc::new(open(&self.url).unwrap());
        store.listen().unwrap();
        Store {
            journal: store.clone(),
            state: store.clone(),
            cache: store.tables().clone(),
            blobs: store.blobs(),
            leases: store.clone(),
            sweep: store.clone(),
            server: None,
            store,
            claimed: Mutex::default(),
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

    /// Appends a unit to a run. The store first claims the run, and holds the claim until `let_go`.
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

    /// Gives up all claims of `append` and `hold`, when all writes are durable.
    pub(crate) fn let_go(&self) {
        self.settle();
        self.claimed.lock().unwrap().clear();
    }

    /// Waits until all writes are durable.
    pub(crate) fn settle(&self) {
        SharedRuns::settle(&*self.store).unwrap();
    }

    pub(crate) fn runs(&self) -> &dyn Runs {
        &*self.store
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

    fn let_go_of(&self, run: &str) {
        self.settle();
        self.claimed.lock().unwrap().retain(|(known, _)| known.as_str() != run);
    }

    pub(crate) fn sweep(&self) -> Result<Swept, StoreError> {
        self.sweep.sweep(&tenant())
    }
}
