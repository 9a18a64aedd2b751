//! The operator's profiles of model providers.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use serde::Deserialize;

use super::{price::Price, script::Entry};
pub use crate::endpoint::Auth;
use crate::pattern;

/// Default of `timeoutMs`: the maximum duration of a turn with all its attempts, in milliseconds.
pub const DEFAULT_TIMEOUT_MS: u64 = 600_000;
/// Default of `idleMs`: the maximum time between two bytes of a stream, in milliseconds.
pub const DEFAULT_IDLE_MS: u64 = 90_000;
/// Default of `maxRetries`: the maximum number of further attempts at a turn, after the first one failed.
pub const DEFAULT_MAX_RETRIES: u32 = 2;
/// Default of `maxCalls`: the maximum number of concurrent turns, of all tenants together.
pub const DEFAULT_MAX_CALLS: usize = 256;
/// Maximum output tokens in the dialect `messages`, if neither the request nor the profile sets a limit.
pub const DEFAULT_MAX_TOKENS: u64 = 4096;

/// The dialect of a provider: the API that its requests and replies follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dialect {
    /// Anthropic Messages: `POST {baseUrl}/v1/messages`.
    Messages,
    /// OpenAI Chat Completions, supported by most servers: `POST {baseUrl}/chat/completions`.
    Chat,
    /// OpenAI Responses: `POST {baseUrl}/responses`.
    Responses,
    /// No API: the host itself creates the replies, from a script or deterministically, without a network.
    Simulated,
}

/// A provider of models. A profile with the name of a built-in one inherits the members that it leaves out.
///
/// | member | meaning | default |
/// |---|---|---|
/// | `dialect` | `messages`, `chat`, `responses` or `simulated` | required |
/// | `baseUrl` | base URL, `https://` or `http://`; the dialect adds its path | required, except for `simulated` |
/// | `model` | the model of requests that name none | none |
/// | `auth` | `bearer`, `x-api-key`, `none` or `{ header: NAME }` | `bearer` |
/// | `keyEnv` | the environment variable with the key, read at each call | |
/// | `keyFile` | the file with the key, read at each call; relative to the configuration's folder | |
/// | `apiVersion` | Messages: the header `anthropic-version`; others: the query parameter `api-version` | `2023-06-01`; none |
/// | `headers` | additional headers, without secrets | none |
/// | `params` | patterns of members that requests may set in `params`, such as `top_k` or `*` | none |
/// | `maxTokens` | limit of output tokens, if the request sets none | 4096 in Messages, else the provider's |
/// | `legacyMaxTokens` | Chat: sends the limit as `max_tokens`, for older servers | `false` |
/// | `reportsUsage` | Chat: requests `usage` by `stream_options`; without it usage is estimated | `true` |
/// | `prices` | `[{ model, input, output, cacheRead?, cacheWrite?, imageTokens? }]` in USD per million tokens; the first pattern that matches counts. `imageTokens` is the maximum of an image, 50,000 by default | none |
/// | `maxRetries` | maximum further attempts at a turn, after the first one failed, 0 to 10 | 2 |
/// | `maxCalls` | maximum concurrent turns of a Flowcell server with tenants, of all tenants together, 1 to 4,096; further turns wait. A tenant with turns in progress gets another one only if it then has no more turns than permits are still free. Other processes, such as the command line, do not limit the turns | 256 |
/// | `timeoutMs` | milliseconds for a turn with all its attempts, 1 to 3,600,000 | 600,000 |
/// | `idleMs` | milliseconds between two bytes of a stream, at least 1 | 90,000 |
/// | `allowPrivate` | private addresses that the provider may connect to, such as `127.0.0.1:11434` | none |
/// | `script`, `scriptFile` | `simulated`: the replies, see [`Entry`] | none |
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Profile {
    /// The API of the provider.
    pub dialect: Dialect,
    /// The base URL of requests; the dialect adds its path.
    pub base_url: Option<String>,
    /// The model of requests that name none.
    pub model: Option<String>,
    /// The way that requests carry the API key.
    #[serde(default)]
    pub auth: Auth,
    /// The environment variable with the key, read at each call.
    pub key_env: Option<String>,
    /// The file with the key, read at each call.
    pub key_file: Option<PathBuf>,
    /// The version of the API, sent as a header or a query parameter.
    pub api_version: Option<String>,
    /// Additional headers, without secrets.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Patterns of members that requests may set in `params`.
    #[serde(default)]
    pub params: Vec<String>,
    /// Limit of output tokens, if the request sets none.
    pub max_tokens: Option<u64>,
    /// True to send the token limit under its older name `max_tokens`.
    #[serde(default)]
    pub legacy_max_tokens: bool,
    /// True to request usage from the provider.
    #[serde(default = "yes")]
    pub reports_usage: bool,
    /// The token prices of the models.
    #[serde(default)]
    pub prices: Vec<Price>,
    /// Maximum number of further attempts at a turn, after the first one failed.
    #[serde(default = "max_retries")]
    pub max_retries: u32,
    /// Maximum number of concurrent turns, of all tenants together.
    #[serde(default = "max_calls")]
    pub max_calls: usize,
    /// Maximum duration of a turn with all its attempts, in milliseconds.
    #[serde(default = "timeout_ms")]
    pub timeout_ms: u64,
    /// Maximum milliseconds between two bytes of a stream.
    #[serde(default = "idle_ms")]
    pub idle_ms: u64,
    /// Private addresses that the provider may connect to.
    #[serde(default)]
    pub allow_private: Vec<String>,
    /// The replies of a simulated provider.
    pub script: Option<Vec<Entry>>,
    /// The file with the replies of a simulated provider, in YAML or JSON.
    pub script_file: Option<PathBuf>,
}

fn yes() -> bool {
    true
}

fn max_retries() -> u32 {
    DEFAULT_MAX_RETRIES
}

fn max_calls() -> usize {
    DEFAULT_MAX_CALLS
}

fn timeout_ms() -> u64 {
    DEFAULT_TIMEOUT_MS
}

fn idle_ms() -> u64 {
    DEFAULT_IDLE_MS
}

impl Profile {
    /// Returns the maximum duration of a turn with all its attempts.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }

    /// Returns the maximum time between two bytes of a stream.
    pub fn idle(&self) -> Duration {
        Duration::from_millis(self.idle_ms)
    }

    /// Returns true if requests may set this member in `params`.
    pub fn allows_param(&self, member: &str) -> bool {
        self.params.iter().any(|pattern| pattern::matches(pattern, member))
    }

    /// Returns the price of a model, or `None` if the profile lists none.
    pub fn price_of(&self, model: &str) -> Option<&Price> {
        self.prices.iter().find(|price| pattern::matches(&price.model, model))
    }
}
