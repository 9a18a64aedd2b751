//! The ports in memory: everything is gone with the process.

mod registry;
mod sessions;
mod timers;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

use flowcell_contract::{BlobRef, Failure, RunId, Tenant, Value};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

pub use registry::MemoryRegistry;
use sessions::Tables;
pub use timers::SystemTimers;

use crate::fact::{Write, value_bytes};
use crate::limits::{MAX_CACHE_BYTES, MAX_CACHE_ENTRIES};
use crate::ports::{
    Blobs, CacheStore, Entry, Journal, Lease, Leases, Record, StageError, Staged, StateStore, StoreError, Unit,
};

/// A journal in memory, with the rows beside it: durable at once, until the process ends.
#[derive(Default)]
pub struct MemoryJournal {
    runs: Mutex<HashMap<(Tenant, RunId), Kept>>,
    tables: Mutex<Tables>,
}

#[derive(Default)]
struct Kept {
    record: Option<Record>,
    units: Vec<Arc<Unit>>,
}

impl Journal for MemoryJournal {
    fn append(&self, entry: Entry) {
        let next_seq = entry.unit.next_seq();
        let mut runs = self.runs.lock();
        self.tables.lock().apply(&entry);
        let kept = runs.entry((entry.tenant, entry.run)).or_default();
        kept.units.push(entry.unit);
        if entry.record.is_some() {
            kept.record = entry.record;
        }
        drop(runs);
        entry.durable.advance(next_seq);
    }

    fn force(&self) {}

    fn children_of(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        let is_below = |record: &Record| record.parent.as_ref() == Some(run);
        let runs = self.runs.lock();
        let below = runs.iter().filter(|((of, _), kept)| of == tenant && kept.record.as_ref().is_some_and(is_below));
        Ok(below.map(|((_, id), _)| id.clone()).collect())
    }

    fn find(&self, tenant: &Tenant, run: &RunId) -> Result<Option<Record>, StoreError> {
        let runs = self.runs.lock();
        Ok(runs.get(&(tenant.clone(), run.clone())).and_then(|kept| kept.record.clone()))
    }

    fn read(&self, tenant: &Tenant, run: &RunId, from: u64, limit: usize) -> Result<Vec<Arc<Unit>>, StoreError> {
        let runs = self.runs.lock();
        let units = runs.get(&(tenant.clone(), run.clone())).map(|kept| kept.units.as_slice()).unwrap_or_default();
        let first = units.partition_point(|unit| unit.next_seq() <= from);
        Ok(units[first..].iter().take(limit).cloned().collect())
    }
}

/// Claims within one process.
#[derive(Clone, Default)]
pub struct LocalLeases {
    claimed: Arc<Mutex<HashSet<(Tenant, RunId)>>>,
}

impl Leases for LocalLeases {
    fn claim(&self, tenant: &Tenant, run: &RunId) -> Option<Lease> {
        let key = (tenant.clone(), run.clone());
        if !self.claimed.lock().insert(key.clone()) {
            return None;
        }
        let claimed = self.claimed.clone();
        Some(Lease::new(move || {
            claimed.lock().remove(&key);
        }))
    }
}

type StateKey = (Tenant, String, String);

/// State in memory.
#[derive(Default)]
pub struct MemoryState {
    entries: Mutex<HashMap<StateKey, (Value, u64)>>,
}

impl StateStore for MemoryState {
    fn get(&self, tenant: &Tenant, flow: &str, key: &str) -> Result<Option<(Value, u64)>, StoreError> {
        Ok(self.entries.lock().get(&(tenant.clone(), flow.to_owned(), key.to_owned())).cloned())
    }

    fn stage(&self, tenant: &Tenant, flow: &Arc<str>, writes: Vec<Write>) -> Result<Staged, StageError> {
        let mut entries = self.entries.lock();
        let place = |key: &str| (tenant.clone(), flow.to_string(), key.to_owned());
        let staged = number(flow, writes, |key| Ok(entries.get(&place(key)).map_or(0, |(_, version)| *version)))?;
        for (write, version) in &staged.writes {
            entries.insert(place(&write.key), (write.value.clone(), *version));
        }
        Ok(staged)
    }
}

