//! The settings and the secrets of a credential, by its kind.

use std::{collections::BTreeMap, fmt};

use flowcell_contract::{CredentialKind, KeyPlace};
use hyper::header::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use url::Url;
use zeroize::Zeroizing;

use super::{
    hmac::{self, HmacSettings},
    setting_names::check_members,
};
use crate::{client::is_transfer_header, secret::check_header};

/// Maximum bytes of a URL of an endpoint.
const MAX_URL: usize = 2_048;

/// Maximum bytes of the settings of a credential as JSON.
pub const MAX_SETTINGS_BYTES: usize = 16 * 1024;
/// Minimum bytes of a secret of a credential: the redaction would find a shorter one in too many texts.
pub const MIN_SECRET_BYTES: usize = 8;
/// Maximum bytes of a secret of a credential.
pub const MAX_SECRET_BYTES: usize = 16 * 1024;
/// Maximum characters of the name of a parameter or of a member with an API key.
const MAX_KEY_NAME: usize = 64;
/// Maximum number of additional parameters of a request for a token.
const MAX_PARAMS: usize = 16;

/// The secrets of a credential, by their names.
#[derive(Clone, Default)]
pub struct SecretMembers(BTreeMap<String, Zeroizing<String>>);

/// The settings of a credential, which may be shown. They have no secrets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", deny_unknown_fields)]
pub enum Settings {
    /// The secret `token`, in the header `authorization`.
    #[serde(rename = "bearer")]
    Bearer {},
    /// The secret `login`, which is `USER:PASSWORD`, in the header `authorization`.
    #[serde(rename = "basic")]
    Basic {},
    /// The secret `value`.
    #[serde(rename = "apiKey")]
    ApiKey {
        /// The part of the request.
        #[serde(rename = "in")]
        place: KeyPlace,
        /// The name of the header, the parameter or the member.
        key: String,
        /// A text before the value.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        prefix: String,
    },
    /// The secret `clientSecret`, and `refreshToken` for tokens that were authorized elsewhere.
    #[serde(rename = "oauth2")]
    OAuth2(OAuth2Settings),
    /// The secret `secret`.
    #[serde(rename = "hmac")]
    Hmac(HmacSettings),
    /// The secret `secretAccessKey`, and `sessionToken` for keys that end.
    #[serde(rename = "sigv4")]
    SigV4(SigV4Settings),
}

/// The way to a token of OAuth 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grant {
    /// The client itself gets the token (RFC 6749, section 4.4).
    ClientCredentials,
    /// A refresh token gets the token. The host has it from `refreshToken`, or from an authorization by a person.
    RefreshToken,
    /// A person authorizes the host with `flowcell credential connect`.
    AuthorizationCode,
}

/// The way in which a client proves its identity to a token endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientAuth {
    /// In the header `authorization`.
    #[default]
    Basic,
    /// In the body.
    Post,
    /// Not at all: the client is public.
    None,
}

/// The settings of a credential of the kind `oauth2`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OAuth2Settings {
    /// The way to a token.
    pub grant: Grant,
    /// The URL of the token endpoint.
    pub token_url: String,
    /// The URL at which a person authorizes the client. Only for [`Grant::AuthorizationCode`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorize_url: Option<String>,
    /// The id of the client.
    pub client_id: String,
    /// The proof of the client's identity.
    #[serde(default)]
    pub client_auth: ClientAuth,
    /// The scopes, separated by spaces.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub scope: String,
    /// Additional parameters of the requests for tokens and authorizations, such as `audience`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, String>,
}

/// The settings of a credential of the kind `sigv4`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SigV4Settings {
    /// The id of the access key.
    pub access_key_id: String,
    /// The region, such as `eu-central-1`.
    pub region: String,
    /// The service, such as `s3`.
    pub service: String,
}

/// Parses the URL of an endpoint. The error is a part of a sentence.
pub(super) fn parse_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    let plain = matches!(url.scheme(), "https" | "http")
        && url.has_host()
        && url.username().is_empty()
        && url.password().is_none()
        && url.fragment().is_none()
        && text.len() <= MAX_URL;
    if plain { Ok(url) } else { Err("write a URL such as `https://login.example.com/oauth/token`".into()) }
}

impl SecretMembers {
    /// Reads the JSON that [`Self::to_text`] has written.
    pub fn from_text(text: &str) -> Option<SecretMembers> {
        let members: BTreeMap<String, String> = serde_json::from_str(text).ok()?;
        Some(members.into_iter().collect())
    }

