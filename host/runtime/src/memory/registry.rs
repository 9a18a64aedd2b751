//! A registry in memory.

use std::{collections::BTreeMap, ops::Bound};

use flowcell_contract::{Json, Tenant};
use parking_lot::Mutex;

use crate::ports::{Registered, Registry, StoreError};

/// Tenant, kind and key.
type Place = (Tenant, String, String);

/// What is registered is gone with the process.
#[derive(Default)]
pub struct MemoryRegistry(Mutex<BTreeMap<Place, (Json, u64)>>);

type Found<'a> = (&'a Place, &'a (Json, u64));

fn found(((_, _, key), (value, version)): Found<'_>) -> Registered {
    Registered { key: key.clone(), value: value.clone(), version: *version }
}

impl Registry for MemoryRegistry {
    fn registered(&self, tenant: &Tenant, kind: &str, key: &str) -> Result<Option<Registered>, StoreError> {
        let place = (tenant.clone(), kind.to_owned(), key.to_owned());
        Ok(self.0.lock().get_key_value(&place).map(found))
    }

    fn registered_after(
        &self,
        tenant: &Tenant,
        kind: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<Registered>, StoreError> {
        let all = self.0.lock();
        let start = Bound::Excluded((tenant.clone(), kind.to_owned(), after.to_owned()));
        let of_kind =
            all.range((start, Bound::Unbounded)).take_while(|((whose, of, _), _)| whose == tenant && of == kind);
        Ok(of_kind.take(limit).map(found).collect())
    }

    fn last_registered(&self, tenant: &Tenant, kind: &str) -> Result<Option<Registered>, StoreError> {
        let all = self.0.lock();
        let of_kind = all.iter().rev().find(|((whose, of, _), _)| whose == tenant && of == kind);
        Ok(of_kind.map(found))
    }

    fn register(
        &self,
        tenant: &Tenant,
        kind: &str,
        key: &str,
        value: Option<&Json>,
        seen: u64,
    ) -> Result<bool, StoreError> {
        let mut all = self.0.lock();
        let place = (tenant.clone(), kind.to_owned(), key.to_owned());
        if all.get(&place).map_or(0, |(_, version)| *version) != seen {
            return Ok(false);
        }
        match value {
            Some(value) => _ = all.insert(place, (value.clone(), seen + 1)),
            None => _ = all.remove(&place),
        }
        Ok(true)
    }
}