/// Gives each write its version, or tells the key that has another than expected.
pub(crate) fn number(
    flow: &Arc<str>,
    writes: Vec<Write>,
    stored: impl Fn(&str) -> Result<u64, StoreError>,
) -> Result<Staged, StageError> {
    let mut versions: HashMap<String, u64> = HashMap::new();
    let mut numbered = Vec::with_capacity(writes.len());
    for write in writes {
        let before = match versions.get(&write.key) {
            Some(version) => *version,
            None => stored(&write.key).map_err(StageError::Store)?,
        };
        if write.expected.is_some_and(|expected| expected != before) {
            return Err(StageError::Conflict(write.key));
        }
        versions.insert(write.key.clone(), before + 1);
        numbered.push((write, before + 1));
    }
    Ok(Staged { flow: flow.clone(), writes: numbered })
}

type BlobKey = (Tenant, Arc<str>);

/// Blobs in memory, perhaps over others that are only read.
#[derive(Default)]
pub struct MemoryBlobs {
    blobs: Mutex<HashMap<BlobKey, Arc<[u8]>>>,
    under: Option<Arc<dyn Blobs>>,
}

impl MemoryBlobs {
    /// What is put is gone with the process; what there is already is found there.
    pub fn over(under: Arc<dyn Blobs>) -> MemoryBlobs {
        MemoryBlobs { under: Some(under), ..MemoryBlobs::default() }
    }
}

impl Blobs for MemoryBlobs {
    fn put(&self, tenant: &Tenant, bytes: Arc<[u8]>, mime: &str) -> BlobRef {
        let blob = blob_ref(&bytes, mime);
        self.blobs.lock().insert((tenant.clone(), blob.file_id.clone()), bytes);
        blob
    }

    fn get(&self, tenant: &Tenant, blob: &BlobRef) -> Result<Option<Arc<[u8]>>, Failure> {
        let own = self.blobs.lock().get(&(tenant.clone(), blob.file_id.clone())).cloned();
        match (own, &self.under) {
            (None, Some(under)) => under.get(tenant, blob),
            (own, _) => Ok(own),
        }
    }
}

/// Refers to bytes by their content.
pub(crate) fn blob_ref(bytes: &[u8], mime: &str) -> BlobRef {
    let hash = hex::encode(Sha256::digest(bytes));
    BlobRef { file_id: hash.into(), size: bytes.len() as u64, mime: mime.into() }
}

/// A value that may be forgotten.
struct Cached {
    value: Value,
    expires: Option<u64>,
    bytes: u64,
}

#[derive(Default)]
struct TenantCache {
    values: HashMap<String, Cached>,
    order: VecDeque<String>,
    bytes: u64,
}

impl TenantCache {
    fn insert(&mut self, key: &str, cached: Cached) {
        self.bytes += cached.bytes;
        match self.values.insert(key.to_owned(), cached) {
            Some(before) => self.bytes -= before.bytes,
            None => self.order.push_back(key.to_owned()),
        }
        while self.order.len() > MAX_CACHE_ENTRIES || self.bytes > MAX_CACHE_BYTES {
            let Some(oldest) = self.order.pop_front() else { return };
            self.bytes -= self.values.remove(&oldest).map_or(0, |cached| cached.bytes);
        }
    }
}

/// A cache in memory.
#[derive(Default)]
pub struct MemoryCache {
    tenants: Mutex<HashMap<Tenant, TenantCache>>,
}

impl CacheStore for MemoryCache {
    fn get(&self, tenant: &Tenant, key: &str, now: u64) -> Option<Value> {
        let tenants = self.tenants.lock();
        let cached = tenants.get(tenant)?.values.get(key)?;
        cached.expires.is_none_or(|expires| now < expires).then(|| cached.value.clone())
    }

    fn set(&self, tenant: &Tenant, key: &str, value: Value, expires: Option<u64>) {
        let bytes = key.len() as u64 + value_bytes(&value);
        self.tenants.lock().entry(tenant.clone()).or_default().insert(key, Cached { value, expires, bytes });
    }
}
