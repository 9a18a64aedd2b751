//! Signatures of packs: ed25519 over a statement of name, version and digest.

use std::{fmt, path::Path, str::FromStr};

use base64::{Engine, engine::general_purpose::STANDARD};
use flowcell_contract::Digest;
use rand::Rng;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{InstallError, PackId};
use crate::operate::vault::{self, KeySource};

/// The prefix of keys and signatures.
const SCHEME: &str = "ed25519";

/// The public half of a key that signs packs: `ed25519:BASE64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicKey([u8; 32]);

/// A signature of a pack's name, version and digest: `ed25519:KEY:SIGNATURE`, both in base64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Signature {
    /// The signer's public key.
    pub key: PublicKey,
    bytes: [u8; 64],
}

/// A private key that signs packs.
pub struct PackKey(Ed25519KeyPair);

/// Returns the signed text. No part of it contains a line break.
fn statement(id: &PackId, digest: &Digest) -> String {
    format!("flowcell pack\nname: {}\nversion: {}\ndigest: {digest}\n", id.name, id.version)
}

/// Returns the signed text of an index. It differs from that of every pack.
fn index_statement(digest: &Digest) -> String {
    format!("flowcell index\ndigest: {digest}\n")
}

impl PackKey {
    /// Reads a key: 64 hexadecimal digits, the seed of an ed25519 key.
    pub fn read(source: &KeySource) -> Result<PackKey, InstallError> {
        let text = source.read().map_err(|error| InstallError::Key(error.to_string()))?;
        let mut seed = Zeroizing::new([0; 32]);
        let read = hex::decode_to_slice(text.trim(), &mut seed[..]).ok();
        let pair = read.and_then(|()| Ed25519KeyPair::from_seed_unchecked(&seed[..]).ok());
        let wrong = "write 64 hexadecimal digits, as from `flowcell node keygen` or `openssl rand -hex 32`";
        pair.map(PackKey).ok_or_else(|| InstallError::Key(wrong.into()))
    }

    /// Creates a key in a new file that only its owner may read.
    pub fn make(file: &Path) -> Result<PackKey, InstallError> {
        let mut seed = Zeroizing::new([0; 32]);
        rand::rng().fill_bytes(&mut seed[..]);
        let text = Zeroizing::new(hex::encode(&seed[..]) + "\n");
        vault::write_private(file, &text).map_err(|source| InstallError::Write { path: file.to_owned(), source })?;
        PackKey::read(&KeySource::File(file.to_owned()))
    }

    /// Returns the public half of the key.
    pub fn public(&self) -> PublicKey {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(self.0.public_key().as_ref());
        PublicKey(bytes)
    }

    /// Signs a pack.
    pub fn sign(&self, id: &PackId, digest: &Digest) -> Signature {
        self.sign_text(&statement(id, digest))
    }

    /// Signs an index of packs.
    pub fn sign_index(&self, digest: &Digest) -> Signature {
        self.sign_text(&index_statement(digest))
    }

    fn sign_text(&self, text: &str) -> Signature {
        let mut bytes = [0; 64];
        bytes.copy_from_slice(self.0.sign(text.as_bytes()).as_ref());
        Signature { key: self.public(), bytes }
    }
}

impl Signature {
    /// Returns whether the signature is valid for this pack. It does not check whether the key is trusted.
    pub fn is_valid_for(&self, id: &PackId, digest: &Digest) -> bool {
        self.is_valid_for_text(&statement(id, digest))
    }

    /// Returns whether the signature is valid for this index. It does not check whether the key is trusted.
    pub fn is_valid_for_index(&self, digest: &Digest) -> bool {
        self.is_valid_for_text(&index_statement(digest))
    }

    fn is_valid_for_text(&self, text: &str) -> bool {
        let key = UnparsedPublicKey::new(&ED25519, self.key.0);
        key.verify(text.as_bytes(), &self.bytes).is_ok()
    }
}

impl FromStr for PublicKey {
    type Err = String;

    fn from_str(text: &str) -> Result<PublicKey, String> {
        let bytes = text.strip_prefix(SCHEME).and_then(|rest| rest.strip_prefix(':')).and_then(decode);
        bytes.map(PublicKey).ok_or_else(|| format!("`{text}` is not a key: write `{SCHEME}:` and 32 bytes in base64"))
    }
}

impl FromStr for Signature {
    type Err = String;

    fn from_str(text: &str) -> Result<Signature, String> {
        let read = || {
            let (key, bytes) = text.trim().rsplit_once(':')?;
            Some(Signature { key: key.parse().ok()?, bytes: decode(bytes)? })
        };
        read().ok_or_else(|| format!("`{}` is not a signature: write `{SCHEME}:KEY:SIGNATURE`", text.trim()))
    }
}

fn decode<const LENGTH: usize>(text: &str) -> Option<[u8; LENGTH]> {
    STANDARD.decode(text).ok()?.try_into().ok()
}

impl fmt::Display for PublicKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{SCHEME}:{}", STANDARD.encode(self.0))
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.key, STANDARD.encode(self.bytes))
    }
}

impl TryFrom<String> for PublicKey {
    type Error = String;

    fn try_from(text: String) -> Result<PublicKey, String> {
        text.parse()
    }
}

impl TryFrom<String> for Signature {
    type Error = String;

    fn try_from(text: String) -> Result<Signature, String> {
        text.parse()
    }
}

impl From<PublicKey> for String {
    fn from(key: PublicKey) -> String {
        key.to_string()
    }
}

impl From<Signature> for String {
    fn from(signature: Signature) -> String {
        signature.to_string()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::fs;

    use super::*;

    fn key(folder: &Path, digits: &str) -> PackKey {
        let file = folder.join("key");
        let _ = fs::remove_file(&file);
        vault::write_private(&file, digits).unwrap();
        PackKey::read(&KeySource::File(file)).unwrap()
    }

    /// Tests the first key pair of RFC 8032.
    #[test]
    fn keys_are_those_of_the_standard() {
        let folder = tempfile::tempdir().unwrap();
        let key = key(folder.path(), "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
        assert_eq!(key.public().to_string(), "ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=");
    }

    #[test]
    fn a_signature_is_valid_for_one_pack_only() {
        let folder = tempfile::tempdir().unwrap();
        let key = key(folder.path(), &"0f".repeat(32));
        let (id, digest) = ("acme@1.0.0".parse::<PackId>().unwrap(), Digest("a".repeat(64).into()));
        let signature: Signature = key.sign(&id, &digest).to_string().parse().unwrap();
        assert!(signature.is_valid_for(&id, &digest));
        for other in ["acme@1.0.1", "acm@1.0.0"] {
            assert!(!signature.is_valid_for(&other.parse().unwrap(), &digest), "{other}");
        }
        assert!(!signature.is_valid_for(&id, &Digest("b".repeat(64).into())));
        assert!(!signature.is_valid_for_index(&digest), "a signature of a pack is none of an index");
        let of_index = key.sign_index(&digest);
        assert!(of_index.is_valid_for_index(&digest) && !of_index.is_valid_for(&id, &digest));
        let other = PackKey::make(&folder.path().join("other")).unwrap();
        assert!(!Signature { key: other.public(), ..signature }.is_valid_for(&id, &digest));
        assert!(PackKey::make(&folder.path().join("other")).is_err(), "a key that is there is not lost");
    }

    #[test]
    fn malformed_signatures_are_refused() {
        for text in ["", "ed25519", "ed25519:AA==:AA==", "rsa:AA==:AA=="] {
            assert!(text.parse::<Signature>().is_err() && text.parse::<PublicKey>().is_err(), "{text}");
        }
    }
}
