//! The digests that identify bytes in a registry.

use sha2::{Digest, Sha256};

/// Returns the SHA-256 of bytes as registries write it: `sha256:` and 64 hexadecimal digits.
pub(super) fn sha256(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

/// Returns true if the text consists of 64 hexadecimal digits in lower case, as a SHA-256 does.
pub(super) fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'))
}
