//! Digests of texts.

use hmac::{Hmac, KeyInit, Mac};
use hmac_sha2::{Digest, Sha256, Sha512};
use minijinja::{Error, value::Kwargs};

use super::{
    encodings::to_base64,
    operands::{argument, invalid},
};

/// `x | sha256(encoding)`: the SHA-256 digest of a text.
pub(super) fn sha256(value: &str, encoding: Option<&str>, options: Kwargs) -> Result<String, Error> {
    let encoding = argument(encoding, &options, "encoding")?;
    options.assert_all_used()?;
    encode("sha256", &Sha256::digest(value), encoding)
}

/// `x | sha512(encoding)`: the SHA-512 digest of a text.
pub(super) fn sha512(value: &str, encoding: Option<&str>, options: Kwargs) -> Result<String, Error> {
    let encoding = argument(encoding, &options, "encoding")?;
    options.assert_all_used()?;
    encode("sha512", &Sha512::digest(value), encoding)
}

/// `x | hmac(key, algorithm, encoding)`: the message authentication code of a text (RFC 2104).
pub(super) fn hmac(
    value: &str,
    key: &str,
    algorithm: Option<&str>,
    encoding: Option<&str>,
    options: Kwargs,
) -> Result<String, Error> {
    let algorithm = argument(algorithm, &options, "algorithm")?.unwrap_or("sha256");
    let encoding = argument(encoding, &options, "encoding")?;
    options.assert_all_used()?;
    if key.is_empty() {
        return Err(invalid("`hmac` needs a key that is not empty".to_owned()));
    }
    check_algorithm("hmac", algorithm)?;
    match algorithm {
        "sha512" => encode("hmac", &code::<Hmac<Sha512>>(key, value)?, encoding),
        _ => encode("hmac", &code::<Hmac<Sha256>>(key, value)?, encoding),
    }
}

/// Returns an error if `hmac` does not know an algorithm.
pub(super) fn check_algorithm(name: &str, algorithm: &str) -> Result<(), Error> {
    match algorithm {
        "sha256" | "sha512" => Ok(()),
        _ => Err(invalid(format!("`{name}` needs the algorithm `sha256` or `sha512`"))),
    }
}

/// Returns an error if no digest has an encoding.
pub(super) fn check_encoding(name: &str, encoding: &str) -> Result<(), Error> {
    encode(name, &[], Some(encoding)).map(|_| ())
}

fn code<M: Mac + KeyInit>(key: &str, text: &str) -> Result<Vec<u8>, Error> {
    let mac = <M as KeyInit>::new_from_slice(key.as_bytes()).map_err(|error| invalid(format!("`hmac`: {error}")))?;
    Ok(mac.chain_update(text).finalize().into_bytes().to_vec())
}

fn encode(name: &str, digest: &[u8], encoding: Option<&str>) -> Result<String, Error> {
    match encoding.unwrap_or("hex") {
        "hex" => Ok(hex::encode(digest)),
        "base64" => Ok(to_base64(digest, false)),
        "base64url" => Ok(to_base64(digest, true)),
        _ => Err(invalid(format!("`{name}` needs the encoding `hex`, `base64` or `base64url`"))),
    }
}
