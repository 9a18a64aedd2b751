//! The nodes `system.state.get` and `system.state.set`: read and write durable values.

use flowcell_sdk::{prelude::*, state};

#[derive(Deserialize)]
pub(crate) struct Get {
    key: String,
}

/// Returns the value of a key and its version; an empty object if the key has no value.
pub(crate) fn get(_task: &Task, input: Get) -> Result<Step> {
    match state::get::<Value>(&input.key)? {
        Some(entry) => Step::value(json!({ "value": entry.value, "version": entry.version })),
        None => Step::value(json!({})),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Set {
    key: String,
    #[serde(default)]
    value: Value,
    if_version: Option<u64>,
}

/// Writes a value. If `ifVersion` is given and the key has another version, writes nothing and returns `ok: false`.
pub(crate) fn set(_task: &Task, input: Set) -> Result<Step> {
    let Some(expected) = input.if_version else {
        let version = state::set(&input.key, &input.value)?;
        return Step::value(json!({ "ok": true, "version": version }));
    };
    // Version 0 means a key that was never written.
    let expected = Some(expected).filter(|version| *version > 0);
    match state::set_if(&input.key, &input.value, expected)? {
        Some(version) => Step::value(json!({ "ok": true, "version": version })),
        None => Step::value(json!({ "ok": false })),
    }
}
