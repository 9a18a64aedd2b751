//! Blobs: bytes that a store keeps once for each content.

use flowcell_contract::BlobRef;
pub use flowcell_contract::Blobs;
use sha2::{Digest, Sha256};

/// Returns a reference to bytes: their SHA-256 in hexadecimal, their size and their media type.
pub(crate) fn blob_ref(bytes: &[u8], mime: &str) -> BlobRef {
    let hash = hex::encode(Sha256::digest(bytes));
    BlobRef { file_id: hash.into(), size: bytes.len() as u64, mime: mime.into() }
}
