//! The check of a token: its signature, its issuer, its audience and its times.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::keys::{Algorithm, KeyError, KeySet};

/// Maximum size of an ID token.
pub(super) const MAX_ID_TOKEN_BYTES: usize = 64 * 1024;
/// Maximum size of a token of a machine.
pub(super) const MAX_MACHINE_TOKEN_BYTES: usize = 8 * 1024;
/// Maximum length of a subject.
const MAX_SUBJECT_BYTES: usize = 255;
/// The difference of clocks that is tolerated, in seconds.
pub(super) const MAX_SKEW_SECONDS: f64 = 60.0;

/// The claims of a checked token.
pub(super) type Claims = Map<String, Value>;

/// The values that a token is checked against.
pub(super) struct Expected<'a> {
    pub(super) issuer: &'a str,
    /// This server's name at the issuer, or the audience of machines.
    pub(super) audience: &'a str,
    /// The random value of the sign-in. `None` for a token of a machine.
    pub(super) nonce: Option<&'a str>,
    /// The time in milliseconds since 1970.
    pub(super) now: u64,
}

/// The reason for which a token does not count. It repeats nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenError {
    /// The issuer has no such key, as far as this server knows.
    UnknownKey,
    /// The token is wrong. The text continues "the token".
    Wrong(&'static str),
}

#[derive(Deserialize)]
struct Head {
    alg: String,
    kid: Option<String>,
    crit: Option<Value>,
}

/// Checks an ID token or a token of a machine, and returns its claims.
pub(super) fn check(token: &str, keys: &KeySet, expected: &Expected<'_>) -> Result<Claims, TokenError> {
    let wrong = |why: &'static str| Err(TokenError::Wrong(why));
    match expected.nonce {
        Some(_) if token.len() > MAX_ID_TOKEN_BYTES => return wrong("is larger than 64 KiB"),
        None if token.len() > MAX_MACHINE_TOKEN_BYTES => return wrong("is larger than 8 KiB"),
        _ => {}
    }
    let claims = verified(token, keys)?;
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    if text("iss") != Some(expected.issuer) {
        return wrong("is of another issuer");
    }
    match expected.nonce {
        Some(_) => check_party(&claims, expected.audience)?,
        None => check_audience(&claims, expected.audience)?,
    }
    check_times(&claims, expected.now as f64 / 1_000.0)?;
    if expected.nonce.is_some_and(|nonce| text("nonce") != Some(nonce)) {
        return wrong("belongs to another sign-in: its `nonce` differs");
    }
    let is_subject = |text: &&str| (1..=MAX_SUBJECT_BYTES).contains(&text.len()) && !text.chars().any(char::is_control);
    match text("sub").filter(is_subject) {
        Some(_) => Ok(claims),
        None => wrong("needs a `sub` of 1 to 255 bytes"),
    }
}

/// Checks the signature of a token, and returns its claims.
fn verified(token: &str, keys: &KeySet) -> Result<Claims, TokenError> {
    let malformed = || TokenError::Wrong("is not a signed token (JWS)");
    let (signed, signature) = token.rsplit_once('.').ok_or_else(malformed)?;
    let (head, payload) = signed.split_once('.').ok_or_else(malformed)?;
    let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| malformed());
    let head: Head = serde_json::from_slice(&decode(head)?).map_err(|_| malformed())?;
    if head.crit.is_some() {
        return Err(TokenError::Wrong("has critical extensions, which this server does not know"));
    }
    let Some(algorithm) = Algorithm::named(&head.alg) else {
        return Err(TokenError::Wrong("is not signed by RS256, PS256, ES256 or EdDSA"));
    };
    let signature = decode(signature)?;
    keys.verify(head.kid.as_deref(), algorithm, signed.as_bytes(), &signature).map_err(|error| match error {
        KeyError::Unknown => TokenError::UnknownKey,
        KeyError::Signature => TokenError::Wrong("has a wrong signature"),
    })?;
    serde_json::from_slice(&decode(payload)?).map_err(|_| malformed())
}

/// Checks that a token of a machine is for this server alone. Another receiver could send it on.
fn check_audience(claims: &Claims, own: &str) -> Result<(), TokenError> {
    let is_own = match claims.get("aud") {
        Some(Value::Array(all)) => all.len() == 1 && all[0] == own,
        Some(audience) => audience == own,
        None => false,
    };
    if is_own { Ok(()) } else { Err(TokenError::Wrong("is for another audience: see its `aud`, and `audience`")) }
}

/// The claims of an unchecked token.
pub(super) struct Unchecked {
    pub(super) issuer: String,
    /// The only audience. `None`: the token has several, or none.
    pub(super) audience: Option<String>,
    /// The end in milliseconds since 1970.
    pub(super) ends: u64,
}

/// Reads a token of a machine without a check.
pub(super) fn unchecked(token: &str) -> Option<Unchecked> {
    let payload = token.split('.').nth(1).filter(|_| token.len() <= MAX_MACHINE_TOKEN_BYTES)?;
    let claims: Claims = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()?;
    let ends = claims.get("exp")?.as_f64()? * 1_000.0;
    let audience = match claims.get("aud") {
        Some(Value::Array(all)) if all.len() == 1 => all[0].as_str(),
        audience => audience.and_then(Value::as_str),
    };
    let audience = audience.map(str::to_owned);
    Some(Unchecked { issuer: claims.get("iss")?.as_str()?.to_owned(), audience, ends: ends as u64 })
}

/// Checks that an ID token is for this server: alone, or as the authorized party.
fn check_party(claims: &Claims, own: &str) -> Result<(), TokenError> {
    let (is_own, others) = match claims.get("aud") {
        Some(Value::String(audience)) => (audience == own, 0),
        Some(Value::Array(all)) => (all.iter().any(|audience| audience == own), all.len().saturating_sub(1)),
        _ => (false, 0),
    };
    let party = claims.get("azp");
    let is_party = party.is_some_and(|party| party == own);
    match is_own && (is_party || party.is_none() && others == 0) {
        true => Ok(()),
        false => Err(TokenError::Wrong("is for another client: see its `aud` and `azp`, and `clientId`")),
    }
}

/// Checks the times of a token at `now`, in seconds since 1970.
fn check_times(claims: &Claims, now: f64) -> Result<(), TokenError> {
    let time = |name: &str| claims.get(name).map(|value| value.as_f64().unwrap_or(f64::NAN));
    // A time that is missing or no number fits no comparison.
    let is_past = |time: Option<f64>| time.is_some_and(|time| time <= now + MAX_SKEW_SECONDS);
    let is_ahead = |time: Option<f64>| time.is_some_and(|time| now < time + MAX_SKEW_SECONDS);
    if !is_ahead(time("exp")) {
        return Err(TokenError::Wrong("has expired, or has no `exp`; check the clocks of both machines"));
    }
    if !is_past(time("iat")) || claims.contains_key("nbf") && !is_past(time("nbf")) {
        return Err(TokenError::Wrong("is not valid yet, or has no `iat`; check the clocks of both machines"));
    }
    Ok(())
}
