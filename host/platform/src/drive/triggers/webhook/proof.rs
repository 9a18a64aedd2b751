//! Checks that the sender of a post knows a secret of the webhook, and that the post is recent.

use std::{
    collections::BTreeSet,
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flowcell_flow::triggers::schemes::{Algorithm, Encoding, Hmac, Part, Place, Proof, Scheme, Timestamp};
use flowcell_services::webhook::SigningKey;
use http::HeaderMap;
use ring::hmac;

/// Maximum difference between the time in a post and this host's clock. An older post may be a replay.
pub(super) const TOLERANCE: Duration = Duration::from_secs(300);
/// Digits of a present time in milliseconds since 1970.
const MILLISECONDS_DIGITS: usize = 13;
/// Maximum characters of a post's id.
pub(super) const MAX_ID_CHARS: usize = 256;
/// Maximum entries of a header with signatures that are checked: one for each key of the sender during a key change.
const MAX_SIGNATURES: usize = 8;

/// The reason why the sender of a post could not be verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unsigned {
    /// A header is missing.
    Missing(String),
    /// A header is repeated, so that other software may read another value.
    Repeated(String),
    /// A header has an invalid value; the second member gives the reason.
    Malformed(String, String),
    /// The time in the post differs from the current time by more than 300 s.
    Stale,
    /// The time in the post has 13 digits, as a time in milliseconds has.
    Milliseconds,
    /// No signature matches one of the accepted keys.
    NoSignatureFits,
}

impl std::error::Error for Unsigned {}

impl fmt::Display for Unsigned {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unsigned::Missing(name) => write!(formatter, "the header `{name}` is missing"),
            Unsigned::Repeated(name) => write!(formatter, "the header `{name}` occurs more than once"),
            Unsigned::Malformed(name, why) => write!(formatter, "the header `{name}` {why}"),
            Unsigned::Stale => {
                write!(formatter, "the time of the post is more than {} s from now", TOLERANCE.as_secs())
            }
            Unsigned::Milliseconds => formatter.write_str(
                "the time of the post is wrong: seconds since 1970 are expected, this looks like milliseconds",
            ),
            Unsigned::NoSignatureFits => formatter.write_str("no signature matches"),
        }
    }
}

fn malformed(name: &str, why: impl Into<String>) -> Unsigned {
    Unsigned::Malformed(name.to_owned(), why.into())
}

/// The proof in a post, which has the right form and is recent, but is not yet compared with secrets.
pub(super) enum SenderProof {
    /// The signed bytes, and their signatures.
    Signatures(hmac::Algorithm, Vec<u8>, Vec<Vec<u8>>),
    /// The signed bytes, and their signature, which belongs to a public key.
    PublicKey(Vec<u8>, Vec<u8>),
    /// The text before the secret, and that text with the secret.
    Secret(String, Vec<u8>),
}

impl SenderProof {
    /// Reads the proof of a post that arrived at the time `now`.
    pub(super) fn read(
        scheme: &Scheme<'_>,
        headers: &HeaderMap,
        body: &[u8],
        now: SystemTime,
    ) -> Result<SenderProof, Unsigned> {
        match scheme.proof {
            Proof::Hmac(hmac) => {
                let (signed, signatures) = read_signatures(scheme, &hmac, headers, body, now)?;
                let algorithm = match hmac.algorithm {
                    Algorithm::Sha256 => hmac::HMAC_SHA256,
                    Algorithm::Sha512 => hmac::HMAC_SHA512,
                };
                Ok(SenderProof::Signatures(algorithm, signed, signatures))
            }
            Proof::Ed25519 { header, timestamp } => {
                let time = parse_time(timestamp, single_header(headers, timestamp)?)?;
                let signature = hex::decode(single_header(headers, header)?);
                let signature = signature.map_err(|_| malformed(header, "must contain `HEX`"))?;
                check_time(time, now)?;
                Ok(SenderProof::PublicKey([time.0.as_bytes(), body].concat(), signature))
            }
            Proof::Token { header, prefix } => {
                let token = strip(header, prefix, single_header(headers, header)?)?;
                Ok(SenderProof::Secret(String::new(), token.as_bytes().to_vec()))
            }
            Proof::Basic { user } => {
                let encoded = strip("Authorization", "Basic ", single_header(headers, "Authorization")?)?;
                let given = STANDARD.decode(encoded).map_err(|_| malformed("Authorization", "must be base64"))?;
                Ok(SenderProof::Secret(format!("{user}:"), given))
            }
        }
    }

    /// Checks that the proof was made with one of the keys. The duration of the check does not reveal which part of a
    /// signature or secret is wrong, nor which key fits.
    pub(super) fn check(&self, keys: &[SigningKey]) -> Result<(), Unsigned> {
        let mut fits = false;
        for key in keys {
            match self {
                SenderProof::Signatures(algorithm, signed, signatures) => {
                    for signature in signatures {
                        fits |= key.has_signed(*algorithm, signed, signature);
                    }
                }
                SenderProof::PublicKey(signed, signature) => fits |= key.is_signed_by_owner(signed, signature),
                SenderProof::Secret(before, given) => fits |= key.is_presented(before.as_bytes(), given),
            }
        }
        if fits { Ok(()) } else { Err(Unsigned::NoSignatureFits) }
    }
}

