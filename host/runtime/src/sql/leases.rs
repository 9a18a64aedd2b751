//! Leases: claims of runs that are shared with other processes.

use flowcell_contract::{RunId, Tenant};

use super::{
    SharedStore,
    claims::{Grant, Key},
    heartbeat,
    queue::{Item, Turn},
};
use crate::ports::{Lease, Leases, StoreError};

/// A run without a driver that this process has claimed. The claim ends when the offer and all leases of the run are
/// dropped.
pub struct Offer {
    /// The tenant.
    pub tenant: Tenant,
    /// The run.
    pub run: RunId,
    /// The claim.
    pub lease: Lease,
}

impl SharedStore {
    /// Writes all queued items, and releases all runs of this process: for a process that ends without dropping the store.
    pub fn retire(&self) {
        let _ = self.settle();
        let owner = self.shared.claims.owner();
        // Without an answer the server releases them when the lease ends.
        let _ = self.worker.read(async move |connection| heartbeat::leave(connection, owner).await);
    }

    /// Claims at most `limit` runs without a driver, the longest waiting first: active ones, and parked ones with a timer that
    /// is due at `now`. An earlier claim without progress is no evidence against a run: its driver parks it when the process
    /// has died while the run was alone there.
    pub fn work(&self, tenant: &Tenant, now: u64, limit: usize) -> Result<Vec<Offer>, StoreError> {
        let found = self.worker.turn(|told| Turn::Work { tenant: tenant.clone(), now, limit, told })?;
        let offer = |(run, grant): (Key, Grant)| Offer { tenant: run.0, run: run.1, lease: self.lease(None, grant) };
        Ok(found.into_iter().map(offer).collect())
    }

    /// Creates a lease of a tree, for the driver of one of its runs.
    fn lease(&self, driven: Option<Key>, grant: Grant) -> Lease {
        let shared = self.shared.clone();
        Lease::new(move || {
            driven.iter().for_each(|run| shared.claims.stop(run));
            if shared.claims.leave(&grant) {
                shared.queue.push(Item::Release(grant));
            }
        })
    }
}

impl Leases for SharedStore {
    /// Does not claim a run if the server does not answer.
    fn claim(&self, tenant: &Tenant, run: &RunId) -> Option<Lease> {
        let key = (tenant.clone(), run.clone());
        let claims = &self.shared.claims;
        if !claims.drive(&key) {
            return None;
        }
        let held = claims.join(&key, &claims.top(&key));
        let claimed = match held {
            Some(grant) => Ok(Some(grant)),
            None => self.worker.turn(|told| Turn::Claim(key.clone(), told)),
        };
        match claimed {
            Ok(Some(grant)) => Some(self.lease(Some(key), grant)),
            Ok(None) => {
                claims.stop(&key);
                None
            }
            Err(error) => {
                tracing::warn!(run = %run, "cannot claim the run: {error}");
                claims.stop(&key);
                None
            }
        }
    }
}
