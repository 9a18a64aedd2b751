//! The sweep in memory.

use flowcell_contract::{RunId, Tenant};

use super::MemoryJournal;
use crate::ports::{Removed, Removing, StoreError, Sweep, Swept};

impl Sweep for MemoryJournal {
    fn remove(&self, tenant: &Tenant, runs: &[RunId], removing: Removing) -> Result<Removed, StoreError> {
        Ok(self.runs.lock().remove(tenant, runs, removing))
    }

    /// Removes no blobs, because blobs in memory end with the process.
    fn sweep(&self, _: &Tenant) -> Result<Swept, StoreError> {
        Ok(Swept::default())
    }
}
