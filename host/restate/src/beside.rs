//! The store beside the cluster: the index of runs, and the removal of runs and blobs.

use std::sync::Arc;

use flowcell_contract::{Blobs, RunId, Tenant};
use flowcell_runtime::{
    ports::{Journal, LabelChange, RelabelError, Runs, StoreError, Sweep},
    sqlite::SqliteStore,
};

/// The parts of a store that a store on a cluster uses for its own work.
pub trait Beside: Send + Sync {
    /// Returns the journal, which gets the rows of the index.
    fn journal(&self) -> &dyn Journal;

    /// Returns the lists of the index.
    fn runs(&self) -> &dyn Runs;

    /// Returns the removal of runs.
    fn sweep(&self) -> &dyn Sweep;

    /// Changes labels of runs, and returns the result of each run.
    fn relabel(
        &self,
        tenant: &Tenant,
        runs: &[RunId],
        change: &LabelChange,
    ) -> Result<Vec<Result<(), RelabelError>>, StoreError>;

    /// Stores a blob. `hash` is the SHA-256 of the bytes, in hexadecimal.
    fn keep(&self, tenant: &Tenant, hash: &Arc<str>, bytes: Arc<[u8]>, mime: &str);

    /// Waits until all earlier writes are durable or refused.
    fn settle(&self) -> Result<(), StoreError>;
}

impl Beside for SqliteStore {
    fn journal(&self) -> &dyn Journal {
        self
    }

    fn runs(&self) -> &dyn Runs {
        self.reader()
    }

    fn sweep(&self) -> &dyn Sweep {
        self
    }

    fn relabel(
        &self,
        tenant: &Tenant,
        runs: &[RunId],
        change: &LabelChange,
    ) -> Result<Vec<Result<(), RelabelError>>, StoreError> {
        SqliteStore::relabel(self, tenant, runs, change)
    }

    fn keep(&self, tenant: &Tenant, _: &Arc<str>, bytes: Arc<[u8]>, mime: &str) {
        // The store computes the same hash.
        self.put(tenant, bytes, mime);
    }

    fn settle(&self) -> Result<(), StoreError> {
        SqliteStore::settle(self)
    }
}
