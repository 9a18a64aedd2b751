//! State in memory.

use std::{collections::HashMap, sync::Arc};

use flowcell_contract::{Tenant, Value};
use parking_lot::Mutex;

use crate::{
    fact::Write,
    ports::{StageError, Staged, StateStore, StoreError},
};

/// Tenant, flow and key of a value.
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
        let key = |key: &str| (tenant.clone(), flow.to_string(), key.to_owned());
        let version = |name: &str| Ok(entries.get(&key(name)).map_or(0, |(_, version)| *version));
        let staged = Staged::assign_versions(flow, writes, version)?;
        for (write, version) in &staged.writes {
            entries.insert(key(&write.key), (write.value.clone(), *version));
        }
        Ok(staged)
    }
}
