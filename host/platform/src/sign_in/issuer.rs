//! An issuer in force: its metadata, its keys, and the exchange of a code.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flowcell_services::{client::Client, webhook::SecretSource};
use http::{
    HeaderMap, StatusCode,
    header::{AUTHORIZATION, HeaderValue},
};
use serde::Deserialize;
use tokio::{sync::Mutex, time::Instant};
use url::{Url, form_urlencoded};
use zeroize::Zeroizing;

use super::{
    config::{IssuerSettings, check_url},
    error::SignInError,
    exchange::{Reply, get, post_form},
    keys::KeySet,
    token::{Claims, Expected, TokenError, check},
};
use crate::{Host, host::outside::operator_client};

/// The time after which metadata and keys are read again.
const MAX_AGE: Duration = Duration::from_secs(3_600);
/// The time for which metadata and keys stay in use while the issuer does not answer.
const MAX_STALE: Duration = Duration::from_secs(24 * 3_600);
/// The time after a failed request before the next one.
const PAUSE: Duration = Duration::from_secs(5);
/// The least time between two looks for a key that is not known.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);

/// An issuer, with the secret of this client.
pub(super) struct Issuer {
    pub(super) settings: IssuerSettings,
    secret: Option<Zeroizing<String>>,
    client: Client,
    /// Held during requests for metadata and keys, so that one runs at a time.
    known: Mutex<Known>,
}

/// The metadata and the keys that the issuer has sent, and the last failure.
#[derive(Default)]
struct Known {
    metadata: Option<Read<Metadata>>,
    keys: Option<Read<KeySet>>,
    /// The last failure, and its time.
    failed: Option<(Instant, String)>,
    /// The last look for a key that was not known.
    looked: Option<Instant>,
}

/// Something that was read, and its time.
struct Read<T> {
    at: Instant,
    value: Arc<T>,
}

/// The metadata of an issuer, as OpenID Connect Discovery defines it.
#[derive(Deserialize)]
struct Document {
    issuer: String,
    #[serde(default)]
    authorization_endpoint: Option<String>,
    #[serde(default)]
    token_endpoint: Option<String>,
    jwks_uri: String,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

/// The checked metadata of an issuer.
pub(super) struct Metadata {
    /// The page and the place of codes of an issuer for people.
    people: Option<(Url, Url)>,
    keys: Url,
    /// True if the client's secret belongs into the form of an exchange.
    posts_secret: bool,
    /// True if each answer to a browser names the issuer (RFC 9207).
    pub(super) names_issuer: bool,
}

/// The answer to an exchange of a code.
#[derive(Deserialize)]
struct Exchanged {
    id_token: Option<String>,
}

/// The error of an exchange of a code.
#[derive(Deserialize)]
struct ExchangeError {
    error: String,
}

impl Issuer {
    /// Reads the secret and the certificates of an issuer. Connects to no issuer.
    pub(super) async fn open(host: &Host, settings: &IssuerSettings) -> Result<Issuer, String> {
        let secret = match &settings.client_secret_from {
            Some(place) => {
                let source: SecretSource = place.parse()?;
                Some(source.read_text().await.map_err(|failure| failure.message.to_string())?)
            }
            None => None,
        };
        let roots = match &settings.ca_file {
            Some(file) => {
                let read = tokio::fs::read(file).await;
                Some(read.map_err(|error| format!("`caFile` {}: {error}", file.display()))?)
            }
            None => None,
        };
        let client = operator_client(host, settings.allow_private, roots.as_deref())?;
        Ok(Issuer { settings: settings.clone(), secret, client, known: Mutex::default() })
    }

    /// Returns the metadata. Asks the issuer if they are not known or too old.
    pub(super) async fn metadata(&self) -> Result<Arc<Metadata>, SignInError> {
        let mut known = self.known.lock().await;
        self.metadata_in(&mut known).await.map_err(|why| self.unavailable(why))
    }

