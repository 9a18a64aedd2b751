//! The sweep in memory.

use flowcell_contract::{RunId, Tenant};

use super::MemoryJournal;
use crate::ports::{StoreError, Sweep, Swept};

impl Sweep for MemoryJournal {
    fn forget(&self, tenant: &Tenant, run: &RunId) {
        self.runs.lock().forget(tenant, run);
    }

    /// Removes no blobs, because blobs in memory end with the process.
    fn sweep(&self, _: &Tenant) -> Result<Swept, StoreError> {
        Ok(Swept::default())
    }
}
