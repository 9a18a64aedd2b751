//! Leases: claims of runs that are shared with other processes.

use std::sync::Arc;

use flowcell_contract::{RunId, Tenant};

use super::{
    Shared, SharedStore, blobs,
    claims::{Grant, Key},
    heartbeat, inbox,
    queue::{Item, Turn},
};
use crate::{
    ports::{Lease, Leases, StoreError},
    shared::{Offer, SharedRuns},
    world::World,
};

/// Creates a lease of a tree, for the driver of one of its runs.
fn lease(shared: &Arc<Shared>, driven: Option<Key>, grant: Grant) -> Lease {
    let shared = shared.clone();
    Lease::new(move || {
        driven.iter().for_each(|run| shared.claims.stop(run));
        if shared.claims.leave(&grant) {
            shared.queue.push(Item::Release(grant));
        }
    })
}

impl SharedRuns for SharedStore {
    fn work(&self, tenant: &Tenant, now: u64, limit: usize) -> Result<Vec<Offer>, StoreError> {
        let found = self.worker.turn(|told| Turn::Work { tenant: tenant.clone(), now, limit, told })?;
        let offer =
            |(run, grant): (Key, Grant)| Offer { tenant: run.0, run: run.1, lease: lease(&self.shared, None, grant) };
        Ok(found.into_iter().map(offer).collect())
    }

    fn commits(&self) -> u64 {
        self.commits()
    }

    fn settle(&self) -> Result<(), StoreError> {
        self.settle()
    }

    fn keep(&self, tenant: &Tenant, hash: &Arc<str>, bytes: Arc<[u8]>, mime: &str) {
        blobs::keep(self, tenant, hash, bytes, mime);
    }

    fn retire(&self) {
        let _ = self.settle();
        let owner = self.shared.claims.owner();
        // If the server does not answer, the claims end with the lease.
        let _ = self.worker.read(async move |connection| heartbeat::leave(connection, owner).await);
    }

    fn serve(&self, world: &Arc<World>) -> Result<(), StoreError> {
        inbox::serve(world, &self.worker)
    }
}

impl Leases for SharedStore {
    /// Claims a run. Returns `None` if another driver has it, or if the server does not answer.
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
            Ok(Some(grant)) => Some(lease(&self.shared, Some(key), grant)),
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
