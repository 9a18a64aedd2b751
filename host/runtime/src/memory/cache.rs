//! The cache in memory.

use std::collections::{HashMap, VecDeque};

use flowcell_contract::{Tenant, Value};
use parking_lot::Mutex;

use crate::{
    fact::value_bytes,
    limits::{MAX_CACHE_BYTES, MAX_CACHE_ENTRIES},
    ports::CacheStore,
};

/// A cached value.
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

    fn forget(&self, tenant: &Tenant) {
        self.tenants.lock().remove(tenant);
    }
}
