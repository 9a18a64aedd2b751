//! Signatures over requests by HMAC.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::{digest, hmac};
use serde::{Deserialize, Serialize};

use crate::{client::Message, egress::Destination};

/// Stands for the signature in the value of the header.
pub(super) const SIGNATURE: &str = "{signature}";

/// The placeholders that stand for the whole body. Each may be in a pattern once, because the host hashes the body for it.
const OF_BODY: [&str; 2] = ["{body}", "{bodySha256}"];

/// Maximum characters of the pattern of a signed text.
const MAX_PATTERN: usize = 1_000;

/// The hash of a signature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    /// The hash SHA-256, which most servers use.
    #[default]
    Sha256,
    /// The hash SHA-1, for servers that have no other one.
    Sha1,
    /// The hash SHA-512, whose signatures are twice as long.
    Sha512,
}

/// The form of a signature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// Hexadecimal digits in lower case.
    #[default]
    Hex,
    /// Base64 with padding.
    Base64,
}

/// The settings of a credential of the kind `hmac`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HmacSettings {
    /// The header with the signature.
    pub header: String,
    /// The value of the header, in which `{signature}` stands for the signature.
    #[serde(default = "signature_alone")]
    pub value: String,
    /// The signed text. `{method}`, `{path}`, `{query}`, `{target}`, `{host}`, `{body}`, `{bodySha256}` and `{timestamp}` in
    /// it stand for parts of the request.
    pub message: String,
    /// The hash: `sha256`, `sha1` or `sha512`.
    #[serde(default)]
    pub algorithm: Algorithm,
    /// The form of the signature: `hex` or `base64`.
    #[serde(default)]
    pub encoding: Encoding,
    /// The header with the time of the signature, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp_header: Option<String>,
}

fn signature_alone() -> String {
    SIGNATURE.to_owned()
}

/// The headers of a signed request, and the signature in one of them.
pub(super) struct Headers {
    pub(super) headers: Vec<(String, String)>,
    pub(super) signature: String,
}

/// A part of a request in the pattern of a signed text.
#[derive(Clone, Copy)]
enum Placeholder {
    Method,
    Path,
    Query,
    Target,
    Host,
    Body,
    BodySha256,
    Timestamp,
}

const PLACEHOLDERS: [(&str, Placeholder); 8] = [
    ("{method}", Placeholder::Method),
    ("{path}", Placeholder::Path),
    ("{query}", Placeholder::Query),
    ("{target}", Placeholder::Target),
    ("{host}", Placeholder::Host),
    ("{body}", Placeholder::Body),
    ("{bodySha256}", Placeholder::BodySha256),
    ("{timestamp}", Placeholder::Timestamp),
];

/// Checks the patterns of the settings. The error is a sentence.
pub(super) fn check(settings: &HmacSettings) -> Result<(), String> {
    let HmacSettings { value, message, timestamp_header, .. } = settings;
    if message.chars().count() > MAX_PATTERN || value.chars().count() > MAX_PATTERN {
        return Err(format!("`message` and `value` have at most {MAX_PATTERN} characters"));
    }
    if !value.contains(SIGNATURE) || !value.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') {
        return Err(format!("`value` has `{SIGNATURE}` and no characters that a header cannot have"));
    }
    if message.contains("{timestamp}") && timestamp_header.is_none() && !value.contains("{timestamp}") {
        return Err(
            "a server needs the time of the signature: add `timestampHeader`, or `{timestamp}` to `value`".into()
        );
    }
    let mut rest = message.as_str();
    while let Some(at) = rest.find('{') {
        rest = &rest[at..];
        let Some((name, _)) = PLACEHOLDERS.iter().find(|(name, _)| rest.starts_with(name)) else {
            let known: Vec<_> = PLACEHOLDERS.iter().map(|(name, _)| *name).collect();
            return Err(format!("`message` has an unknown `{{`; there are {}", known.join(", ")));
        };
        rest = &rest[name.len()..];
    }
    check_body(message)
}

/// Checks that a pattern has each placeholder of the body once at most. Earlier versions stored other patterns. The error is
/// a sentence.
pub(super) fn check_body(pattern: &str) -> Result<(), String> {
    match OF_BODY.iter().find(|name| pattern.matches(**name).count() > 1) {
        Some(name) => Err(format!("`message` has `{name}` more than once; the host signs the body once")),
        None => Ok(()),
    }
}

/// Signs a message. Its pattern has passed [`check_body`].
pub(super) fn sign(settings: &HmacSettings, secret: &str, message: &Message, to: &Destination, now: u64) -> Headers {
    let time = (now / 1000).to_string();
    let algorithm = match settings.algorithm {
        Algorithm::Sha256 => hmac::HMAC_SHA256,
        Algorithm::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        Algorithm::Sha512 => hmac::HMAC_SHA512,
    };
    let mut context = hmac::Context::with_key(&hmac::Key::new(algorithm, secret.as_bytes()));
    read_signed_text(&settings.message, message, to, &time, |part| context.update(part));
    let tag = context.sign();
    let signature = match settings.encoding {
        Encoding::Hex => hex::encode(tag),
        Encoding::Base64 => STANDARD.encode(tag),
    };
    let value = settings.value.replace("{timestamp}", &time).replace(SIGNATURE, &signature);
    let mut headers = vec![(settings.header.clone(), value)];
    headers.extend(settings.timestamp_header.clone().map(|name| (name, time)));
    Headers { headers, signature }
}

/// Calls `each` for the parts of the signed text, in their order. Replaces each placeholder of a pattern once, so that a part
/// of the request cannot name another part. Copies no part of the request.
fn read_signed_text(pattern: &str, message: &Message, to: &Destination, time: &str, mut each: impl FnMut(&[u8])) {
    let (url, mut rest) = (to.url(), pattern);
    while !rest.is_empty() {
        let found = PLACEHOLDERS.iter().find(|(name, _)| rest.starts_with(name));
        let Some((name, part)) = found else {
            let next = rest.char_indices().skip(1).find(|(_, letter)| *letter == '{').map_or(rest.len(), |(at, _)| at);
            each(&rest.as_bytes()[..next]);
            rest = &rest[next..];
            continue;
        };
        match part {
            Placeholder::Method => each(message.method.as_str().as_bytes()),
            Placeholder::Path => each(url.path().as_bytes()),
            Placeholder::Query => each(url.query().unwrap_or_default().as_bytes()),
            Placeholder::Target => {
                each(url.path().as_bytes());
                if let Some(query) = url.query() {
                    each(b"?");
                    each(query.as_bytes());
                }
            }
            Placeholder::Host => each(to.origin().authority().as_bytes()),
            Placeholder::Body => each(&message.body),
            Placeholder::BodySha256 => each(sha256_hex(&message.body).as_bytes()),
            Placeholder::Timestamp => each(time.as_bytes()),
        }
        rest = &rest[name.len()..];
    }
}

/// Returns the SHA-256 of bytes in hexadecimal digits.
pub(super) fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(digest::digest(&digest::SHA256, bytes))
}
