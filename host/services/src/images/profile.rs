//! The operator's profile of an endpoint that makes images.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use flowcell_contract::{Json, Object};
use serde::Deserialize;

use crate::{
    endpoint::{Auth, Endpoint, EndpointMembers},
    pattern,
};

/// Default of `timeoutMs`: the maximum duration of a call with all its attempts, in milliseconds.
const DEFAULT_TIMEOUT_MS: u64 = 300_000;
/// Maximum of `timeoutMs` in a profile: one hour.
const MAX_TIMEOUT_MS: u64 = 3_600_000;
/// Default of `maxRetries`: the maximum number of further attempts at a call, after the first one failed.
const DEFAULT_MAX_RETRIES: u32 = 2;
/// Default of `maxCalls`: the maximum number of concurrent calls, of all tenants together.
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
/// | `maxRetries` | maximum further attempts at a call, after the first one failed, 0 to 10 | 2 |
/// | `maxCalls` | maximum concurrent calls of a Flowcell server with tenants, of all tenants together, 1 to 4,096; further calls wait. A tenant with calls in progress gets another one only if it then has no more calls than permits are still free. Other processes, such as the command line, do not limit the calls | 64 |
/// | `timeoutMs` | milliseconds for a call with all its attempts, 1 to 3,600,000 | 300,000 |
/// | `usdPerImage` | the price of a new image, in USD | unknown |
/// | `allowPrivate` | private addresses that the endpoint may connect to | none |
#[derive(Clone, Debug)]
pub struct Profile {
    pub(super) members: ProfileMembers,
    pub(super) endpoint: Endpoint,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ProfileMembers {
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
    /// Reads a profile. A relative `keyFile` starts at `folder`; keys are read at each call. The error names the wrong
    /// member.
    pub fn read(json: &Json, folder: &Path) -> Result<Profile, String> {
        let members: ProfileMembers = serde_path_to_error::deserialize(json.to_serde())
            .map_err(|error| format!("{}: {}", error.path(), error.inner()))?;
        if members.max_retries > MAX_RETRIES {
            return Err(format!("maxRetries must be at most {MAX_RETRIES}"));
        }
        if !(1..=MAX_CALLS).contains(&members.max_calls) {
            return Err(format!("maxCalls must be 1 to {MAX_CALLS}"));
        }
        if !(1..=MAX_TIMEOUT_MS).contains(&members.timeout_ms) {
            return Err(format!("timeoutMs must be 1 to {MAX_TIMEOUT_MS}"));
        }
        if !members.options.is_null() && members.options.as_object().is_none() {
            return Err(format!("options must be an object, not {}", members.options.type_name()));
        }
        if members.usd_per_image.is_some_and(|usd| !usd.is_finite() || usd < 0.0) {
            return Err("usdPerImage must be a number of at least 0".into());
        }
        let parts = EndpointMembers {
            base_url: Some(&members.base_url),
            auth: &members.auth,
            key_env: members.key_env.as_deref(),
            key_file: members.key_file.as_ref(),
            headers: &members.headers,
            allow_private: &members.allow_private,
        };
        let endpoint = parts.read(folder)?;
        Ok(Profile { members, endpoint })
    }

    /// Returns the time limit of a call with all its attempts.
    pub(super) fn timeout(&self) -> Duration {
        Duration::from_millis(self.members.timeout_ms)
    }

    /// Returns the default options of calls.
    pub(super) fn options(&self) -> Object {
        self.members.options.as_object().cloned().unwrap_or_default()
    }

    /// Returns true if calls may name this model.
    pub(super) fn allows_model(&self, model: &str) -> bool {
        self.members.model.as_deref() == Some(model)
            || self.members.models.iter().any(|allowed| pattern::matches(allowed, model))
    }

    /// Returns the URL of a function, such as `images/edits`.
    pub(super) fn function_url(&self, function: &str) -> String {
        format!("{}/{function}", self.members.base_url.trim_end_matches('/'))
    }

    /// Returns the price of `images` new images in USD, or `None` if no price is configured.
    pub(super) fn price_of(&self, images: u64) -> Option<f64> {
        Some(self.members.usd_per_image? * images as f64)
    }

    /// Returns the maximum number of concurrent calls of this endpoint, of all tenants together.
    pub fn max_calls(&self) -> usize {
        self.members.max_calls
    }

    /// Returns the maximum duration of a call with all its attempts, in milliseconds.
    pub fn timeout_ms(&self) -> u64 {
        self.members.timeout_ms
    }

    /// Returns the maximum number of further attempts at a call, after the first one failed.
    pub fn max_retries(&self) -> u32 {
        self.members.max_retries
    }
}
