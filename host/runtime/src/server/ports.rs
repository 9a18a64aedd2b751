//! The ports of the driver, over a shared store.

use std::sync::Arc;

use flowcell_contract::{BlobRef, Failure, RunId, Tenant, Value};

use super::{
    ServerStore,
    queue::{Item, Turn},
    reader,
};
use crate::{
    fact::Write,
    memory::{blob_ref, number},
    ports::{
        Blobs, CacheStore, Entry, Journal, Lease, Leases, Record, StageError, Staged, StateStore, StoreError, Unit,
    },
    rows::{Filter, RunRow, Runs},
};

impl Journal for ServerStore {
    fn append(&self, entry: Entry) {
        if let Some(record) = &entry.record {
            self.shared.claims.note(&(entry.tenant.clone(), entry.run.clone()), record);
        }
        self.shared.queue.push(Item::Entry(entry));
    }

    fn force(&self) {
        self.shared.queue.force();
    }

    fn left_below(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        let (tenant, run) = (tenant.clone(), run.clone());
        self.door.read(async move |link| reader::left_below(link, &tenant, &run).await)
    }

    fn children_of(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        Runs::children(self, tenant, run)
    }

    fn find(&self, tenant: &Tenant, run: &RunId) -> Result<Option<Record>, StoreError> {
        let key = (tenant.clone(), run.clone());
        let of = key.clone();
        let found = self.door.look(async move |link| reader::find(link, &of.0, &of.1).await)?;
        found.iter().for_each(|record| self.shared.claims.note(&key, record));
        Ok(found)
    }

    fn read(&self, tenant: &Tenant, run: &RunId, from: u64, limit: usize) -> Result<Vec<Arc<Unit>>, StoreError> {
        let (tenant, run) = (tenant.clone(), run.clone());
        self.door.look(async move |link| reader::units(link, &tenant, &run, from, limit).await)
    }
}

impl Leases for ServerStore {
    /// A run that the server cannot be asked about is not claimed.
    fn claim(&self, tenant: &Tenant, run: &RunId) -> Option<Lease> {
        let key = (tenant.clone(), run.clone());
        let claims = &self.shared.claims;
        if !claims.drive(&key) {
            return None;
        }
        let held = claims.join(&key, &claims.top(&key));
        let claimed = match held {
            Some(grant) => Ok(Some(grant)),
            None => self.door.turn(|told| Turn::Claim(key.clone(), told)),
        };
        match claimed {
            Ok(Some(grant)) => Some(self.lease(Some(key), grant)),
            Ok(None) => {
                claims.stop(&key);
                None
            }
            Err(error) => {
                tracing::warn!(run = %run, "the run cannot be claimed: {error}");
                claims.stop(&key);
                None
            }
        }
    }
}

impl ServerStore {
    fn seen(&self, tenant: &Tenant, flow: &Arc<str>, key: &str) -> Result<Option<(Value, u64)>, StoreError> {
        let place = (tenant.clone(), flow.clone(), key.to_owned());
        if let Some(found) = self.shared.visible().state.get(&place) {
            return Ok(Some(found.clone()));
        }
        self.door.look(async move |link| reader::state(link, &place.0, &place.1, &place.2).await)
    }
}

impl StateStore for ServerStore {
    fn get(&self, tenant: &Tenant, flow: &str, key: &str) -> Result<Option<(Value, u64)>, StoreError> {
        self.seen(tenant, &flow.into(), key)
    }

    fn stage(&self, tenant: &Tenant, flow: &Arc<str>, writes: Vec<Write>) -> Result<Staged, StageError> {
        let _staging = self.staging.lock();
        let stored = |key: &str| Ok(self.seen(tenant, flow, key)?.map_or(0, |(_, version)| version));
        let staged = number(flow, writes, stored)?;
        let mut visible = self.shared.visible();
        for (write, version) in &staged.writes {
            let key = (tenant.clone(), flow.clone(), write.key.clone());
            visible.state.insert(key, (write.value.clone(), *version));
        }
        Ok(staged)
    }
}

impl Blobs for ServerStore {
    fn put(&self, tenant: &Tenant, bytes: Arc<[u8]>, mime: &str) -> BlobRef {
        let blob = blob_ref(&bytes, mime);
        self.keep(tenant, &blob.file_id, bytes, mime);
        blob
    }

    fn get(&self, tenant: &Tenant, blob: &BlobRef) -> Result<Option<Arc<[u8]>>, Failure> {
        let key = (tenant.clone(), blob.file_id.clone());
        if let Some(bytes) = self.shared.visible().blobs.get(&key) {
            return Ok(Some(bytes.clone()));
        }
        let found = self.door.read(async move |link| reader::blob(link, &key.0, &key.1).await)?;
        Ok(found.map(Arc::from))
    }
}

impl CacheStore for ServerStore {
    /// What the server cannot be asked about was forgotten.
    fn get(&self, tenant: &Tenant, key: &str, now: u64) -> Option<Value> {
        let place = (tenant.clone(), key.to_owned());
        if let Some((value, expires)) = self.shared.visible().cache.get(&place) {
            return expires.is_none_or(|expires| now < expires).then(|| value.clone());
        }
        self.door.read(async move |link| reader::cached(link, &place.0, &place.1, now).await).ok().flatten()
    }

    fn set(&self, tenant: &Tenant, key: &str, value: Value, expires: Option<u64>) {
        self.shared.visible().cache.insert((tenant.clone(), key.to_owned()), (value.clone(), expires));
        self.shared.queue.push(Item::Cache { tenant: tenant.clone(), key: key.to_owned(), value, expires });
    }
}

impl Runs for ServerStore {
    fn run(&self, tenant: &Tenant, run: &RunId) -> Result<Option<(RunRow, u64)>, StoreError> {
        let (tenant, run) = (tenant.clone(), run.clone());
        self.door.read(async move |link| reader::run(link, &tenant, &run).await)
    }

    fn children(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        let (tenant, run) = (tenant.clone(), run.clone());
        self.door.read(async move |link| reader::children(link, &tenant, &run).await)
    }

    fn runs(&self, tenant: &Tenant, filter: &Filter) -> Result<Vec<RunRow>, StoreError> {
        let (tenant, filter) = (tenant.clone(), filter.clone());
        self.door.read(async move |link| reader::runs(link, &tenant, &filter).await)
    }

    fn live(&self, tenant: &Tenant, most: u64) -> Result<u64, StoreError> {
        let tenant = tenant.clone();
        self.door.read(async move |link| reader::live(link, &tenant, most).await)
    }

    fn ended(
        &self,
        tenant: &Tenant,
        since: u64,
        after: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<RunRow>, StoreError> {
        let (tenant, after) = (tenant.clone(), after.cloned());
        self.door.read(async move |link| reader::ended(link, &tenant, since, after.as_ref(), limit).await)
    }

    fn removable(&self, tenant: &Tenant, before: Option<u64>, keep: Option<u64>) -> Result<Vec<RunId>, StoreError> {
        let tenant = tenant.clone();
        self.door.read(async move |link| reader::removable(link, &tenant, before, keep).await)
    }

    fn runnable(&self, tenant: &Tenant, now: u64, limit: usize) -> Result<Vec<RunId>, StoreError> {
        let tenant = tenant.clone();
        self.door.read(async move |link| reader::runnable(link, &tenant, now, limit).await)
    }

    fn next_due(&self, tenant: &Tenant) -> Result<Option<u64>, StoreError> {
        let tenant = tenant.clone();
        self.door.read(async move |link| reader::next_due(link, &tenant).await)
    }
}
