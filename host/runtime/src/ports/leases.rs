//! Leases: the right of one process to drive a run.

use flowcell_contract::{RunId, Tenant};

use super::StoreError;

/// Claims the right to drive runs.
pub trait Leases: Send + Sync {
    /// Claims a run. Returns `None` if another driver has it. The claim ends when the caller drops it.
    fn claim(&self, tenant: &Tenant, run: &RunId) -> Result<Option<Lease>, StoreError>;

    /// Claims a run whose id was made just now, so that the store need not look whether it has the run.
    fn claim_new(&self, tenant: &Tenant, run: &RunId) -> Result<Option<Lease>, StoreError> {
        self.claim(tenant, run)
    }
}

/// A claim of a run, released when it is dropped.
pub struct Lease(Option<Box<dyn FnOnce() + Send>>);

impl Lease {
    /// Creates a claim that calls `release` when it ends.
    pub fn new(release: impl FnOnce() + Send + 'static) -> Lease {
        Lease(Some(Box::new(release)))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(release) = self.0.take() {
            release();
        }
    }
}
