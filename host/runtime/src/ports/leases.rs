//! Leases: which process drives a run.

use flowcell_contract::{RunId, Tenant};

/// Claims of runs.
pub trait Leases: Send + Sync {
    /// Claims a run. Returns `None` if another driver has it. The claim ends when it is dropped.
    fn claim(&self, tenant: &Tenant, run: &RunId) -> Option<Lease>;
}

/// A claim of a run.
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
