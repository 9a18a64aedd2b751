//! The ports in memory: everything is gone with the process.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use flowcell_contract::{RunId, Tenant, Value};
use futures_util::future::{self, BoxFuture};

use crate::limits::MAX_CACHE_ENTRIES;
use crate::ports::{CacheStore, Journal, Lease, Leases, StateStore, Timers, Unit, Write};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while the lock was held cannot have left these maps half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A journal in memory: durable at once, until the process ends.
#[derive(Default)]
pub struct MemoryJournal {
    runs: Mutex<HashMap<(Tenant, RunId), Vec<Unit>>>,
}

impl Journal for MemoryJournal {
    fn append(&self, tenant: &Tenant, run: &RunId, unit: Unit) {
        lock(&self.runs).entry((tenant.clone(), run.clone())).or_default().push(unit);
    }

    fn force(&self, _tenant: &Tenant, _run: &RunId) -> BoxFuture<'_, ()> {
        Box::pin(future::ready(()))
    }

    fn read(&self, tenant: &Tenant, run: &RunId, from: u64) -> Vec<Unit> {
        let runs = lock(&self.runs);
        let units = runs.get(&(tenant.clone(), run.clone())).map(Vec::as_slice).unwrap_or_default();
        let first = units.partition_point(|unit| unit.first_seq + unit.facts.len() as u64 <= from);
        units[first..].to_vec()
    }
}

/// Real time: the wall clock as it was at the start, moved on by the monotonic clock.
pub struct SystemTimers {
    started: Instant,
    started_ms: u64,
}

impl Default for SystemTimers {
    fn default() -> SystemTimers {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        SystemTimers { started: Instant::now(), started_ms: since.as_millis() as u64 }
    }
}

impl Timers for SystemTimers {
    fn now(&self) -> u64 {
        self.started_ms + self.started.elapsed().as_millis() as u64
    }

    fn wait(&self, due: u64) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(Duration::from_millis(due.saturating_sub(self.now()))))
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
        if !lock(&self.claimed).insert(key.clone()) {
            return None;
        }
        let claimed = self.claimed.clone();
        Some(Lease::new(move || {
            lock(&claimed).remove(&key);
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
    fn get(&self, tenant: &Tenant, flow: &str, key: &str) -> Option<(Value, u64)> {
        lock(&self.entries).get(&(tenant.clone(), flow.to_owned(), key.to_owned())).cloned()
    }

    fn commit(&self, tenant: &Tenant, flow: &str, writes: &[Write]) -> Result<(), String> {
        let mut entries = lock(&self.entries);
        let place = |write: &Write| (tenant.clone(), flow.to_owned(), write.key.clone());
        let mut versions = HashMap::new();
        for write in writes {
            let stored = || entries.get(&place(write)).map_or(0, |(_, version)| *version);
            let version = versions.entry(&write.key).or_insert_with(stored);
            if write.expected.is_some_and(|expected| expected != *version) {
                return Err(write.key.clone());
            }
            *version += 1;
        }
        for write in writes {
            let entry = entries.entry(place(write)).or_insert_with(|| (Value::null(), 0));
            *entry = (write.value.clone(), entry.1 + 1);
        }
        Ok(())
    }
}

#[derive(Default)]
struct TenantCache {
    values: HashMap<String, (Value, Option<u64>)>,
    order: VecDeque<String>,
}

/// A cache in memory.
#[derive(Default)]
pub struct MemoryCache {
    tenants: Mutex<HashMap<Tenant, TenantCache>>,
}

impl CacheStore for MemoryCache {
    fn get(&self, tenant: &Tenant, key: &str, now: u64) -> Option<Value> {
        let tenants = lock(&self.tenants);
        let (value, expires) = tenants.get(tenant)?.values.get(key)?;
        expires.is_none_or(|expires| now < expires).then(|| value.clone())
    }

    fn set(&self, tenant: &Tenant, key: &str, value: Value, expires: Option<u64>) {
        let mut tenants = lock(&self.tenants);
        let cache = tenants.entry(tenant.clone()).or_default();
        if cache.values.insert(key.to_owned(), (value, expires)).is_none() {
            cache.order.push_back(key.to_owned());
        }
        if cache.order.len() > MAX_CACHE_ENTRIES
            && let Some(oldest) = cache.order.pop_front()
        {
            cache.values.remove(&oldest);
        }
    }
}