/// Returns the signed bytes of a recent post, and its signatures.
fn read_signatures(
    scheme: &Scheme<'_>,
    hmac: &Hmac<'_>,
    headers: &HeaderMap,
    body: &[u8],
    now: SystemTime,
) -> Result<(Vec<u8>, Vec<Vec<u8>>), Unsigned> {
    let parts = hmac.parts().ok_or(Unsigned::NoSignatureFits)?;
    let separators = hmac.id_separators().ok_or(Unsigned::NoSignatureFits)?;
    let id = match scheme.id {
        Some(Place::Header(name)) if parts.contains(&Part::Id) => {
            signed_id(name, single_header(headers, name)?, &separators)?
        }
        _ => "",
    };
    let mut time = match hmac.timestamp {
        Some(Timestamp::Header(name)) => Some(parse_time(name, single_header(headers, name)?)?),
        _ => None,
    };
    let value = single_header(headers, hmac.header)?;
    let entries: Vec<&str> = match hmac.separator {
        Some(separator) => value.split(separator).take(MAX_SIGNATURES).collect(),
        None => vec![value],
    };
    if let Some(Timestamp::Entry(prefix)) = hmac.timestamp {
        let mut times = entries.iter().filter_map(|entry| entry.strip_prefix(prefix));
        let (Some(only), None) = (times.next(), times.next()) else {
            return Err(malformed(hmac.header, format!("must contain `{prefix}SECONDS` once")));
        };
        time = Some(parse_time(hmac.header, only)?);
    }
    let signatures = entries.iter().filter_map(|entry| decode(hmac, entry.strip_prefix(hmac.prefix)?));
    let signatures: Vec<_> = signatures.collect();
    if signatures.is_empty() {
        let encoding = match hmac.encoding {
            Encoding::Hex => "HEX",
            Encoding::Base64 => "BASE64",
        };
        return Err(malformed(hmac.header, format!("must contain `{}{encoding}`", hmac.prefix)));
    }
    time.map_or(Ok(()), |time| check_time(time, now))?;
    let time = time.map_or("", |(text, _)| text);
    let signed: Vec<&[u8]> = parts
        .iter()
        .map(|part| match part {
            Part::Text(text) => text.as_bytes(),
            Part::Id => id.as_bytes(),
            Part::Timestamp => time.as_bytes(),
            Part::Body => body,
        })
        .collect();
    Ok((signed.concat(), signatures))
}

fn decode(hmac: &Hmac<'_>, text: &str) -> Option<Vec<u8>> {
    match hmac.encoding {
        Encoding::Hex => hex::decode(text).ok(),
        Encoding::Base64 => STANDARD.decode(text).ok(),
    }
}

/// Returns a time as text and in seconds since 1970. The text has a single form, so it is the text that was signed.
fn parse_time<'a>(name: &str, text: &'a str) -> Result<(&'a str, u64), Unsigned> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    let seconds = text.parse().ok().filter(|_| digits);
    seconds.map(|seconds| (text, seconds)).ok_or_else(|| malformed(name, "must have a number of seconds since 1970"))
}

/// Refuses a time that differs from the present one by more than [`TOLERANCE`].
fn check_time((text, seconds): (&str, u64), now: SystemTime) -> Result<(), Unsigned> {
    let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    match now.abs_diff(seconds) > TOLERANCE.as_secs() {
        true if text.len() == MILLISECONDS_DIGITS => Err(Unsigned::Milliseconds),
        true => Err(Unsigned::Stale),
        false => Ok(()),
    }
}

/// Checks an id that is a part of the signed text. It may not have the characters that separate it from the other parts.
fn signed_id<'a>(name: &str, id: &'a str, separators: &[char]) -> Result<&'a str, Unsigned> {
    if is_id(id) && !id.contains(separators) {
        return Ok(id);
    }
    let others: BTreeSet<_> = separators.iter().map(|separator| format!("`{separator}`")).collect();
    let others = others.into_iter().collect::<Vec<_>>().join(" and ");
    Err(malformed(name, format!("must have 1 to {MAX_ID_CHARS} printable ASCII characters other than {others}")))
}

/// Returns true for the id of a post in a header: 1 to [`MAX_ID_CHARS`] printable ASCII characters.
pub(super) fn is_id(id: &str) -> bool {
    (1..=MAX_ID_CHARS).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Returns the value of a header that must occur once.
pub(super) fn single_header<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a str, Unsigned> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().ok_or_else(|| Unsigned::Missing(name.to_owned()))?;
    match values.next() {
        Some(_) => Err(Unsigned::Repeated(name.to_owned())),
        None => value.to_str().map_err(|_| malformed(name, "has characters other than printable ASCII")),
    }
}

/// Removes the prefix of a header's value. Case does not matter, as in the names of authentication schemes.
fn strip<'a>(name: &str, prefix: &str, value: &'a str) -> Result<&'a str, Unsigned> {
    let wrong = || malformed(name, format!("must begin with `{}`", prefix.trim_end()));
    let (before, rest) = value.split_at_checked(prefix.len()).ok_or_else(wrong)?;
    if before.eq_ignore_ascii_case(prefix) { Ok(rest) } else { Err(wrong()) }
}
