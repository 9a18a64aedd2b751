//! The kinds of credentials, and the fields of their forms.

use maud::{Markup, html};
use serde_json::{Map, Value, json};

use crate::{parts::quoted, sent::Form};

/// A kind of credentials.
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// The way in which the host proves who calls.
    about: &'static str,
    settings: &'static [Field],
    /// The secrets, the main one first.
    secrets: &'static [Field],
}

/// A setting or a secret.
struct Field {
    name: &'static str,
    label: &'static str,
    hint: &'static str,
    input: Input,
    needed: bool,
}

/// The control of a field.
enum Input {
    Line,
    /// One of these values. An empty one is the default of the host.
    Choice(&'static [&'static str]),
    /// Members of an object, `NAME=VALUE` one a line.
    Members,
    /// A value that is never shown.
    Secret,
}

const fn line(name: &'static str, label: &'static str, hint: &'static str, needed: bool) -> Field {
    Field { name, label, hint, input: Input::Line, needed }
}

const fn choice(name: &'static str, label: &'static str, hint: &'static str, all: &'static [&'static str]) -> Field {
    Field { name, label, hint, input: Input::Choice(all), needed: !all[0].is_empty() }
}

const fn secret(name: &'static str, label: &'static str, hint: &'static str, needed: bool) -> Field {
    Field { name, label, hint, input: Input::Secret, needed }
}

/// All kinds, the simplest first.
pub(super) static KINDS: [Kind; 6] = [
    Kind {
        name: "bearer",
        about: "A token in the header authorization.",
        settings: &[],
        secrets: &[secret("token", "Token", "Sent as Bearer TOKEN.", true)],
    },
    Kind {
        name: "basic",
        about: "A user name and a password in the header authorization.",
        settings: &[],
        secrets: &[secret("login", "Login", "USER:PASSWORD, separated by a colon.", true)],
    },
    Kind {
        name: "apiKey",
        about: "A key in a header, in the query of the URL, or in the body.",
        settings: &[
            choice("in", "Place", "The part of the request that has the key.", &["header", "query", "body"]),
            line("key", "Name", "The name of the header, parameter or member, such as x-api-key.", true),
            line("prefix", "Prefix", "A text before the key. It may be empty.", false),
        ],
        secrets: &[secret("value", "Key", "", true)],
    },
    Kind {
        name: "oauth2",
        about: "A token that the host gets from a token endpoint, and renews.",
        settings: &[
            choice(
                "grant",
                "Grant",
                "The way to a token. A person consents to authorization_code, after the credential is set.",
                &["authorization_code", "client_credentials", "refresh_token"],
            ),
            line("tokenUrl", "Token endpoint", "Such as https://login.example.com/oauth/token.", true),
            line("authorizeUrl", "Address for the consent", "Only for authorization_code.", false),
            line("clientId", "Client", "The id of the client at the authorization server.", true),
            choice(
                "clientAuth",
                "Proof of the client",
                "In the header (basic, the default), in the body (post), or none for a public client.",
                &["", "basic", "post", "none"],
            ),
            line("scope", "Scopes", "Separated by spaces.", false),
            Field {
                name: "params",
                label: "More parameters",
                hint: "NAME=VALUE, one a line, for both endpoints.",
                input: Input::Members,
                needed: false,
            },
        ],
        secrets: &[
            secret("clientSecret", "Client secret", "A public client has none.", false),
            secret("refreshToken", "Refresh token", "Only for refresh_token.", false),
        ],
    },
    Kind {
        name: "hmac",
        about: "A signature over the request, in a header.",
        settings: &[
            line("header", "Header", "The header with the signature, such as x-signature.", true),
            line("message", "Signed text", "With {method}, {target}, {body}, {timestamp} and others.", true),
            line("value", "Value of the header", "With {signature}. By default the signature alone.", false),
            choice("algorithm", "Algorithm", "sha256 by default.", &["", "sha256", "sha512", "sha1"]),
            choice("encoding", "Encoding", "hex by default.", &["", "hex", "base64"]),
            line("timestampHeader", "Header with the time", "Needed if the text has {timestamp}.", false),
        ],
        secrets: &[secret("secret", "Key", "", true)],
    },
    Kind {
        name: "sigv4",
        about: "A signature of AWS, version 4.",
        settings: &[
            line("accessKeyId", "Access key", "The id of the key.", true),
            line("region", "Region", "Such as eu-central-1.", true),
            line("service", "Service", "Such as s3.", true),
        ],
        secrets: &[
            secret("secretAccessKey", "Secret access key", "", true),
            secret("sessionToken", "Session token", "Only for keys that end.", false),
        ],
    },
];

impl Kind {
    pub(super) fn named(name: &str) -> Option<&'static Kind> {
        KINDS.iter().find(|kind| kind.name == name)
    }

    /// Shows the fields with the values of these settings. Secrets are always empty.
    pub(super) fn fields(&self, settings: &Value) -> Markup {
        html! {
            p .faint { (self.about) }
            @for field in self.settings.iter().chain(self.secrets) {
                @let (id, hint) = (field.id(), format!("{}-hint", field.id()));
                div .field {
                    label for=(id) { (field.label) }
                    (field.control(&settings[field.name]))
                    @if !field.hint.is_empty() { p .hint id=(hint) { (field.hint) } }
                }
            }
        }
    }

    /// Returns the settings that a form has sent. Empty ones count as missing.
    pub(super) fn settings_of(&self, form: &Form) -> Map<String, Value> {
        let sent = |field: &Field| Some((field.name.to_owned(), field.value_of(form)?));
        self.settings.iter().filter_map(sent).collect()
    }

    /// Returns the secrets that a form has sent.
    pub(super) fn secrets_of(&self, form: &Form) -> Map<String, Value> {
        let sent = |field: &Field| {
            let value = form.text(&field.id()).filter(|value| !value.is_empty())?;
            Some((field.name.to_owned(), Value::from(value)))
        };
        self.secrets.iter().filter_map(sent).collect()
    }

    /// Returns the command that sets a credential of this kind with these settings, which reads the main secret from
    /// standard input.
    pub(super) fn command(&self, name: &str, settings: &Value, origins: &[&str]) -> String {
        let mut line = format!("credential set {} --kind {}", quoted(name), self.name);
        for field in self.settings {
            match &settings[field.name] {
                Value::String(value) => line += &format!(" --set {}", quoted(&format!("{}={value}", field.name))),
                Value::Object(members) => {
                    for (member, value) in members {
                        let value = value.as_str().unwrap_or_default();
                        line += &format!(" --set {}", quoted(&format!("{}.{member}={value}", field.name)));
                    }
                }
                _ => {}
            }
        }
        origins.iter().for_each(|origin| line += &format!(" --for {}", quoted(origin)));
        line
    }
}

