//! Leases in memory.

use std::{collections::HashSet, sync::Arc};

use flowcell_contract::{RunId, Tenant};
use parking_lot::Mutex;

use crate::ports::{Lease, Leases, StoreError};

/// The claims of the drivers in one process.
#[derive(Clone, Default)]
pub struct LocalLeases {
    claimed: Arc<Mutex<HashSet<(Tenant, RunId)>>>,
}

impl Leases for LocalLeases {
    fn claim(&self, tenant: &Tenant, run: &RunId) -> Result<Option<Lease>, StoreError> {
        let key = (tenant.clone(), run.clone());
        if !self.claimed.lock().insert(key.clone()) {
            return Ok(None);
        }
        let claimed = self.claimed.clone();
        Ok(Some(Lease::new(move || {
            claimed.lock().remove(&key);
        })))
    }
}
