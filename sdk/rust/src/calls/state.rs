//! Durable values for each tenant and flow name. Other runs see a write together with the task's outcome.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::json;

use crate::{
    failure::{Failure, Result},
    wit::flowcell::host::state,
};

/// A value with its version.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Entry<T> {
    /// The value.
    pub value: T,
    /// The number of writes of the key, from 1.
    pub version: u64,
}

/// Returns the value that this attempt sees, or none if the key was never written.
pub fn get<T: DeserializeOwned>(key: &str) -> Result<Option<Entry<T>>> {
    super::made(
        "state.get",
        || json!({ "key": key }),
        || {
            let Some(entry) = state::get(key).map_err(Failure::of_call)? else { return Ok(None) };
            Ok(Some(Entry { value: super::read(&entry.value)?, version: entry.version }))
        },
    )
}

/// Writes a value unconditionally. Returns the new version.
pub fn set(key: &str, value: &impl Serialize) -> Result<u64> {
    let set = || state::set(key, &super::text(value)?).map_err(Failure::of_call);
    super::made("state.set", || json!({ "key": key, "value": value }), set)
}

/// Writes only if the version is still the expected one, or, if none is expected, only if the key does not exist.
/// Returns the new version, or none if the version is another one.
pub fn set_if(key: &str, value: &impl Serialize, expected: Option<u64>) -> Result<Option<u64>> {
    let set = || state::set_if(key, &super::text(value)?, expected).map_err(Failure::of_call);
    super::made("state.set-if", || json!({ "key": key, "value": value, "expected": expected }), set)
}