impl Field {
    /// Returns the name of the field in the form, and its id in the page.
    fn id(&self) -> String {
        let kind = if matches!(self.input, Input::Secret) { "secret" } else { "setting" };
        format!("{kind}-{}", self.name)
    }

    fn control(&self, value: &Value) -> Markup {
        let id = self.id();
        let described = (!self.hint.is_empty()).then(|| format!("{id}-hint"));
        let text = value.as_str().unwrap_or_default();
        html! {
            @match self.input {
                Input::Line => {
                    input id=(id) name=(id) value=(text) required[self.needed] autocomplete="off" spellcheck="false"
                        aria-describedby=[described];
                }
                Input::Secret => {
                    input id=(id) name=(id) type="password" required[self.needed] autocomplete="new-password"
                        aria-describedby=[described];
                }
                Input::Members => {
                    textarea id=(id) name=(id) rows="2" spellcheck="false" aria-describedby=[described] {
                        (members_text(value))
                    }
                }
                Input::Choice(all) => {
                    select id=(id) name=(id) aria-describedby=[described] {
                        @for each in all {
                            option value=(each) selected[*each == text] {
                                @if each.is_empty() { "the default" } @else { (each) }
                            }
                        }
                    }
                }
            }
        }
    }

    fn value_of(&self, form: &Form) -> Option<Value> {
        let sent = form.text(&self.id())?;
        match self.input {
            Input::Members => {
                let members: Map<_, _> = lines(sent)
                    .map(|line| {
                        let (name, value) = line.split_once('=').unwrap_or((line, ""));
                        (name.to_owned(), json!(value))
                    })
                    .collect();
                (!members.is_empty()).then(|| members.into())
            }
            _ => Some(sent).filter(|sent| !sent.is_empty()).map(Value::from),
        }
    }
}

/// Returns the lines of a text that are not empty, without the spaces around them.
pub(super) fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty())
}

fn members_text(value: &Value) -> String {
    let members = value.as_object().into_iter().flatten();
    let lines: Vec<_> = members.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default())).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::sent::form_of;

    #[test]
    fn a_form_is_sent_with_its_settings_and_never_shows_a_secret() {
        let kind = Kind::named("oauth2").unwrap();
        let sent = [
            ("setting-grant", "authorization_code"),
            ("setting-tokenUrl", "https://login.example.com/token"),
            ("setting-scope", ""),
            ("setting-params", "audience=https://api.example.com?a=b\n\n prompt=consent "),
            ("secret-clientSecret", "hunter2-hunter2"),
            ("secret-refreshToken", ""),
            ("setting-unknown", "x"),
        ];
        let form = form_of(&sent);
        let settings = Value::from(kind.settings_of(&form));
        assert_eq!(
            settings,
            json!({ "grant": "authorization_code", "tokenUrl": "https://login.example.com/token",
                "params": { "audience": "https://api.example.com?a=b", "prompt": "consent" } })
        );
        assert_eq!(Value::from(kind.secrets_of(&form)), json!({ "clientSecret": "hunter2-hunter2" }));
        let mut shown = settings.clone();
        shown["clientSecret"] = "hunter2-hunter2".into();
        let page = kind.fields(&shown).into_string();
        assert!(page.contains("audience=https://api.example.com?a=b\nprompt=consent"), "{page}");
        assert!(page.contains(r#"<option value="authorization_code" selected>"#), "{page}");
        assert!(!page.contains("hunter2"), "{page}");
        assert_eq!(
            kind.command("my crm", &settings, &["https://api.example.com"]),
            "credential set 'my crm' --kind oauth2 --set grant=authorization_code --set \
             tokenUrl=https://login.example.com/token --set 'params.audience=https://api.example.com?a=b' --set \
             params.prompt=consent --for https://api.example.com"
        );
    }

    #[test]
    fn each_kind_has_its_fields_once() {
        for kind in &KINDS {
            let ids: Vec<_> = kind.settings.iter().chain(kind.secrets).map(Field::id).collect();
            let unique: std::collections::BTreeSet<_> = ids.iter().collect();
            assert_eq!(unique.len(), ids.len(), "{}", kind.name);
        }
    }
}
