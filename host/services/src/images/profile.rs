//! The operator's profile of an endpoint that makes images.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use flowcell_contract::{Json, Object};
use serde::Deserialize;

use crate::{
    endpoint::{Auth, Endpoint, Parts},
    pattern,
};

/// Default limit in milliseconds of a call with all its attempts.
const DEFAULT_TIMEOUT_MS: u64 = 300_000;
/// Maximum of `timeoutMs` in a profile: one hour.
const MAX_TIMEOUT_MS: u64 = 3_600_000;
/// Default number of attempts at a call after the first.
const DEFAULT_MAX_RETRIES: u32 = 2;
/// Default limit of concurrent calls of all tenants of a server.
const DEFAULT_MAX_CALLS: usize = 64;
/// Maximum of `maxCalls` in a profile.
const MAX_CALLS: usize = 4_096;
/// Maximum of `maxRetries` in a profile.
const MAX_RETRIES: u32 = 10;

/// An endpoint that makes images.
///
/// | member | meaning | default |
/// |---|---|---|
/// | `baseUrl` | base URL, such as `https://api.openai.com/v1` | required |
/// | `model` | the model of calls that name none | the endpoint's own |
/// | `models` | patterns of models that calls may name | `model` alone |
/// | `options` | default options of calls, such as `{ size: 1024x1024 }` | none |
/// | `auth` | `bearer`, `x-api-key`, `none` or `{ header: NAME }` | `bearer` |
/// | `keyEnv` | the environment variable with the key, read at each call | |
/// | `keyFile` | the file with the key, read at each call; relative to the configuration's folder | |
/// | `headers` | additional headers, without secrets | none |
/// | `maxRetries` | attempts at a call after the first, 0 to 10 | 2 |
/// | `maxCalls` | concurrent calls of all tenants of a server, 1 to 4,096; further calls wait, and a tenant holds at most as many as stay free for other tenants | 64 |
/// | `timeoutMs` | milliseconds for a call with all its attempts, 1 to 3,600,000 | 300,000 |
/// | `usdPerImage` | the price of a new image, in USD | unknown |
/// | `allowPrivate` | private addresses that the endpoint may connect to | none |
#[derive(Clone, Debug)]
pub struct Profile {
    pub(super) written: Written,
    pub(super) endpoint: Endpoint,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Written {
    base_url: String,
    pub(super) model: Option<String>,
    #[serde(default)]
    models: Vec<String>,
    #[serde(default)]
    options: Json,
    #[serde(default)]
    pub(super) auth: Auth,
    key_env: Option<String>,
    key_file: Option<PathBuf>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default = "max_retries")]
    pub(super) max_retries: u32,
    #[serde(default = "max_calls")]
    max_calls: usize,
    #[serde(default = "timeout_ms")]
    timeout_ms: u64,
    usd_per_image: Option<f64>,
    #[serde(default)]
    allow_private: Vec<String>,
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

impl Profile {
    /// Reads a profile. Relative files start at `folder`; keys are read at each call. The error names the member.
    pub fn read(json: &Json, folder: &Path) -> Result<Profile, String> {
        let written: Written = serde_path_to_error::deserialize(json.to_serde())
            .map_err(|error| format!("{}: {}", error.path(), error.inner()))?;
        if written.max_retries > MAX_RETRIES {
            return Err(format!("maxRetries must be at most {MAX_RETRIES}"));
        }
        if !(1..=MAX_CALLS).contains(&written.max_calls) {
            return Err(format!("maxCalls must be 1 to {MAX_CALLS}"));
        }
        if !(1..=MAX_TIMEOUT_MS).contains(&written.timeout_ms) {
            return Err(format!("timeoutMs must be 1 to {MAX_TIMEOUT_MS}"));
        }
        if !written.options.is_null() && written.options.as_object().is_none() {
            return Err(format!("options must be an object, not {}", written.options.type_name()));
        }
        if written.usd_per_image.is_some_and(|usd| !usd.is_finite() || usd < 0.0) {
            return Err("usdPerImage must be a number of at least 0".into());
        }
        let parts = Parts {
            base_url: Some(&written.base_url),
            auth: &written.auth,
            key_env: written.key_env.as_deref(),
            key_file: written.key_file.as_ref(),
            headers: &written.headers,
            allow_private: &written.allow_private,
        };
        let endpoint = parts.read(folder)?;
        Ok(Profile { written, endpoint })
    }

    /// Returns the time limit of a call with all its attempts.
    pub(super) fn timeout(&self) -> Duration {
        Duration::from_millis(self.written.timeout_ms)
    }

    /// Returns the default options of calls.
    pub(super) fn options(&self) -> Object {
        self.written.options.as_object().cloned().unwrap_or_default()
    }

    /// Returns true if calls may name this model.
    pub(super) fn lets_name(&self, model: &str) -> bool {
        self.written.model.as_deref() == Some(model)
            || self.written.models.iter().any(|allowed| pattern::matches(allowed, model))
    }

    /// Returns the URL of a function, such as `images/edits`.
    pub(super) fn address(&self, function: &str) -> String {
        format!("{}/{function}", self.written.base_url.trim_end_matches('/'))
    }

    /// Returns the price of this many images in USD, or `None` if no price is configured.
    pub(super) fn price_of(&self, images: u64) -> Option<f64> {
        Some(self.written.usd_per_image? * images as f64)
    }

    /// Returns the limit of concurrent calls of all tenants of a server.
    pub fn max_calls(&self) -> usize {
        self.written.max_calls
    }

    /// Returns the limit in milliseconds of a call with all its attempts.
    pub fn timeout_ms(&self) -> u64 {
        self.written.timeout_ms
    }

    /// Returns the maximum attempts at a call after the first.
    pub fn max_retries(&self) -> u32 {
        self.written.max_retries
    }
}
