//! What names bytes in a registry.

use sha2::{Digest, Sha256};

/// The digest of bytes, as registries write it.
pub(super) fn sha256(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

/// Whether these are the digits of a SHA-256.
pub(super) fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'))
}