    /// Returns the secrets as JSON.
    pub fn to_text(&self) -> Zeroizing<String> {
        let members: BTreeMap<&str, &str> =
            self.0.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        Zeroizing::new(serde_json::to_string(&members).unwrap_or_default())
    }

    /// Returns a secret.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|value| value.as_str())
    }

    /// Returns all secrets.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Zeroizing<String>> {
        self.0.values()
    }
}

impl FromIterator<(String, String)> for SecretMembers {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(members: I) -> SecretMembers {
        SecretMembers(members.into_iter().map(|(name, value)| (name, Zeroizing::new(value))).collect())
    }
}

impl fmt::Debug for SecretMembers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.0.keys()).finish()
    }
}

impl Settings {
    /// Reads the settings of a credential. The error is a sentence that names the wrong member.
    pub fn parse(kind: &str, members: serde_json::Map<String, serde_json::Value>) -> Result<Settings, String> {
        let Some(known) = CredentialKind::ALL.into_iter().find(|known| known.name() == kind) else {
            let kinds: Vec<_> = CredentialKind::ALL.iter().map(|kind| kind.name()).collect();
            return Err(format!("the kind is one of {}", kinds.join(", ")));
        };
        if members.contains_key("kind") {
            return Err("`kind` is not among the settings".into());
        }
        check_members(known, &members)?;
        let mut all = members;
        all.insert("kind".into(), kind.into());
        let settings: Settings = serde_json::from_value(all.into()).map_err(|error| error.to_string())?;
        settings.check().map_err(|why| format!("the kind `{kind}`: {why}"))?;
        Ok(settings)
    }

    /// Reads the JSON that [`Self::to_text`] has written.
    pub fn from_text(text: &str) -> Option<Settings> {
        serde_json::from_str(text).ok()
    }

    /// Returns the settings with their kind as JSON.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns the kind of the credential.
    pub fn kind(&self) -> CredentialKind {
        match self {
            Settings::Bearer {} => CredentialKind::Bearer,
            Settings::Basic {} => CredentialKind::Basic,
            Settings::ApiKey { .. } => CredentialKind::ApiKey,
            Settings::OAuth2(_) => CredentialKind::OAuth2,
            Settings::Hmac(_) => CredentialKind::Hmac,
            Settings::SigV4(_) => CredentialKind::SigV4,
        }
    }

