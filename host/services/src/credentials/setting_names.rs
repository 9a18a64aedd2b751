//! The names of the settings of each kind, for messages that say what a kind needs.

use flowcell_contract::CredentialKind;
use serde_json::{Map, Value};

/// A setting of a kind.
struct Setting {
    name: &'static str,
    /// A credential of this kind needs the setting.
    is_needed: bool,
    /// The only values, or none if other texts are values, too.
    values: &'static [&'static str],
    /// Describes the values for people.
    meaning: &'static str,
}

const fn needed(name: &'static str, meaning: &'static str) -> Setting {
    Setting { name, is_needed: true, values: &[], meaning }
}

const fn optional(name: &'static str, meaning: &'static str) -> Setting {
    Setting { name, is_needed: false, values: &[], meaning }
}

const fn one_of(name: &'static str, is_needed: bool, values: &'static [&'static str]) -> Setting {
    Setting { name, is_needed, values, meaning: "" }
}

/// The setting whose value is an object of texts.
const PARAMS: &str = "params";

const API_KEY: &[Setting] = &[
    one_of("in", true, &["header", "query", "body"]),
    needed("key", "the name of the header, of the parameter or of the member"),
    optional("prefix", "a text before the value"),
];
const OAUTH2: &[Setting] = &[
    one_of("grant", true, &["client_credentials", "refresh_token", "authorization_code"]),
    needed("tokenUrl", "the URL of the token endpoint"),
    optional("authorizeUrl", "the URL at which a person consents"),
    needed("clientId", "the id of the client"),
    one_of("clientAuth", false, &["basic", "post", "none"]),
    optional("scope", "the scopes, separated by spaces"),
    optional(PARAMS, "an object of texts"),
];
const HMAC: &[Setting] = &[
    needed("header", "the name of the header with the signature"),
    optional("value", "the value of the header, with `{signature}` in it"),
    needed("message", "the signed text, such as `{timestamp}.{method}.{target}.{body}`"),
    one_of("algorithm", false, &["sha256", "sha1", "sha512"]),
    one_of("encoding", false, &["hex", "base64"]),
    optional("timestampHeader", "the name of the header with the time"),
];
const SIGV4: &[Setting] = &[
    needed("accessKeyId", "the id of the access key"),
    needed("region", "the region, such as `eu-central-1`"),
    needed("service", "the service, such as `s3`"),
];

/// Returns the settings of a kind, and an example of those that it needs.
fn settings_of(kind: CredentialKind) -> (&'static [Setting], &'static str) {
    match kind {
        CredentialKind::Bearer | CredentialKind::Basic => (&[], ""),
        CredentialKind::ApiKey => (API_KEY, "in=header key=X-API-Key"),
        CredentialKind::OAuth2 => {
            (OAUTH2, "grant=client_credentials tokenUrl=https://login.example.com/oauth/token clientId=flows")
        }
        CredentialKind::Hmac => (HMAC, "header=X-Signature message={body}"),
        CredentialKind::SigV4 => (SIGV4, "accessKeyId=AKIDEXAMPLE region=eu-central-1 service=s3"),
    }
}

/// Checks that a kind has these settings, that those it needs are there, and that each has the form of its values. The
/// error names the kind, the setting, its values and an example. It has no value, which may be a secret.
pub(super) fn check_members(kind: CredentialKind, members: &Map<String, Value>) -> Result<(), String> {
    let (settings, example) = settings_of(kind);
    let example = if example.is_empty() { String::new() } else { format!("; for example: {example}") };
    if let Some(unknown) = members.keys().find(|name| !settings.iter().any(|setting| setting.name == *name)) {
        let names: Vec<_> = settings.iter().map(|setting| format!("`{}`", setting.name)).collect();
        let known = if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", names.join(", ")) };
        let unknown = unknown.escape_debug();
        return Err(format!("the kind `{kind}` has no setting `{unknown}`; {known}{example}"));
    }
    for setting in settings {
        let (name, values) = (setting.name, setting.values());
        match members.get(name) {
            None if setting.is_needed => {
                return Err(format!("the kind `{kind}` needs the setting `{name}`: {values}{example}"));
            }
            Some(value) if !setting.admits(value) => {
                return Err(format!("the setting `{name}` of the kind `{kind}` must be {values}{example}"));
            }
            _ => {}
        }
    }
    Ok(())
}

impl Setting {
    fn values(&self) -> String {
        match self.values {
            [] => self.meaning.to_owned(),
            values => {
                format!("one of {}", values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", "))
            }
        }
    }

    fn admits(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => {
                self.name != PARAMS && (self.values.is_empty() || self.values.contains(&text.as_str()))
            }
            // A setting that may be left out may also be null.
            Value::Null => !self.is_needed && matches!(self.name, "authorizeUrl" | "timestampHeader"),
            Value::Object(members) => self.name == PARAMS && members.values().all(Value::is_string),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::Settings, *};

    #[test]
    fn the_examples_are_settings_of_their_kinds() {
        for kind in CredentialKind::ALL {
            let example = settings_of(kind).1;
            let pairs = example.split(' ').filter_map(|pair| pair.split_once('='));
            let members: Map<_, _> = pairs.map(|(name, value)| (name.to_owned(), value.into())).collect();
            let settings = Settings::parse(kind.name(), members.clone()).unwrap();
            assert_eq!(settings.kind(), kind);
            for name in members.keys() {
                let mut fewer = members.clone();
                fewer.remove(name);
                let error = check_members(kind, &fewer).unwrap_err();
                assert!(error.contains(&format!("`{kind}` needs the setting `{name}`")), "{error}");
                assert!(error.ends_with(&format!("; for example: {example}")), "{error}");
            }
        }
    }

    #[test]
    fn every_listed_value_is_read() {
        for kind in CredentialKind::ALL {
            let (settings, example) = settings_of(kind);
            let pairs = example.split(' ').filter_map(|pair| pair.split_once('='));
            let members: Map<_, _> = pairs.map(|(name, value)| (name.to_owned(), value.into())).collect();
            for (setting, value) in settings.iter().flat_map(|of| of.values.iter().map(move |value| (of, *value))) {
                let mut members = members.clone();
                members.insert(setting.name.into(), value.into());
                if value == "authorization_code" {
                    members.insert("authorizeUrl".into(), "https://login.example.com/authorize".into());
                }
                if value == "none" {
                    members.insert("grant".into(), "refresh_token".into());
                }
                Settings::parse(kind.name(), members)
                    .unwrap_or_else(|error| panic!("{}={value}: {error}", setting.name));
            }
        }
    }

    #[test]
    fn a_wrong_setting_is_named_with_its_kind_and_its_values() {
        let cases = [
            (
                CredentialKind::Bearer,
                json!({ "token": "hunter2-hunter2" }),
                "the kind `bearer` has no setting `token`; it has none",
            ),
            (
                CredentialKind::ApiKey,
                json!({}),
                "the kind `apiKey` needs the setting `in`: one of `header`, `query`, `body`; for",
            ),
            (
                CredentialKind::ApiKey,
                json!({ "in": "hunter2" }),
                "the setting `in` of the kind `apiKey` must be one of `header`, ",
            ),
            (
                CredentialKind::ApiKey,
                json!({ "in": "body", "name": "x" }),
                "has no setting `name`; it has `in`, `key`, `prefix`; for",
            ),
            (
                CredentialKind::Hmac,
                json!({ "header": 1, "message": "m" }),
                "`header` of the kind `hmac` must be the name of the ",
            ),
            (
                CredentialKind::OAuth2,
                json!({ "grant": null }),
                "the setting `grant` of the kind `oauth2` must be one of `client_",
            ),
        ];
        for (kind, members, part) in cases {
            let error = check_members(kind, members.as_object().unwrap()).unwrap_err();
            assert!(error.contains(part) && !error.contains("hunter2"), "{error}");
        }
    }
}
