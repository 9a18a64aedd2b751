//! The model providers that an operator configures, and those that are built in.

use std::{fs, path::Path, sync::Arc};

use flowcell_contract::{Failure, Json, Object, yaml_error};
use hyper::header::{HeaderName, HeaderValue};
use indexmap::IndexMap;

use super::{
    object_reader::{ObjectReader, suggest_known, wrong},
    profile::{Dialect, Profile},
    script::Entry,
    simulated::Script,
};
use crate::{
    egress::{AddressRange, OriginGrants},
    endpoint::{Endpoint, EndpointMembers},
    secret::KeySource,
};

/// The model of a simulated profile that names none.
const SIMULATED: &str = "simulated";

/// The built-in profiles. They need only the environment variable with the API key, and a model in the request.
const BUILT_IN: &str = include_str!("providers/built-in.yaml");

/// Maximum of `maxRetries` in a profile.
const MAX_RETRIES: u32 = 10;
/// Maximum of `maxCalls` in a profile.
const MAX_CALLS: usize = 4_096;
/// Maximum of `timeoutMs` in a profile: one hour.
const MAX_TIMEOUT_MS: u64 = 3_600_000;

/// Profiles by name, and the name of the profile for requests that name none.
///
/// ```yaml
/// default: anthropic
/// profiles:
///   anthropic: { model: claude-example, keyFile: ./anthropic.key }
///   local: { dialect: chat, baseUrl: "http://127.0.0.1:8000/v1", auth: none, allowPrivate: ["127.0.0.1:8000"] }
/// ```
///
/// Built in are `anthropic` (the default; `ANTHROPIC_API_KEY`), `openai` and `openai-responses` (`OPENAI_API_KEY`),
/// `ollama` (this machine, port 11434, no key) and `simulated`. A profile with one of these names overrides the members
/// that it sets.
#[derive(Clone, Debug)]
pub struct Providers {
    profiles: IndexMap<Arc<str>, Arc<Provider>>,
    default: Arc<str>,
}

/// A checked profile.
#[derive(Debug)]
pub(super) struct Provider {
    pub(super) name: Arc<str>,
    pub(super) profile: Profile,
    pub(super) key: Option<KeySource>,
    pub(super) origin: OriginGrants,
    pub(super) private: Vec<AddressRange>,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) script: Script,
}

impl Providers {
    /// Returns the built-in profiles.
    pub fn built_in() -> Result<Providers, Failure> {
        Providers::parse("{}", Path::new(""))
    }

    /// Reads a configuration in YAML or JSON. Relative file names start at `folder`. Scripts are read now, API keys at
    /// each call. An error is `invalid_input` and names the wrong member.
    pub fn parse(text: &str, folder: &Path) -> Result<Providers, Failure> {
        let parse = |text: &str| {
            serde_yaml::from_str::<Json>(text).map_err(|error| wrong(format!("providers: {}", yaml_error(&error))))
        };
        let (own, built_in) = (parse(text)?, parse(BUILT_IN)?);
        let empty = Json::object::<&str>([]);
        let own = ObjectReader::new(if own.is_null() { &empty } else { &own }, "providers", &["default", "profiles"])?;
        let changes = own.object("profiles")?.and_then(Json::as_object).cloned().unwrap_or_default();
        let mut profiles = built_in.as_object().cloned().unwrap_or_default();
        for (name, change) in changes {
            let merged = merge(profiles.get(&name), &change, &name)?;
            profiles.insert(name, merged);
        }
        let read = |(name, json): (&Arc<str>, &Json)| Ok((name.clone(), Arc::new(Provider::read(name, json, folder)?)));
        let profiles = profiles.iter().map(read).collect::<Result<IndexMap<_, _>, Failure>>()?;
        let default = own.text("default")?.unwrap_or_else(|| "anthropic".into());
        let providers = Providers { profiles, default };
        providers.find(None).map_err(|failure| wrong(format!("providers.default: {}", failure.message)))?;
        Ok(providers)
    }

    /// Returns the same profiles, with a simulated provider that answers from this script in place of each real one.
    /// Names, models and prices stay. Nothing leaves the host.
    pub fn simulated(&self, script: Vec<Entry>) -> Result<Providers, Failure> {
        let script = Script::new(script).map_err(wrong)?;
        let replaced = self.profiles.iter().map(|(name, provider)| {
            let mut profile = Profile { dialect: Dialect::Simulated, ..provider.profile.clone() };
            profile.model.get_or_insert_with(|| SIMULATED.into());
            (name.clone(), Arc::new(Provider::simulated(name.clone(), profile, script.clone())))
        });
        Ok(Providers { profiles: replaced.collect(), default: self.default.clone() })
    }

