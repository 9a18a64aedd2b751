//! Adds opened credentials to a message.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flowcell_contract::{Failure, Json, KeyPlace, code as codes};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use zeroize::Zeroizing;

use super::{Bound, MIN_SECRET_BYTES, SecretMembers, Settings, Token, denied, hmac, sigv4};
use crate::{
    client::{Message, folded_name, has_header},
    egress::Destination,
    redaction::MAX_INLINE_BYTES,
    secret::Key,
};

const FORM: &str = "application/x-www-form-urlencoded";

/// The part of a request that a credential sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Header(HeaderName),
    Query(String),
    Body(String),
}

impl Part {
    /// Returns true if a server may take both parts for the same one.
    fn is_same(&self, other: &Part) -> bool {
        match (self, other) {
            (Part::Header(one), Part::Header(other)) => folded_name(one) == folded_name(other),
            _ => self == other,
        }
    }
}

/// An opened credential.
pub(crate) struct Applied {
    pub(super) name: String,
    settings: Settings,
    secrets: SecretMembers,
    token: Option<Token>,
}

/// A message with credentials, and the texts of it that no answer may contain.
pub(crate) struct Signed {
    pub(crate) message: Message,
    pub(crate) to: Destination,
    pub(crate) keys: Vec<Key>,
}

impl Settings {
    /// Returns the parts of a request that a credential with these settings sets.
    pub(super) fn parts(&self) -> Vec<Part> {
        // The names were checked when the credential was set.
        let header = |name: &str| HeaderName::from_bytes(name.as_bytes()).ok().map(Part::Header);
        match self {
            Settings::Bearer {} | Settings::Basic {} | Settings::OAuth2(_) => vec![Part::Header(AUTHORIZATION)],
            Settings::ApiKey { place: KeyPlace::Header, key, .. } => header(key).into_iter().collect(),
            Settings::ApiKey { place: KeyPlace::Query, key, .. } => vec![Part::Query(key.clone())],
            Settings::ApiKey { place: KeyPlace::Body, key, .. } => vec![Part::Body(key.clone())],
            Settings::Hmac(settings) => header(&settings.header)
                .into_iter()
                .chain(settings.timestamp_header.as_deref().and_then(header))
                .collect(),
            Settings::SigV4(_) => [AUTHORIZATION, sigv4::DATE, sigv4::TOKEN, sigv4::CONTENT].map(Part::Header).into(),
        }
    }
}

/// Returns the names of two credentials that set the same part of a request.
pub(super) fn first_conflict(bound: &[Bound]) -> Option<(String, String)> {
    let mut seen: Vec<(Part, &Bound)> = Vec::new();
    for one in bound {
        for part in one.known.settings.parts() {
            if let Some((_, other)) = seen.iter().find(|(taken, _)| taken.is_same(&part)) {
                return Some((other.grant.credential.to_string(), one.grant.credential.to_string()));
            }
            seen.push((part, one));
        }
    }
    None
}

/// Checks that a request leaves the parts alone that its credentials set. `reserved` has the headers of secrets.
pub(crate) fn check_free(
    bound: &[Bound],
    headers: &HeaderMap,
    to: &Destination,
    reserved: &[HeaderName],
) -> Result<(), Failure> {
    for one in bound {
        for part in one.known.settings.parts() {
            let name = &one.grant.credential;
            let (what, is_taken) = match &part {
                Part::Header(header) if reserved.iter().any(|own| folded_name(own) == folded_name(header)) => {
                    return Err(denied(format!("the credential `{name}` and a secret both set the header `{header}`")));
                }
                Part::Header(header) => (format!("the header `{header}`"), has_header(headers, header)),
                Part::Query(key) => {
                    (format!("the parameter `{key}`"), to.url().query_pairs().any(|(own, _)| own == key.as_str()))
                }
                // The body is not loaded yet.
                Part::Body(_) => continue,
            };
            if is_taken {
                return Err(taken(&what, name));
            }
        }
    }
    Ok(())
}

fn taken(what: &str, name: &str) -> Failure {
    Failure::new(codes::INVALID_INPUT, format!("the host sets {what} from the credential `{name}`"))
}

impl Applied {
    pub(super) fn new(name: String, settings: Settings, secrets: SecretMembers, token: Option<Token>) -> Applied {
        Applied { name, settings, secrets, token }
    }

    /// Returns the token of a credential of the kind `oauth2`.
    pub(super) fn token(&self) -> Option<&Token> {
        self.token.as_ref()
    }

    /// Returns true if the host gets another token if a server refuses this one at the time `now`.
    pub(crate) fn is_renewable(&self, now: u64) -> bool {
        self.token.as_ref().is_some_and(|token| token.is_old(now))
    }

    /// Returns the texts that no answer may contain.
    pub(crate) fn keys(&self) -> Vec<Key> {
        let mut texts: Vec<Zeroizing<String>> = self.secrets.values().cloned().collect();
        if let Some(token) = &self.token {
            texts.push(token.access.clone());
            texts.extend(token.refresh.clone());
        }
        if matches!(self.settings, Settings::Basic {})
            && let Some((user, password)) = self.secret("login").split_once(':')
        {
            // An API may have its key in the place of the user name. A short name would be found in too many texts.
            let is_key = password.is_empty() || user.len() >= MIN_SECRET_BYTES;
            let parts = [Some(password), Some(user).filter(|_| is_key)];
            texts.extend(parts.into_iter().flatten().map(|part| Zeroizing::new(part.to_owned())));
        }
        texts.into_iter().map(Key::unchecked).collect()
    }

    fn secret(&self, name: &str) -> &str {
        self.secrets.get(name).unwrap_or_default()
    }

