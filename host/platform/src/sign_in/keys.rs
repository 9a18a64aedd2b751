//! The public keys of issuers, and signatures of tokens with them.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::Value;

/// Maximum number of keys of an issuer.
pub(super) const MAX_KEYS: usize = 100;
/// The bytes of a coordinate on P-256, and of a key of Ed25519.
const POINT_BYTES: usize = 32;

/// An algorithm of signatures. Those with a shared secret, and `none`, are not among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Rs256,
    Ps256,
    Es256,
    EdDsa,
}

impl Algorithm {
    /// Returns the algorithm with this name in the head of a token.
    pub(super) fn named(name: &str) -> Option<Algorithm> {
        match name {
            "RS256" => Some(Algorithm::Rs256),
            "PS256" => Some(Algorithm::Ps256),
            "ES256" => Some(Algorithm::Es256),
            "EdDSA" | "Ed25519" => Some(Algorithm::EdDsa),
            _ => None,
        }
    }
}

/// The keys of an issuer that sign.
#[derive(Debug, Default)]
pub(super) struct KeySet(Vec<PublicKey>);

#[derive(Debug)]
struct PublicKey {
    id: Option<String>,
    /// The only algorithm of the key. `None`: each that fits its kind.
    algorithm: Option<Algorithm>,
    material: Material,
}

#[derive(Debug)]
enum Material {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

/// The reason for which no key has signed a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyError {
    /// The issuer has no such key.
    Unknown,
    /// The signature is wrong.
    Signature,
}

/// A document of keys.
#[derive(Deserialize)]
struct Document {
    keys: Vec<Value>,
}

/// A key in its document. Members of other kinds of keys are missing.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl KeySet {
    /// Reads a document of keys. Leaves out keys of other kinds, and keys that encrypt.
    pub(super) fn parse(document: Value) -> Result<KeySet, String> {
        let wrong = |_| "its keys are not the expected JSON".to_owned();
        let Document { keys } = serde_json::from_value(document).map_err(wrong)?;
        if keys.len() > MAX_KEYS {
            return Err(format!("it has {} keys, and {MAX_KEYS} are the limit", keys.len()));
        }
        let all: Vec<_> =
            keys.into_iter().filter_map(|key| PublicKey::read(serde_json::from_value(key).ok()?)).collect();
        match all.is_empty() {
            true => Err("it has no key for RS256, PS256, ES256 or EdDSA".to_owned()),
            false => Ok(KeySet(all)),
        }
    }

    /// Checks the signature of a text by the key with this id. Without an id, the issuer must have one such key alone.
    pub(super) fn verify(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
        signed: &[u8],
        signature: &[u8],
    ) -> Result<(), KeyError> {
        let fits = |key: &&PublicKey| key.fits(algorithm) && id.is_none_or(|id| key.id.as_deref() == Some(id));
        let found: Vec<_> = self.0.iter().filter(fits).collect();
        if found.is_empty() || id.is_none() && found.len() > 1 {
            return Err(KeyError::Unknown);
        }
        match found.iter().any(|key| key.has_signed(algorithm, signed, signature)) {
            true => Ok(()),
            false => Err(KeyError::Signature),
        }
    }
}

impl PublicKey {
    fn read(jwk: Jwk) -> Option<PublicKey> {
        if jwk.usage.is_some_and(|usage| usage != "sig") {
            return None;
        }
        let algorithm = match &jwk.alg {
            Some(name) => Some(Algorithm::named(name)?),
            None => None,
        };
        let decode = |text: Option<String>| URL_SAFE_NO_PAD.decode(text?.trim_end_matches('=')).ok();
        let point = |text: Option<String>| decode(text).filter(|bytes| bytes.len() == POINT_BYTES);
        let material = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
            ("RSA", _) => Material::Rsa { n: without_zeros(decode(jwk.n)?), e: without_zeros(decode(jwk.e)?) },
            ("EC", Some("P-256")) => Material::P256([vec![4], point(jwk.x)?, point(jwk.y)?].concat()),
            ("OKP", Some("Ed25519")) => Material::Ed25519(point(jwk.x)?),
            _ => return None,
        };
        Some(PublicKey { id: jwk.kid, algorithm, material })
    }

    fn fits(&self, algorithm: Algorithm) -> bool {
        let fits = match self.material {
            Material::Rsa { .. } => matches!(algorithm, Algorithm::Rs256 | Algorithm::Ps256),
            Material::P256(_) => algorithm == Algorithm::Es256,
            Material::Ed25519(_) => algorithm == Algorithm::EdDsa,
        };
        fits && self.algorithm.is_none_or(|own| own == algorithm)
    }

    fn has_signed(&self, algorithm: Algorithm, signed: &[u8], signature: &[u8]) -> bool {
        let verified = match &self.material {
            Material::Rsa { n, e } => {
                let scheme = match algorithm {
                    Algorithm::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
                    _ => &signature::RSA_PKCS1_2048_8192_SHA256,
                };
                RsaPublicKeyComponents { n, e }.verify(scheme, signed, signature)
            }
            Material::P256(point) => {
                UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point).verify(signed, signature)
            }
            Material::Ed25519(point) => UnparsedPublicKey::new(&signature::ED25519, point).verify(signed, signature),
        };
        verified.is_ok()
    }
}

/// Some issuers write numbers with zeros before them.
fn without_zeros(bytes: Vec<u8>) -> Vec<u8> {
    bytes.into_iter().skip_while(|byte| *byte == 0).collect()
}