    /// Returns the page of the issuer for people, and the place of its codes.
    pub(super) fn people<'a>(&self, metadata: &'a Metadata) -> Result<&'a (Url, Url), SignInError> {
        let missing = || "its metadata have no `authorization_endpoint` and `token_endpoint`".to_owned();
        metadata.people.as_ref().ok_or_else(|| self.unavailable(missing()))
    }

    /// Checks an ID token, or without a nonce a token of a machine, and returns its claims. Looks for new keys if its key is
    /// not known.
    pub(super) async fn check(&self, token: &str, nonce: Option<&str>, now: u64) -> Result<Claims, SignInError> {
        let own = if nonce.is_some() { &self.settings.client_id } else { &self.settings.audience };
        let audience = own.as_deref().unwrap_or_default();
        let expected = Expected { issuer: &self.settings.issuer, audience, nonce, now };
        let keys = self.keys(false).await?;
        let mut checked = check(token, &keys, &expected);
        if checked == Err(TokenError::UnknownKey) {
            let keys = self.keys(true).await?;
            checked = check(token, &keys, &expected);
        }
        checked.map_err(|error| {
            let why = match error {
                TokenError::UnknownKey => "is signed by a key that the issuer does not list",
                TokenError::Wrong(why) => why,
            };
            let what = if nonce.is_some() { "ID token" } else { "token" };
            self.refused(format!("the {what} {why}"))
        })
    }

    /// Exchanges a code for an ID token.
    pub(super) async fn exchange(&self, code: &str, callback: &str, verifier: &str) -> Result<String, SignInError> {
        let metadata = self.metadata().await?;
        let (_, place) = self.people(&metadata)?;
        let fields = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", callback),
            ("code_verifier", verifier),
        ];
        let (headers, form) = self.signed_form(&fields, metadata.posts_secret)?;
        let reply = post_form(&self.client, place, headers, form).await;
        self.read_exchange(&reply.map_err(|why| self.unavailable(why))?)
    }

    /// Returns a form with the name of the client, and its secret in the form or in a header.
    fn signed_form(&self, fields: &[(&str, &str)], posts_secret: bool) -> Result<(HeaderMap, String), SignInError> {
        let (id, mut headers) = (self.settings.client_id.as_deref().unwrap_or_default(), HeaderMap::new());
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.extend_pairs(fields);
        match &self.secret {
            Some(secret) if posts_secret => {
                _ = form.append_pair("client_id", id).append_pair("client_secret", secret);
            }
            Some(secret) => {
                let encode = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
                let both = Zeroizing::new(format!("{}:{}", encode(id), encode(secret)));
                let basic = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(both.as_bytes())));
                let mut basic = basic.map_err(|error| self.unavailable(error.to_string()))?;
                basic.set_sensitive(true);
                headers.insert(AUTHORIZATION, basic);
            }
            None => _ = form.append_pair("client_id", id),
        }
        Ok((headers, form.finish()))
    }

    fn read_exchange(&self, reply: &Reply) -> Result<String, SignInError> {
        if reply.status == StatusCode::OK {
            let Exchanged { id_token } = reply.json().map_err(|why| self.unavailable(why))?;
            return id_token.ok_or_else(|| self.unavailable("its answer has no ID token".to_owned()));
        }
        let error = reply.json::<ExchangeError>().map(|body| body.error).unwrap_or_default();
        if error == "invalid_grant" {
            let why = "the code was used, is too old, or belongs to another client or address";
            return Err(self.refused(why.to_owned()));
        }
        let status = reply.status.as_u16();
        let why = match error.as_str() {
            "invalid_client" | "unauthorized_client" => {
                format!("it does not accept the client of this server: see `clientId` and `clientSecretFrom` ({error})")
            }
            _ => format!("it answered {status} to the exchange of a code{}", shown(&error)),
        };
        tracing::warn!(issuer = self.settings.name, "a sign-in failed: {why}");
        Err(self.unavailable(why))
    }

    /// Returns the keys. Asks the issuer if they are not known or too old. `is_unknown`: a token names another key, and the
    /// last look for one was long enough ago.
    async fn keys(&self, is_unknown: bool) -> Result<Arc<KeySet>, SignInError> {
        let mut known = self.known.lock().await;
        self.keys_in(&mut known, is_unknown).await.map_err(|why| self.unavailable(why))
    }

    async fn keys_in(&self, known: &mut Known, is_unknown: bool) -> Result<Arc<KeySet>, String> {
        let looks = is_unknown && known.looked.is_none_or(|at| at.elapsed() >= LOOK_INTERVAL);
        if looks {
            known.looked = Some(Instant::now());
        } else if let Some(keys) = known.keys.as_ref().filter(|keys| keys.at.elapsed() < MAX_AGE || is_unknown) {
            return Ok(keys.value.clone());
        }
        let earlier = known.keys.as_ref().filter(|keys| keys.at.elapsed() < MAX_STALE).map(|keys| keys.value.clone());
        let paused = known.pausing();
        let is_asked = paused.is_none();
        let read = match paused {
            Some(why) => Err(why),
            None => {
                let read = self.read_keys(known).await;
                known.note(&read);
                read
            }
        };
        match (read, earlier) {
            (Ok(keys), _) => {
                let value = Arc::new(keys);
                known.keys = Some(Read { at: Instant::now(), value: value.clone() });
                Ok(value)
            }
            (Err(why), Some(earlier)) => {
                if is_asked {
                    tracing::warn!(issuer = self.settings.name, "the earlier keys of an issuer stay in use: {why}");
                }
                Ok(earlier)
            }
            (Err(why), None) => Err(why),
        }
    }

    async fn read_keys(&self, known: &mut Known) -> Result<KeySet, String> {
        let metadata = self.metadata_in(known).await?;
        let reply = get(&self.client, &metadata.keys).await?;
        match reply.status {
            StatusCode::OK => KeySet::parse(reply.json()?),
            status => Err(format!("it answered {} to the request for its keys", status.as_u16())),
        }
    }

    async fn metadata_in(&self, known: &mut Known) -> Result<Arc<Metadata>, String> {
        let earlier = known.metadata.as_ref().map(|read| (read.at.elapsed(), read.value.clone()));
        if let Some((_, metadata)) = earlier.as_ref().filter(|(age, _)| *age < MAX_AGE) {
            return Ok(metadata.clone());
        }
        let paused = known.pausing();
        let is_asked = paused.is_none();
        let read = match paused {
            Some(why) => Err(why),
            None => {
                let read = self.read_metadata().await;
                known.note(&read);
                read
            }
        };
        match (read, earlier.filter(|(age, _)| *age < MAX_STALE)) {
            (Ok(metadata), _) => {
                let value = Arc::new(metadata);
                known.metadata = Some(Read { at: Instant::now(), value: value.clone() });
                Ok(value)
            }
            (Err(why), Some((_, earlier))) => {
                if is_asked {
                    tracing::warn!(issuer = self.settings.name, "the earlier metadata of an issuer stay in use: {why}");
                }
                Ok(earlier)
            }
            (Err(why), None) => Err(why),
        }
    }

    async fn read_metadata(&self) -> Result<Metadata, String> {
        let issuer = &self.settings.issuer;
        let place = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let reply = get(&self.client, &check_url(&place)?).await?;
        if reply.status != StatusCode::OK {
            return Err(format!("it answered {} to the request for its metadata", reply.status.as_u16()));
        }
        Metadata::of(reply.json()?, issuer)
    }

    /// Returns the error of a refused person.
    pub(super) fn refused(&self, why: String) -> SignInError {
        SignInError::Refused { issuer: self.settings.name.clone(), why }
    }

    fn unavailable(&self, why: String) -> SignInError {
        SignInError::Unavailable { issuer: self.settings.name.clone(), why }
    }
}

