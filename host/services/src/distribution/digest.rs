//! The digests that identify bytes in a registry.

use sha2::{Digest, Sha256};

/// Returns the digest of bytes in the notation of registries.
pub(super) fn sha256(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

/// Returns true if the text has the hexadecimal digits of a SHA-256.
pub(super) fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'))
}