    /// Adds a value to a message; signatures come later.
    fn add(&self, message: &mut Message, to: Destination) -> Result<Destination, Failure> {
        match &self.settings {
            Settings::Bearer {} => self.set_authorization(message, format!("Bearer {}", self.secret("token")))?,
            Settings::Basic {} => {
                self.set_authorization(message, format!("Basic {}", STANDARD.encode(self.secret("login"))))?;
            }
            Settings::OAuth2(_) => {
                let token = self.token.as_ref().map(|token| token.access.as_str()).unwrap_or_default();
                self.set_authorization(message, format!("Bearer {token}"))?;
            }
            Settings::ApiKey { place, key, prefix } => {
                let value = Zeroizing::new(format!("{prefix}{}", self.secret("value")));
                match place {
                    KeyPlace::Header => {
                        let name = HeaderName::from_bytes(key.as_bytes()).map_err(|_| self.unsendable())?;
                        self.set_header(message, name, &value)?;
                    }
                    KeyPlace::Query => return to.with_parameter(key, &value),
                    KeyPlace::Body => self.add_to_body(message, key, &value)?,
                }
            }
            Settings::Hmac(_) | Settings::SigV4(_) => {}
        }
        Ok(to)
    }

    /// Adds a signature to a complete message, and returns the texts of it that no answer may contain.
    fn sign(&self, message: &mut Message, to: &Destination, now: u64) -> Result<Vec<Key>, Failure> {
        let headers = match &self.settings {
            Settings::Hmac(settings) => {
                let wrong = |why: String| {
                    denied(format!("the settings of the credential `{}`: {why}; set it again", self.name))
                };
                hmac::check_body(&settings.message).map_err(wrong)?;
                hmac::sign(settings, self.secret("secret"), message, to, now)
            }
            Settings::SigV4(settings) => {
                let session = self.secrets.get("sessionToken");
                sigv4::sign(settings, (self.secret("secretAccessKey"), session), message, to, now)
            }
            _ => return Ok(Vec::new()),
        };
        for (name, value) in headers.headers {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| self.unsendable())?;
            self.set_header(message, name, &value)?;
        }
        Ok(vec![Key::unchecked(Zeroizing::new(headers.signature))])
    }

    fn set_authorization(&self, message: &mut Message, value: String) -> Result<(), Failure> {
        self.set_header(message, AUTHORIZATION, &Zeroizing::new(value))
    }

    fn set_header(&self, message: &mut Message, name: HeaderName, value: &str) -> Result<(), Failure> {
        let mut value = HeaderValue::from_str(value).map_err(|_| self.unsendable())?;
        value.set_sensitive(true);
        message.headers.insert(name, value);
        Ok(())
    }

    /// Adds a member to a JSON object, or a field to a form.
    fn add_to_body(&self, message: &mut Message, key: &str, value: &str) -> Result<(), Failure> {
        let mime = message.headers.get(CONTENT_TYPE).and_then(|mime| mime.to_str().ok()).unwrap_or_default();
        let essence = mime.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let is_taken = || taken(&format!("`{key}` of the body"), &self.name);
        let body = if essence == FORM {
            if url::form_urlencoded::parse(&message.body).any(|(own, _)| own == key) {
                return Err(is_taken());
            }
            let pair = url::form_urlencoded::Serializer::new(String::new()).append_pair(key, value).finish();
            let between: &[u8] = if message.body.is_empty() { b"" } else { b"&" };
            [&*message.body, between, pair.as_bytes()].concat()
        } else if essence == "application/json" || essence.ends_with("+json") {
            let json = std::str::from_utf8(&message.body).ok().and_then(|text| Json::parse(text).ok());
            let json = json.ok_or_else(|| self.wrong_body())?;
            let members = json.as_object().ok_or_else(|| self.wrong_body())?;
            if members.get(key).is_some() {
                return Err(is_taken());
            }
            let own = members.iter().map(|(name, value)| (name.clone(), value.clone()));
            Json::object(own.chain([(key.into(), Json::from(value))])).to_text().into_bytes()
        } else {
            return Err(self.wrong_body());
        };
        message.body = body.into();
        Ok(())
    }

    fn wrong_body(&self) -> Failure {
        let message = format!(
            "the credential `{}` goes into the body, so the body must be a JSON object (`application/json`) or a form \
             (`{FORM}`)",
            self.name
        );
        Failure::new(codes::INVALID_INPUT, message)
    }

    fn unsendable(&self) -> Failure {
        denied(format!("the credential `{}` does not fit into a header", self.name))
    }
}

/// Adds credentials to a message. A body above [`MAX_INLINE_BYTES`] is read and signed on a thread for blocking work.
pub(crate) async fn apply_to(
    applied: &Arc<[Applied]>,
    message: Message,
    to: Destination,
    now: u64,
) -> Result<Signed, Failure> {
    if applied.is_empty() || message.body.len() <= MAX_INLINE_BYTES {
        return apply(applied, message, to, now);
    }
    let applied = applied.clone();
    let signed = tokio::task::spawn_blocking(move || apply(&applied, message, to, now)).await;
    signed.unwrap_or_else(|error| Err(denied(format!("the credentials were not added to the request: {error}"))))
}

/// Adds credentials to a message, on this thread.
pub(super) fn apply(
    applied: &[Applied],
    mut message: Message,
    mut to: Destination,
    now: u64,
) -> Result<Signed, Failure> {
    let mut keys: Vec<Key> = applied.iter().flat_map(Applied::keys).collect();
    for one in applied {
        to = one.add(&mut message, to)?;
    }
    for one in applied {
        keys.extend(one.sign(&mut message, &to, now)?);
    }
    Ok(Signed { message, to, keys })
}
