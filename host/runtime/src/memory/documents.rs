//! Documents in memory.

use std::{collections::BTreeMap, ops::Bound};

use flowcell_contract::{Json, Tenant};
use parking_lot::Mutex;

use crate::ports::{Document, DocumentStore, StoreError};

/// Tenant, kind and key of a document.
type Key = (Tenant, String, String);

/// Documents in memory. They end with the process.
#[derive(Default)]
pub struct MemoryDocuments(Mutex<BTreeMap<Key, (Json, u64)>>);

fn document(((_, _, key), (value, version)): (&Key, &(Json, u64))) -> Document {
    Document { key: key.clone(), value: value.clone(), version: *version }
}

impl DocumentStore for MemoryDocuments {
    fn get(&self, tenant: &Tenant, kind: &str, key: &str) -> Result<Option<Document>, StoreError> {
        let key = (tenant.clone(), kind.to_owned(), key.to_owned());
        Ok(self.0.lock().get_key_value(&key).map(document))
    }

    fn list(&self, tenant: &Tenant, kind: &str, after: &str, limit: usize) -> Result<Vec<Document>, StoreError> {
        let all = self.0.lock();
        let start = Bound::Excluded((tenant.clone(), kind.to_owned(), after.to_owned()));
        let following = all.range((start, Bound::Unbounded));
        let of_kind = following.take_while(|((owner, other, _), _)| owner == tenant && other == kind);
        Ok(of_kind.take(limit).map(document).collect())
    }

    fn last(&self, tenant: &Tenant, kind: &str) -> Result<Option<Document>, StoreError> {
        let all = self.0.lock();
        let last = all.iter().rev().find(|((owner, other, _), _)| owner == tenant && other == kind);
        Ok(last.map(document))
    }

    fn write(
        &self,
        tenant: &Tenant,
        kind: &str,
        key: &str,
        value: Option<&Json>,
        expected_version: u64,
    ) -> Result<bool, StoreError> {
        let mut all = self.0.lock();
        let key = (tenant.clone(), kind.to_owned(), key.to_owned());
        if all.get(&key).map_or(0, |(_, version)| *version) != expected_version {
            return Ok(false);
        }
        match value {
            Some(value) => _ = all.insert(key, (value.clone(), expected_version + 1)),
            None => _ = all.remove(&key),
        }
        Ok(true)
    }
}
