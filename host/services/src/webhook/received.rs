//! Incoming posts: checks that the owner of a key signed them recently.

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hyper::{HeaderMap, header::HeaderName};

use super::{ID_HEADER, SIGNATURE_HEADER, SigningKey, TIMESTAMP_HEADER};

/// Maximum difference between the time in a post and this host's clock. An older post may be a replay.
pub const TOLERANCE: Duration = Duration::from_secs(300);
/// Maximum characters of a post's id.
pub const MAX_ID_CHARS: usize = 256;
/// Maximum signatures of a post that are checked: one for each key of the sender during a key change.
pub const MAX_SIGNATURES: usize = 8;

/// The id, the time and the signatures of a received post, from its headers.
#[derive(Debug)]
pub struct Received {
    /// The id of the post, the same in every attempt.
    pub id: String,
    timestamp: u64,
    signatures: Vec<Vec<u8>>,
}

/// The reason why the sender of a post could not be verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsigned {
    /// A header is missing.
    Missing(&'static str),
    /// A header is repeated, so that other software may read another value.
    Repeated(&'static str),
    /// A header has an invalid value; the second member gives the reason.
    Malformed(&'static str, &'static str),
    /// The time in the post differs from the current time by more than [`TOLERANCE`].
    Stale,
    /// No signature matches one of the accepted keys.
    NoSignatureFits,
}

impl std::error::Error for Unsigned {}

impl fmt::Display for Unsigned {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unsigned::Missing(name) => {
                write!(formatter, "the header `{name}` is missing; sign the post as Standard Webhooks specifies")
            }
            Unsigned::Repeated(name) => write!(formatter, "the header `{name}` occurs more than once"),
            Unsigned::Malformed(name, why) => write!(formatter, "the header `{name}` {why}"),
            Unsigned::Stale => {
                write!(formatter, "`webhook-timestamp` is more than {} s from now", TOLERANCE.as_secs())
            }
            Unsigned::NoSignatureFits => formatter.write_str("no signature matches"),
        }
    }
}

impl Received {
    /// Reads the headers of a post that arrived at the time `now`.
    pub fn read(headers: &HeaderMap, now: SystemTime) -> Result<Received, Unsigned> {
        let id = single_header(headers, &ID_HEADER, "webhook-id")?;
        // Dots separate the signed parts, so a dot in the id would make the signed text ambiguous.
        if id.is_empty() || id.len() > MAX_ID_CHARS || !id.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'.') {
            let why = "must have 1 to 256 printable ASCII characters other than `.`";
            return Err(Unsigned::Malformed("webhook-id", why));
        }
        let timestamp = single_header(headers, &TIMESTAMP_HEADER, "webhook-timestamp")?;
        let digits = timestamp.bytes().all(|byte| byte.is_ascii_digit());
        let seconds = timestamp.parse().ok().filter(|_| digits && !timestamp.starts_with('0'));
        let seconds: u64 =
            seconds.ok_or(Unsigned::Malformed("webhook-timestamp", "must be a number of seconds since 1970"))?;
        let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let signatures = signatures(single_header(headers, &SIGNATURE_HEADER, "webhook-signature")?)?;
        match now.abs_diff(seconds) > TOLERANCE.as_secs() {
            true => Err(Unsigned::Stale),
            false => Ok(Received { id: id.to_owned(), timestamp: seconds, signatures }),
        }
    }

    /// Checks that one of the keys has signed this body. The duration of the check does not reveal which part of a
    /// signature is wrong.
    pub fn check(&self, keys: &[SigningKey], body: &[u8]) -> Result<(), Unsigned> {
        let signed = super::signature::signed_bytes(&self.id, self.timestamp, body);
        let mut fits = false;
        for key in keys {
            for signature in &self.signatures {
                fits |= key.has_signed(&signed, signature);
            }
        }
        if fits { Ok(()) } else { Err(Unsigned::NoSignatureFits) }
    }
}

fn single_header<'a>(headers: &'a HeaderMap, header: &HeaderName, name: &'static str) -> Result<&'a str, Unsigned> {
    let mut values = headers.get_all(header).iter();
    let value = values.next().ok_or(Unsigned::Missing(name))?;
    match values.next() {
        Some(_) => Err(Unsigned::Repeated(name)),
        None => value.to_str().map_err(|_| Unsigned::Malformed(name, "has characters other than printable ASCII")),
    }
}

/// Returns the signatures of version `v1`; skips those of other versions.
fn signatures(text: &str) -> Result<Vec<Vec<u8>>, Unsigned> {
    let known = text.split(' ').take(MAX_SIGNATURES).filter_map(|part| part.strip_prefix("v1,"));
    let known: Vec<_> = known.filter_map(|encoded| STANDARD.decode(encoded).ok()).collect();
    if known.is_empty() { Err(Unsigned::Malformed("webhook-signature", "must contain `v1,BASE64`")) } else { Ok(known) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_614_265_330;
    const BODY: &[u8] = br#"{"test": 2432232314}"#;

    fn key(secret: &str) -> SigningKey {
        SigningKey::new(secret).unwrap()
    }

    /// The example of the Standard Webhooks libraries.
    fn headers() -> Vec<(&'static str, String)> {
        let signature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        vec![
            ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek".into()),
            ("webhook-timestamp", NOW.to_string()),
            ("webhook-signature", signature.into()),
        ]
    }

    fn read(headers: &[(&'static str, String)], now: u64) -> Result<Received, Unsigned> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        Received::read(&map, UNIX_EPOCH + Duration::from_secs(now))
    }

    #[test]
    fn a_post_with_a_valid_signature_is_accepted() {
        let ours = key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let post = read(&headers(), NOW).unwrap();
        assert_eq!(post.check(std::slice::from_ref(&ours), BODY), Ok(()));
        assert_eq!(post.check(&[key("another secret"), ours.clone()], BODY), Ok(()), "while keys change");
        assert_eq!(post.check(&[key("another secret")], BODY), Err(Unsigned::NoSignatureFits));
        assert_eq!(post.check(&[], BODY), Err(Unsigned::NoSignatureFits));
        assert_eq!(post.check(std::slice::from_ref(&ours), b"{}"), Err(Unsigned::NoSignatureFits));
        let mut several = headers();
        several[2].1 = format!("v1a,AAAA v1,AAAA {}", several[2].1);
        assert_eq!(read(&several, NOW).unwrap().check(&[ours], BODY), Ok(()));
    }

    #[test]
    fn an_old_post_is_refused() {
        for (now, known) in [(NOW + 300, true), (NOW + 301, false), (NOW - 300, true), (NOW - 301, false)] {
            assert_eq!(read(&headers(), now).err(), (!known).then_some(Unsigned::Stale), "{now}");
        }
    }

    #[test]
    fn missing_repeated_and_malformed_headers_are_refused() {
        for (index, (name, value)) in headers().into_iter().enumerate() {
            let mut without = headers();
            without.remove(index);
            assert_eq!(read(&without, NOW).unwrap_err(), Unsigned::Missing(name));
            let mut twice = headers();
            twice.push((name, value));
            assert_eq!(read(&twice, NOW).unwrap_err(), Unsigned::Repeated(name));
        }
        let odd = [(0, "a.b"), (0, "a b"), (1, "+5"), (1, "soon"), (2, "v2,AAAA"), (2, "v1,***"), (2, "AAAA")];
        for (index, value) in odd {
            let mut headers = headers();
            headers[index].1 = value.into();
            assert!(matches!(read(&headers, NOW), Err(Unsigned::Malformed(..))), "{value}");
        }
    }
}
