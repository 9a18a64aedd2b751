//! Signatures of AWS, version 4, in the header `authorization`.

use std::time::{Duration, UNIX_EPOCH};

use hyper::header::HeaderName;
use ring::hmac;

use super::{
    SigV4Settings,
    apply::body,
    hmac::{Headers, sha256_hex},
};
use crate::{client::Message, egress::Destination};

pub(super) const DATE: HeaderName = HeaderName::from_static("x-amz-date");
pub(super) const TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");
pub(super) const CONTENT: HeaderName = HeaderName::from_static("x-amz-content-sha256");

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// The service whose paths are encoded once, and whose requests have the hash of the body.
const S3: &str = "s3";
/// Stands for the hash of a body that is not in memory.
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Signs a message. `secrets` has the secret access key and the session token. Signed are the headers `host`,
/// `content-type` and all whose names begin with `x-amz-`. `None`: the body is not in memory.
pub(super) fn sign(
    settings: &SigV4Settings,
    (secret, session): (&str, Option<&str>),
    message: &Message,
    to: &Destination,
    now: u64,
) -> Option<Headers> {
    let time = amz_date(now);
    let hash = match body(message) {
        Some(body) => sha256_hex(body),
        // S3 accepts a body that TLS alone protects.
        None if settings.service == S3 => UNSIGNED.to_owned(),
        None => return None,
    };
    let mut added = vec![(DATE.to_string(), time.clone())];
    added.extend(session.map(|session| (TOKEN.to_string(), session.to_owned())));
    added.extend((settings.service == S3).then(|| (CONTENT.to_string(), hash.clone())));
    let mut signed: Vec<(String, String)> = vec![("host".to_owned(), to.origin().authority())];
    signed.extend(added.iter().cloned());
    for name in message.headers.keys() {
        let is_signed = *name == hyper::header::CONTENT_TYPE || name.as_str().starts_with("x-amz-");
        if is_signed && !added.iter().any(|(own, _)| own == name.as_str()) {
            let values = message.headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
            signed.push((name.to_string(), values.map(|value| plain(&value)).collect::<Vec<_>>().join(",")));
        }
    }
    signed.sort();
    let names = signed.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(";");
    let lines: String = signed.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let path = canonical_path(to.url().path(), &settings.service);
    let query = canonical_query(to.url());
    let request = format!("{}\n{path}\n{query}\n{lines}\n{names}\n{hash}", message.method);
    let SigV4Settings { access_key_id, region, service } = settings;
    let scope = format!("{}/{region}/{service}/aws4_request", &time[..8]);
    let text = format!("{ALGORITHM}\n{time}\n{scope}\n{}", sha256_hex(request.as_bytes()));
    let key = [&time[..8], region.as_str(), service.as_str(), "aws4_request"]
        .iter()
        .fold(format!("AWS4{secret}").into_bytes(), |key, part| tag(&key, part.as_bytes()));
    let signature = hex::encode(tag(&key, text.as_bytes()));
    let value = format!("{ALGORITHM} Credential={access_key_id}/{scope}, SignedHeaders={names}, Signature={signature}");
    added.push((hyper::header::AUTHORIZATION.to_string(), value));
    Some(Headers { headers: added, signature })
}

fn tag(key: &[u8], text: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text).as_ref().to_vec()
}

/// Returns the value of a header with single spaces.
fn plain(value: &str) -> String {
    value.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Returns the path of the signed text. S3 encodes it once, other services encode the sent path once more. The URL parser
/// has removed `.` and `..`.
fn canonical_path(path: &str, service: &str) -> String {
    if service == S3 {
        return path.split('/').map(|part| encode(&decode(part))).collect::<Vec<_>>().join("/");
    }
    let parts: Vec<_> = path.split('/').filter(|part| !part.is_empty()).map(|part| encode(part.as_bytes())).collect();
    let end = if path.ends_with('/') && !parts.is_empty() { "/" } else { "" };
    format!("/{}{end}", parts.join("/"))
}

/// Returns the parameters sorted by name and value, encoded.
fn canonical_query(url: &url::Url) -> String {
    let mut pairs: Vec<(String, String)> = url
        .query()
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (encode(&decode(name)), encode(&decode(value)))
        })
        .collect();
    pairs.sort();
    pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

/// Decodes the escapes of a part of a URL. `+` stays.
fn decode(part: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::with_capacity(part.len()), part.as_bytes());
    while let Some((byte, tail)) = rest.split_first() {
        let digits = (*byte == b'%').then(|| tail.get(..2)).flatten();
        let decoded = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        match decoded {
            Some(decoded) => {
                bytes.push(decoded);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*byte);
                rest = tail;
            }
        }
    }
    bytes
}

/// Encodes all bytes but letters, digits, `-`, `.`, `_` and `~`.
fn encode(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len()), |mut text, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => text.push(char::from(*byte)),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
        text
    })
}

/// Returns a time as `20150830T123600Z`.
fn amz_date(milliseconds: u64) -> String {
    // Such as `Sun, 30 Aug 2015 12:36:00 GMT`.
    let text = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(milliseconds / 1000));
    let month = MONTHS.iter().position(|month| text[8..11] == **month).unwrap_or_default() + 1;
    format!("{}{month:02}{}T{}Z", &text[12..16], &text[5..7], text[17..25].replace(':', ""))
}
