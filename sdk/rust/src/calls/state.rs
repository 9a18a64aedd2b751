//! Durable values, per tenant and flow name. Others see a write together with the task's outcome.

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    failure::{Failure, Result},
    wit::flowcell::host::state,
};

/// A value and how often its key was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry<T> {
    /// The value.
    pub value: T,
    /// The writes of the key, from 1.
    pub version: u64,
}

/// The value that this attempt sees, or none if the key was never written.
pub fn get<T: DeserializeOwned>(key: &str) -> Result<Option<Entry<T>>> {
    let Some(entry) = state::get(key).map_err(Failure::of_call)? else { return Ok(None) };
    Ok(Some(Entry { value: super::read(&entry.value)?, version: entry.version }))
}

/// Writes, whatever is there. Gives the new version.
pub fn set(key: &str, value: &impl Serialize) -> Result<u64> {
    state::set(key, &serde_json::to_string(value)?).map_err(Failure::of_call)
}

/// Writes only if the version is still the expected one (none: only if there is no such key). Gives the new version, or
/// none if it was another.
pub fn set_if(key: &str, value: &impl Serialize, expected: Option<u64>) -> Result<Option<u64>> {
    state::set_if(key, &serde_json::to_string(value)?, expected).map_err(Failure::of_call)
}