impl Known {
    /// Returns the last failure if it is too recent for another request.
    fn pausing(&self) -> Option<String> {
        self.failed.as_ref().filter(|(at, _)| at.elapsed() < PAUSE).map(|(_, why)| why.clone())
    }

    fn note<T>(&mut self, read: &Result<T, String>) {
        self.failed = read.as_ref().err().map(|why| (Instant::now(), why.clone()));
    }
}

impl Metadata {
    fn of(document: Document, issuer: &str) -> Result<Metadata, String> {
        if document.issuer != issuer {
            let other: String = document.issuer.escape_debug().take(200).collect();
            return Err(format!("its metadata are those of `{other}`, and `issuer` must be exactly the same"));
        }
        let has_tls = issuer.starts_with("https:");
        let url = |name: &str, text: &str| match check_url(text) {
            Ok(url) if has_tls && url.scheme() != "https" => Err(format!("its `{name}` is without TLS")),
            Ok(url) => Ok(url),
            Err(why) => Err(format!("its `{name}` {why}")),
        };
        // Without a list, the method is `client_secret_basic`.
        let methods = document.token_endpoint_auth_methods_supported;
        let has = |name: &str| methods.as_ref().is_some_and(|all| all.iter().any(|method| method == name));
        Ok(Metadata {
            people: match (&document.authorization_endpoint, &document.token_endpoint) {
                (Some(page), Some(token)) => {
                    Some((url("authorization_endpoint", page)?, url("token_endpoint", token)?))
                }
                _ => None,
            },
            keys: url("jwks_uri", &document.jwks_uri)?,
            posts_secret: has("client_secret_post") && !has("client_secret_basic"),
            names_issuer: document.authorization_response_iss_parameter_supported,
        })
    }
}

/// Returns the code of an error in brackets, if it is one.
pub(super) fn shown(error: &str) -> String {
    let is_code =
        (1..=64).contains(&error.len()) && error.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    if is_code { format!(" ({error})") } else { String::new() }
}
