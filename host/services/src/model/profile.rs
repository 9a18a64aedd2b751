//! What the operator says about a provider.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use serde::Deserialize;

use super::{price::Price, script::Entry};
pub use crate::endpoint::Auth;
use crate::pattern;

/// Milliseconds that a turn may take, with all its attempts.
pub const DEFAULT_TIMEOUT_MS: u64 = 600_000;
/// Milliseconds without a byte after which a stream is given up.
pub const DEFAULT_IDLE_MS: u64 = 90_000;
/// Attempts at a turn after the first.
pub const DEFAULT_MAX_RETRIES: u32 = 2;
/// Turns at once of the tenants of a server, if the profile does not say.
pub const DEFAULT_MAX_CALLS: usize = 256;
/// Tokens of a reply, if neither the request nor the profile says.
pub const DEFAULT_MAX_TOKENS: u64 = 4096;

/// The language that a provider speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dialect {
    /// Anthropic Messages: `POST {baseUrl}/v1/messages`.
    Messages,
    /// OpenAI Chat Completions, which most servers speak: `POST {baseUrl}/chat/completions`.
    Chat,
    /// OpenAI Responses: `POST {baseUrl}/responses`.
    Responses,
    /// No network: replies of a script, or deterministic ones.
    Simulated,
}

/// A provider of models. Members that a profile of the same name as a built-in one leaves out are those of the built-in one.
///
/// | member | is | default |
/// |---|---|---|
/// | `dialect` | `messages`, `chat`, `responses` or `simulated` | needed |
/// | `baseUrl` | where requests go, `https://` or `http://`; the dialect adds its path | needed, but by `simulated` |
/// | `model` | the model of requests that name none | none |
/// | `auth` | `bearer`, `x-api-key`, `none` or `{ header: NAME }` | `bearer` |
/// | `keyEnv` | the environment variable with the key, read at each call | |
/// | `keyFile` | the file with the key, read at each call; beside the configuration if relative | |
/// | `apiVersion` | Messages: the header `anthropic-version`; others: the query member `api-version` | `2023-06-01`; none |
/// | `headers` | more headers, without secrets | none |
/// | `params` | patterns of members that requests may pass on in `params`, such as `top_k` or `*` | none |
/// | `maxTokens` | tokens of a reply, if the request does not say | 4096 in Messages, else the provider's |
/// | `legacyMaxTokens` | Chat: the limit is sent as `max_tokens`, which older servers know | `false` |
/// | `reportsUsage` | Chat: asks for `usage` by `stream_options`; without it usage is estimated | `true` |
/// | `prices` | `[{ model, input, output, cacheRead?, cacheWrite?, imageTokens? }]` in USD for a million tokens; the first pattern that matches counts. `imageTokens` is what an image takes at most, 50,000 unless it says | none |
/// | `maxRetries` | attempts at a turn after the first, 0 to 10 | 2 |
/// | `maxCalls` | turns at once of all tenants of a server, 1 to 4,096; others wait, and no tenant has more of them than it leaves | 256 |
/// | `timeoutMs` | milliseconds for a turn with all its attempts, 1 to 3,600,000 | 600,000 |
/// | `idleMs` | milliseconds between two bytes of a stream, at least 1 | 90,000 |
/// | `allowPrivate` | addresses that are not public and may be connected to, such as `127.0.0.1:11434` | none |
/// | `script`, `scriptFile` | `simulated`: the replies, see [`Entry`] | none |
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Profile {
    /// The language that it speaks.
    pub dialect: Dialect,
    /// Where requests go.
    pub base_url: Option<String>,
    /// The model of requests that name none.
    pub model: Option<String>,
    /// How the key is shown.
    #[serde(default)]
    pub auth: Auth,
    /// The environment variable with the key.
    pub key_env: Option<String>,
    /// The file with the key.
    pub key_file: Option<PathBuf>,
    /// The version of the interface.
    pub api_version: Option<String>,
    /// More headers, without secrets.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Patterns of members that requests may pass on.
    #[serde(default)]
    pub params: Vec<String>,
    /// Tokens of a reply, if the request does not say.
    pub max_tokens: Option<u64>,
    /// Whether the limit of tokens is sent under its older name.
    #[serde(default)]
    pub legacy_max_tokens: bool,
    /// Whether the usage is asked for.
    #[serde(default = "yes")]
    pub reports_usage: bool,
    /// What tokens cost.
    #[serde(default)]
    pub prices: Vec<Price>,
    /// Attempts at a turn after the first.
    #[serde(default = "max_retries")]
    pub max_retries: u32,
    /// Turns at once of all tenants of a server.
    #[serde(default = "max_calls")]
    pub max_calls: usize,
    /// Milliseconds for a turn with all its attempts.
    #[serde(default = "timeout_ms")]
    pub timeout_ms: u64,
    /// Milliseconds between two bytes of a stream.
    #[serde(default = "idle_ms")]
    pub idle_ms: u64,
    /// Addresses that are not public and may be connected to.
    #[serde(default)]
    pub allow_private: Vec<String>,
    /// The replies of a simulated provider.
    pub script: Option<Vec<Entry>>,
    /// The file with these replies, YAML or JSON.
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
    /// How long a turn may take, with all its attempts.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }

    /// How long a stream may be silent.
    pub fn idle(&self) -> Duration {
        Duration::from_millis(self.idle_ms)
    }

    /// Whether requests may pass this member on.
    pub fn lets_pass(&self, member: &str) -> bool {
        self.params.iter().any(|pattern| pattern::matches(pattern, member))
    }

    /// What the tokens of a model cost, if that is listed.
    pub fn price_of(&self, model: &str) -> Option<&Price> {
        self.prices.iter().find(|price| pattern::matches(&price.model, model))
    }
}
