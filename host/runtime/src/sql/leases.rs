//! Leases: claims of runs that are shared with other processes.

use std::{sync::Arc, time::Duration};

use flowcell_contract::{RunId, Tenant};

use super::{
    Shared, SharedStore,
    claims::{Key, TreeLease},
    dialect::Dialect,
    heartbeat, inbox,
    outage::Blocked,
    queue::{Item, Turn},
    upload,
};
use crate::{
    ports::{LabelChange, Lease, Leases, RelabelError, StoreError},
    shared::{Offer, Relay, SharedRuns, StoreProcess},
    world::World,
};

/// Creates a lease of a tree, for the driver of one of its runs.
fn new_lease(shared: &Arc<Shared>, driven: Option<Key>, lease: TreeLease) -> Lease {
    let shared = shared.clone();
    Lease::new(move || {
        driven.iter().for_each(|run| shared.claims.remove_driver(run));
        if shared.claims.end_lease(&lease) {
            shared.queue.push(Item::Release(lease));
        }
    })
}

impl SharedRuns for SharedStore {
    fn work(&self, tenant: &Tenant, now: u64, limit: usize) -> Result<Vec<Offer>, StoreError> {
        let found = self.worker.turn(|answer| Turn::Work { tenant: tenant.clone(), now, limit, answer })?;
        let offer = |(run, lease): (Key, TreeLease)| Offer {
            tenant: run.0,
            run: run.1,
            lease: new_lease(&self.shared, None, lease),
        };
        Ok(found.into_iter().map(offer).collect())
    }

    fn outage(&self) -> Option<StoreError> {
        self.shared.connections.outages().error(Blocked::Writes, Duration::ZERO).map(StoreError::from)
    }

    fn commits(&self) -> u64 {
        self.commits()
    }

    fn processes(&self, limit: usize) -> Result<Vec<StoreProcess>, StoreError> {
        self.worker.read(async move |connection| heartbeat::processes(connection, limit).await)
    }

    fn settle(&self) -> Result<(), StoreError> {
        self.settle()
    }

    fn relabel(
        &self,
        tenant: &Tenant,
        runs: &[RunId],
        change: &LabelChange,
    ) -> Result<Vec<Result<(), RelabelError>>, StoreError> {
        let (tenant, runs, change) = (tenant.clone(), runs.into(), change.clone());
        self.worker.turn(|answer| Turn::Relabel { tenant, runs, change, answer })
    }

    fn keep(&self, tenant: &Tenant, hash: &Arc<str>, bytes: Arc<[u8]>, mime: &str) {
        upload::keep(self, tenant, hash, bytes, mime);
    }

    fn retire(&self) {
        let _ = self.settle();
        let owner = self.shared.claims.owner();
        // If the server does not answer, the claims end with the lease.
        if self.worker.write(async move |connection| heartbeat::release_runs(connection, owner).await).is_ok() {
            self.shared.presence.leave();
        }
    }

    fn relay(&self) -> Option<Arc<dyn Relay>> {
        let relay = || self.shared.relay.clone() as Arc<dyn Relay>;
        (self.shared.connections.dialect() == Dialect::Postgres).then(relay)
    }

    fn serve(&self, world: &Arc<World>) -> Result<(), StoreError> {
        inbox::serve(world, &self.worker)
    }
}

impl Leases for SharedStore {
    fn claim(&self, tenant: &Tenant, run: &RunId) -> Result<Option<Lease>, StoreError> {
        let key = (tenant.clone(), run.clone());
        let claims = &self.shared.claims;
        if !claims.add_driver(&key) {
            return Ok(None);
        }
        let held = claims.add_lease(&key, &claims.top(&key));
        let claimed = match held {
            Some(lease) => Ok(Some(lease)),
            None => self.worker.turn(|answer| Turn::Claim(key.clone(), answer)),
        };
        match claimed {
            Ok(Some(lease)) => Ok(Some(new_lease(&self.shared, Some(key), lease))),
            other => {
                claims.remove_driver(&key);
                other.map(|_| None)
            }
        }
    }
}
