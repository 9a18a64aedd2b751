//! Values that may be forgotten at any time, per tenant.

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    failure::{Failure, Result},
    wit::flowcell::host::cache,
};

/// The value; none if there is none, it has expired, or it was forgotten.
pub fn get<T: DeserializeOwned>(key: &str) -> Result<Option<T>> {
    let value = cache::get(key).map_err(Failure::of_call)?;
    value.map(|text| super::read(&text)).transpose()
}

/// Keeps a value. Without a time to live it does not expire by time.
pub fn set(key: &str, value: &impl Serialize, ttl_ms: Option<u64>) -> Result<()> {
    cache::set(key, &serde_json::to_string(value)?, ttl_ms).map_err(Failure::of_call)
}
