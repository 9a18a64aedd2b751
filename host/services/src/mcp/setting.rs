//! The values of the environment variables and headers in a server's configuration: literal, inherited from the host's
//! environment, or secret.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use flowcell_contract::{Failure, Json};
use hyper::header::HeaderValue;
use serde::Deserialize;

use crate::{
    code,
    redaction::Redaction,
    secret::{Environment, Key, KeySource},
};

/// Maximum characters of a server's text that the message of a failure repeats.
const MAX_QUOTED_CHARS: usize = 500;

/// The source of the value of a variable or header.
pub(super) enum Setting {
    /// The host's environment variable of the same name, if it is set.
    Inherited,
    /// A literal value of the configuration.
    Plain(String),
    /// A secret, and its prefix.
    Key { source: KeySource, prefix: String },
}

impl fmt::Debug for Setting {
    /// Hides all values, because people write secrets in the wrong places.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Inherited => formatter.write_str("Inherited"),
            Setting::Plain(_) => formatter.write_str("Plain"),
            Setting::Key { source, .. } => source.fmt(formatter),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    key_env: Option<String>,
    key_file: Option<PathBuf>,
    prefix: Option<String>,
}

impl Setting {
    /// Reads a setting. `place` names it in error messages. `prefix` is the default prefix of a secret. Relative
    /// files start at `folder`.
    pub(super) fn read(json: &Json, place: &str, prefix: &str, folder: &Path) -> Result<Setting, String> {
        if let Some(text) = json.as_str() {
            return match text.contains('\0') {
                true => Err(format!("{place} must not contain NUL")),
                false => Ok(Setting::Plain(text.to_owned())),
            };
        }
        let written: Written =
            serde_path_to_error::deserialize(json.to_serde()).map_err(|error| format!("{place}: {}", error.inner()))?;
        let source = match (written.key_env, written.key_file) {
            (Some(name), None) if is_variable(&name) => KeySource::Environment(name),
            (Some(name), None) => return Err(format!("{place}: `{name}` is not the name of a variable")),
            (None, Some(file)) => KeySource::File(folder.join(file)),
            _ => return Err(format!("{place} must be a text, `{{ keyEnv }}` or `{{ keyFile }}`")),
        };
        Ok(Setting::Key { source, prefix: written.prefix.unwrap_or_else(|| prefix.to_owned()) })
    }

    /// Reads an environment: a list of names, or settings by name.
    pub(super) fn environment(json: &Json, folder: &Path) -> Result<Vec<(String, Setting)>, String> {
        let named = |name: &str| match is_variable(name) {
            true => Ok(name.to_owned()),
            false => Err(format!("env: `{name}` is not the name of a variable")),
        };
        match json {
            Json::Null => Ok(Vec::new()),
            Json::Array(names) => names
                .iter()
                .map(|name| Ok((named(name.as_str().ok_or("env: a name must be a text")?)?, Setting::Inherited)))
                .collect(),
            Json::Object(settings) => settings
                .iter()
                .map(|(name, json)| Ok((named(name)?, Setting::read(json, &format!("env.{name}"), "", folder)?)))
                .collect(),
            other => Err(format!("env: must be a list of names or an object, not {}", other.type_name())),
        }
    }

    /// Returns the value, or `None` for an inherited variable that the host does not have. If the value is a secret,
    /// adds the secret to `keys`. The host redacts these keys in the server's output.
    pub(super) async fn value(
        &self,
        name: &str,
        environment: &Environment,
        keys: &mut Vec<Key>,
    ) -> Result<Option<String>, Failure> {
        match self {
            Setting::Inherited => Ok(environment(name)),
            Setting::Plain(text) => Ok(Some(text.clone())),
            Setting::Key { source, prefix } => {
                let key = source.read(environment, code::MCP_AUTH).await?;
                let text = key.text(prefix);
                keys.push(key);
                Ok(Some(text))
            }
        }
    }

    /// Returns the value as a header value, marked as sensitive. Adds a secret to `keys`.
    pub(super) async fn header(
        &self,
        name: &str,
        environment: &Environment,
        keys: &mut Vec<Key>,
    ) -> Result<HeaderValue, Failure> {
        let text = self.value(name, environment, keys).await?.unwrap_or_default();
        let unsendable = |_| Failure::new(code::MCP_AUTH, format!("the value of the header `{name}` is invalid"));
        let mut value = HeaderValue::from_str(&text).map_err(unsendable)?;
        value.set_sensitive(true);
        Ok(value)
    }
}

/// Returns true for a portable variable name: letters, digits and `_`.
fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Returns a server's text with secrets redacted, on one line and of limited length.
pub(super) async fn readable(redaction: &Redaction, text: &str) -> String {
    one_line(&redaction.text(text).await)
}

/// Returns a text on one line and of limited length.
pub(super) fn one_line(text: &str) -> String {
    let clean = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    let mut short: String = clean.clone().take(MAX_QUOTED_CHARS).collect();
    if clean.count() > MAX_QUOTED_CHARS {
        short.push('…');
    }
    short.trim().to_owned()
}
