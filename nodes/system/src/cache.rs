//! The nodes `system.cache.get` and `system.cache.set`: read and write the cache of the tenant.

use flowcell_sdk::{cache, prelude::*};

#[derive(Deserialize)]
pub(crate) struct Get {
    key: String,
}

/// Returns an object with the `value` of a key; an empty object if the cache has no value for the key.
pub(crate) fn get(_task: &Task, input: Get) -> Result<Step> {
    match cache::get::<Value>(&input.key)? {
        Some(value) => Step::value(json!({ "value": value })),
        None => Step::value(json!({})),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Set {
    key: String,
    #[serde(default)]
    value: Value,
    ttl_ms: Option<u64>,
}

/// Stores a value under a key. It expires after `ttlMs` milliseconds, if that is given.
pub(crate) fn set(_task: &Task, input: Set) -> Result<Step> {
    cache::set(&input.key, &input.value, input.ttl_ms)?;
    Step::value(json!({ "ok": true }))
}
