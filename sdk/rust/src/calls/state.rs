//! Durable values. Each value belongs to one tenant and one flow name. An attempt sees its own writes at once. Other
//! runs see them when the host records the outcome of the task. The writes of a failed attempt are dropped.

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

/// Returns the value of a key, including this attempt's own writes; none if the key was never written.
pub fn get<T: DeserializeOwned>(key: &str) -> Result<Option<Entry<T>>> {
    super::call(
        "state.get",
        || json!({ "key": key }),
        || {
            let Some(entry) = state::get(key).map_err(Failure::from_call)? else { return Ok(None) };
            Ok(Some(Entry { value: super::read(&entry.value)?, version: entry.version }))
        },
    )
}

/// Writes a value without checking the key's version. Returns the new version, which is final only if no other run
/// writes the key before the outcome of this task is recorded.
pub fn set(key: &str, value: &impl Serialize) -> Result<u64> {
    let set = || state::set(key, &super::text(value)?).map_err(Failure::from_call);
    super::call("state.set", || json!({ "key": key, "value": value }), set)
}

/// Writes a value only if the key's version is `expected`. With `None`, it writes only if the key does not exist.
/// Returns the new version; none if nothing was written because the version differs.
pub fn set_if(key: &str, value: &impl Serialize, expected: Option<u64>) -> Result<Option<u64>> {
    let set = || state::set_if(key, &super::text(value)?, expected).map_err(Failure::from_call);
    super::call("state.set-if", || json!({ "key": key, "value": value, "expected": expected }), set)
}
