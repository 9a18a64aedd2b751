//! Calls to the host's capabilities. The manifest has to ask for each of them; else they fail with `denied`.

pub mod cache;
pub mod http;
pub mod log;
pub mod metrics;
pub mod queue;
pub mod state;

use serde::de::DeserializeOwned;

use crate::failure::Result;

fn read<T: DeserializeOwned>(text: &str) -> Result<T> {
    Ok(serde_json::from_str(text)?)
}