    /// Returns the names of the profiles, the built-in ones included.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.profiles.keys().map(AsRef::as_ref)
    }

    /// Returns the profile with this name.
    pub fn profile(&self, name: &str) -> Option<&Profile> {
        self.profiles.get(name).map(|provider| &provider.profile)
    }

    pub(super) fn find(&self, name: Option<&str>) -> Result<&Arc<Provider>, Failure> {
        let name = name.unwrap_or(&self.default);
        self.profiles.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.names().collect();
            wrong(format!("unknown model provider `{name}`; {}", suggest_known(name, &known)))
        })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Provider>> {
        self.profiles.values()
    }
}

/// Merges a profile over the built-in one of the same name. If the profile sets `keyEnv` or `keyFile`, both built-in
/// members are dropped.
fn merge(built_in: Option<&Json>, change: &Json, name: &str) -> Result<Json, Failure> {
    let change = change.as_object().ok_or_else(|| wrong(format!("providers.profiles.{name} must be an object")))?;
    let mut members: Object = built_in.and_then(Json::as_object).cloned().unwrap_or_default();
    if change.keys().any(|key| matches!(&**key, "keyEnv" | "keyFile")) {
        members.retain(|key, _| !matches!(&**key, "keyEnv" | "keyFile"));
    }
    members.extend(change.iter().map(|(key, value)| (key.clone(), value.clone())));
    Ok(Json::object(members))
}

impl Provider {
    fn read(name: &Arc<str>, json: &Json, folder: &Path) -> Result<Provider, Failure> {
        let refuse = |why: String| wrong(format!("providers.profiles.{name}: {why}"));
        let deserializer = json.to_serde();
        let profile: Profile = serde_path_to_error::deserialize(deserializer)
            .map_err(|error| refuse(format!("{}: {}", error.path(), error.inner())))?;
        check_name(name).map_err(refuse)?;
        check_numbers(&profile).map_err(refuse)?;
        let script = script(&profile, folder).map_err(refuse)?;
        if profile.dialect == Dialect::Simulated {
            return Ok(Provider::simulated(name.clone(), profile, script));
        }
        let Endpoint { key, origin, private, headers } = endpoint(&profile, folder).map_err(refuse)?;
        Ok(Provider { name: name.clone(), profile, key, origin, private, headers, script })
    }

    fn simulated(name: Arc<str>, profile: Profile, script: Script) -> Provider {
        let (origin, private, headers) = (OriginGrants::default(), Vec::new(), Vec::new());
        Provider { name, profile, key: None, origin, private, headers, script }
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    match !name.is_empty() && name.bytes().all(plain) {
        true => Ok(()),
        false => Err("a name may have only letters, digits, `_`, `-` and `.`".into()),
    }
}

fn check_numbers(profile: &Profile) -> Result<(), String> {
    let unsound = profile.prices.iter().find(|price| !price.is_sound());
    if let Some(price) = unsound {
        return Err(format!("prices: a number for `{}` is not a price", price.model));
    }
    if !(1..=MAX_CALLS).contains(&profile.max_calls) {
        return Err(format!("maxCalls must be 1 to {MAX_CALLS}"));
    }
    if profile.max_retries > MAX_RETRIES {
        return Err(format!("maxRetries must be at most {MAX_RETRIES}"));
    }
    if !(1..=MAX_TIMEOUT_MS).contains(&profile.timeout_ms) {
        return Err(format!("timeoutMs must be 1 to {MAX_TIMEOUT_MS}"));
    }
    match profile.idle_ms == 0 || profile.max_tokens == Some(0) {
        true => Err("idleMs and maxTokens must be at least 1".into()),
        false => Ok(()),
    }
}

fn endpoint(profile: &Profile, folder: &Path) -> Result<Endpoint, String> {
    let Profile { base_url, auth, key_env, key_file, headers, allow_private, .. } = profile;
    let (base_url, key_env) = (base_url.as_deref(), key_env.as_deref());
    EndpointMembers { base_url, auth, key_env, key_file: key_file.as_ref(), headers, allow_private }.read(folder)
}

fn script(profile: &Profile, folder: &Path) -> Result<Script, String> {
    if profile.dialect != Dialect::Simulated && (profile.script.is_some() || profile.script_file.is_some()) {
        return Err("only a profile of the dialect `simulated` may have a script".into());
    }
    match (&profile.script, &profile.script_file) {
        (Some(_), Some(_)) => Err("use either `script` or `scriptFile`, not both".into()),
        (Some(entries), None) => Script::new(entries.clone()),
        (None, None) => Script::new(Vec::new()),
        (None, Some(file)) => {
            let text = fs::read_to_string(folder.join(file)).map_err(|error| format!("scriptFile: {error}"))?;
            Script::parse(&text).map_err(|why| format!("scriptFile: {why}"))
        }
    }
}
