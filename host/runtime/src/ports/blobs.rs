//! Blobs: bytes that a store keeps once, by their content.

use flowcell_contract::BlobRef;
pub use flowcell_contract::Blobs;
use sha2::{Digest, Sha256};

/// Refers to bytes by their SHA-256, in hexadecimal.
pub(crate) fn blob_ref(bytes: &[u8], mime: &str) -> BlobRef {
    let hash = hex::encode(Sha256::digest(bytes));
    BlobRef { file_id: hash.into(), size: bytes.len() as u64, mime: mime.into() }
}
