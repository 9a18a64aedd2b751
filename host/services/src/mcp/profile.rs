//! The operator's configuration of one MCP server, as it is written.

use std::{collections::BTreeMap, path::PathBuf};

use flowcell_contract::Json;
use serde::Deserialize;

/// Default of `timeoutMs`: the maximum duration of a call, in milliseconds.
pub const DEFAULT_TIMEOUT_MS: u64 = 300_000;
/// Default of `startMs`: the maximum time until a server is ready, in milliseconds.
pub const DEFAULT_START_MS: u64 = 30_000;
/// Default of `maxCalls`: the maximum number of concurrent calls of a server, of all tenants together.
pub const DEFAULT_MAX_CALLS: usize = 16;

/// The members of a server's configuration, not yet checked against each other.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Profile {
    pub(super) command: Option<String>,
    #[serde(default)]
    pub(super) args: Vec<String>,
    #[serde(default)]
    pub(super) env: Json,
    pub(super) cwd: Option<PathBuf>,
    pub(super) url: Option<String>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, Json>,
    #[serde(default)]
    pub(super) allow_private: Vec<String>,
    #[serde(default = "timeout_ms")]
    pub(super) timeout_ms: u64,
    #[serde(default = "start_ms")]
    pub(super) start_ms: u64,
    #[serde(default = "max_calls")]
    pub(super) max_calls: usize,
}

fn timeout_ms() -> u64 {
    DEFAULT_TIMEOUT_MS
}

fn start_ms() -> u64 {
    DEFAULT_START_MS
}

fn max_calls() -> usize {
    DEFAULT_MAX_CALLS
}