    /// Returns the names of the secrets, the main one first, each with whether the credential needs it.
    pub fn secret_names(&self) -> &'static [(&'static str, bool)] {
        match self {
            Settings::Bearer {} => &[("token", true)],
            Settings::Basic {} => &[("login", true)],
            Settings::ApiKey { .. } => &[("value", true)],
            Settings::Hmac(_) => &[("secret", true)],
            Settings::SigV4(_) => &[("secretAccessKey", true), ("sessionToken", false)],
            Settings::OAuth2(OAuth2Settings { client_auth: ClientAuth::None, grant: Grant::RefreshToken, .. }) => {
                &[("refreshToken", true)]
            }
            Settings::OAuth2(OAuth2Settings { client_auth: ClientAuth::None, .. }) => &[],
            Settings::OAuth2(OAuth2Settings { grant: Grant::RefreshToken, .. }) => {
                &[("clientSecret", true), ("refreshToken", true)]
            }
            Settings::OAuth2(_) => &[("clientSecret", true)],
        }
    }

    /// Checks the secrets of a credential with these settings. The error is a sentence without them.
    pub fn check_secrets(&self, secrets: &SecretMembers) -> Result<(), String> {
        let names = self.secret_names();
        if let Some(unknown) = secrets.0.keys().find(|name| !names.iter().any(|(known, _)| known == name)) {
            return Err(format!("a credential of this kind has no secret `{unknown}`"));
        }
        for (name, is_needed) in names {
            let Some(value) = secrets.get(name) else {
                if *is_needed {
                    return Err(format!("the secret `{name}` is missing"));
                }
                continue;
            };
            if !(MIN_SECRET_BYTES..=MAX_SECRET_BYTES).contains(&value.len()) {
                return Err(format!("the secret `{name}` must have {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} bytes"));
            }
            if *name != "secret" && value.contains(char::is_control) {
                return Err(format!("the secret `{name}` has a line break or a control character"));
            }
            let goes_into_header = match self {
                Settings::Bearer {} | Settings::SigV4(_) => true,
                Settings::ApiKey { place, .. } => *place == KeyPlace::Header,
                _ => false,
            };
            if goes_into_header {
                check_header(value).map_err(|why| format!("the secret `{name}`: {why}"))?;
            }
            if *name == "login" && !value.contains(':') {
                return Err("the secret `login` is a user name and a password, separated by `:`".into());
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        if self.to_text().len() > MAX_SETTINGS_BYTES {
            return Err(format!("the settings have more than {MAX_SETTINGS_BYTES} bytes"));
        }
        match self {
            Settings::Bearer {} | Settings::Basic {} => Ok(()),
            Settings::ApiKey { place: KeyPlace::Header, key, prefix } => {
                check_header_name("key", key)?;
                let is_plain = prefix.is_ascii() && HeaderValue::from_str(prefix).is_ok();
                if is_plain { Ok(()) } else { Err("`prefix` has a character that is not allowed in a header".into()) }
            }
            Settings::ApiKey { key, prefix, .. } => {
                let is_name = (1..=MAX_KEY_NAME).contains(&key.chars().count()) && !key.contains(char::is_control);
                match is_name && !prefix.contains(char::is_control) {
                    true => Ok(()),
                    false => Err(format!("`key` is a name of 1 to {MAX_KEY_NAME} characters")),
                }
            }
            Settings::Hmac(settings) => {
                check_header_name("header", &settings.header)?;
                settings.timestamp_header.iter().try_for_each(|name| check_header_name("timestampHeader", name))?;
                hmac::check(settings)
            }
            Settings::SigV4(SigV4Settings { access_key_id, region, service }) => {
                let plain = |text: &String| {
                    (1..=128).contains(&text.len())
                        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
                };
                match [access_key_id, region, service].into_iter().all(plain) {
                    true => Ok(()),
                    false => {
                        Err("`accessKeyId`, `region` and `service` have 1 to 128 letters, digits, `-`, `_` and `.`"
                            .into())
                    }
                }
            }
            Settings::OAuth2(settings) => settings.check(),
        }
    }
}

impl OAuth2Settings {
    fn check(&self) -> Result<(), String> {
        let is_code = self.grant == Grant::AuthorizationCode;
        match (is_code, &self.authorize_url) {
            (true, None) => return Err("add `authorizeUrl`, where a person authorizes the client".into()),
            (false, Some(_)) => return Err("only the grant `authorization_code` has `authorizeUrl`".into()),
            _ => {}
        }
        for (name, url) in [("tokenUrl", Some(&self.token_url)), ("authorizeUrl", self.authorize_url.as_ref())] {
            let Some(url) = url else { continue };
            parse_url(url).map_err(|why| format!("`{name}`: {why}"))?;
        }
        self.check_authorize_query()?;
        if self.client_id.is_empty() || self.client_id.contains(char::is_control) {
            return Err("`clientId` is empty, or has a control character".into());
        }
        if self.client_auth == ClientAuth::None && self.grant == Grant::ClientCredentials {
            return Err("the grant `client_credentials` needs a client secret, so `clientAuth` cannot be `none`".into());
        }
        if self.params.len() > MAX_PARAMS {
            return Err(format!("`params` has more than {MAX_PARAMS} members"));
        }
        match self.params.keys().find(|name| RESERVED_PARAMS.contains(&name.as_str())) {
            Some(reserved) => Err(format!("the host sets the parameter `{reserved}`")),
            None => Ok(()),
        }
    }
}

impl OAuth2Settings {
    /// Checks that `authorizeUrl` has no parameter that the host adds to it: a server may take either of the two.
    pub(super) fn check_authorize_query(&self) -> Result<(), String> {
        let Some(url) = &self.authorize_url else { return Ok(()) };
        let url = parse_url(url)?;
        let is_added = |name: &str| RESERVED_PARAMS.contains(&name) || self.params.contains_key(name);
        match url.query_pairs().find(|(name, _)| is_added(name)) {
            Some((name, _)) => Err(format!(
                "`authorizeUrl` has the parameter `{}`, which the host sets; leave it out",
                name.escape_debug()
            )),
            None => Ok(()),
        }
    }
}

/// The parameters of token and authorization endpoints that the host sets.
const RESERVED_PARAMS: [&str; 12] = [
    "client_id",
    "client_secret",
    "code",
    "code_challenge",
    "code_challenge_method",
    "code_verifier",
    "grant_type",
    "redirect_uri",
    "refresh_token",
    "response_type",
    "scope",
    "state",
];

fn check_header_name(member: &str, name: &str) -> Result<(), String> {
    match HeaderName::from_bytes(name.as_bytes()) {
        Ok(name) if !is_transfer_header(&name) => Ok(()),
        _ => Err(format!("`{member}` must be the name of a header that nodes may set")),
    }
}
