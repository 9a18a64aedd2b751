//! State: durable values that outlive runs.

use std::{collections::HashMap, sync::Arc};

use flowcell_contract::{Tenant, Value};

use super::StoreError;
use crate::fact::Write;

/// The state writes of one attempt that the store has accepted.
#[derive(Clone, Debug, PartialEq)]
pub struct Staged {
    /// The flow that owns the keys.
    pub flow: Arc<str>,
    /// Each write with its new version.
    pub writes: Vec<(Write, u64)>,
}

impl Staged {
    /// Assigns each write its version. Fails with the key whose present version is not the expected one.
    pub fn assign_versions(
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
}

/// Durable values that outlive runs, per tenant and flow.
pub trait StateStore: Send + Sync {
    /// Returns the value of a key and its version.
    fn get(&self, tenant: &Tenant, flow: &str, key: &str) -> Result<Option<(Value, u64)>, StoreError>;

    /// Makes all writes visible, or none. They become durable with the journal entry that contains them.
    fn stage(&self, tenant: &Tenant, flow: &Arc<str>, writes: Vec<Write>) -> Result<Staged, StageError>;
}

/// The reason why writes were not accepted.
#[derive(Clone, Debug)]
pub enum StageError {
    /// This key does not have the expected version.
    Conflict(String),
    /// The store could not answer.
    Store(StoreError),
}
