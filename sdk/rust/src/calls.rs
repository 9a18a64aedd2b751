//! Calls to the host's capabilities. A call fails with `denied` unless the manifest requests its capability.

pub mod agent;
pub mod cache;
pub mod files;
pub mod http;
pub mod log;
pub mod metrics;
pub mod model;
pub mod queue;
pub mod services;
pub mod state;
pub mod tools;

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    failure::{Failure, Result},
    wit::flowcell::node::types as wit,
};

fn read<T: DeserializeOwned>(text: &str) -> Result<T> {
    Ok(serde_json::from_str(text)?)
}

/// Converts a request to the JSON text that the host expects.
fn text(request: &impl Serialize) -> Result<String> {
    Ok(serde_json::to_string(request)?)
}

/// Parses the JSON text that the host returned. An error of the host becomes a [`Failure`].
fn parse_answer<T: DeserializeOwned>(answer: Result<String, wit::Failure>) -> Result<T> {
    read(&answer.map_err(Failure::from_call)?)
}

/// Makes one call. While a test plays a script on this thread, the script answers the call, and records the arguments
/// that `args` returns. Otherwise `host` makes the call to the host.
#[cfg(not(target_family = "wasm"))]
fn call<T: DeserializeOwned>(
    name: &str,
    args: impl FnOnce() -> serde_json::Value,
    host: impl FnOnce() -> Result<T>,
) -> Result<T> {
    match crate::script::call(name, args) {
        Some(answer) => Ok(serde_json::from_value(answer?)?),
        None => host(),
    }
}

/// Makes a call to the host.
#[cfg(target_family = "wasm")]
fn call<T>(_: &str, _: impl FnOnce() -> serde_json::Value, host: impl FnOnce() -> Result<T>) -> Result<T> {
    host()
}
