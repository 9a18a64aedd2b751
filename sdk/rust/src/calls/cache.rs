//! A cache for each tenant. The host may drop a value at any time.

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    failure::{Failure, Result},
    wit::flowcell::host::cache,
};

/// Returns the value of a key; none if the key is unknown, or if its value has expired or was dropped.
pub fn get<T: DeserializeOwned>(key: &str) -> Result<Option<T>> {
    let value = cache::get(key).map_err(Failure::from_call)?;
    value.map(|text| super::read(&text)).transpose()
}

/// Stores a value. It expires after `ttl_ms` milliseconds. With `None` it does not expire, but the host may still
/// drop it.
pub fn set(key: &str, value: &impl Serialize, ttl_ms: Option<u64>) -> Result<()> {
    cache::set(key, &serde_json::to_string(value)?, ttl_ms).map_err(Failure::from_call)
}
