//! The contents of blobs, which may be too large to be in memory.

use std::sync::Arc;

use flowcell_contract::{BlobRef, Blobs, Failure, MAX_WHOLE_BYTES, PIECE_BYTES};
use sha2::{Digest, Sha256};

use super::{CopyableStore, KeptBlob};
use crate::ports::{StoreError, blob_ref};

/// Returns the damage of a blob, if it has any.
pub(super) fn damage_of(store: &dyn CopyableStore, blob: &KeptBlob) -> Result<Option<String>, StoreError> {
    let other = || Some(format!("the blob {} has another content", blob.hash));
    let size = size(store, blob)?.unwrap_or_default();
    if size <= MAX_WHOLE_BYTES as u64 {
        return Ok(match bytes(store, blob) {
            Ok(found) if found.as_ref().is_some_and(|bytes| *blob_ref(bytes, "").file_id == *blob.hash) => None,
            Ok(_) => other(),
            // It may be in a file of its own, which does not make the rest of the store unreadable.
            Err(error) if size > PIECE_BYTES as u64 => {
                store.reach_files()?;
                Some(error.to_string())
            }
            Err(error) => return Err(error),
        });
    }
    let (mut hash, mut offset) = (Sha256::new(), 0);
    loop {
        // A file that is missing or damaged is not the end of the check.
        let piece = match piece(store, blob, offset) {
            Ok(piece) => piece,
            Err(error) => {
                store.reach_files()?;
                return Ok(Some(error.to_string()));
            }
        };
        if piece.is_empty() {
            break;
        }
        offset += piece.len() as u64;
        hash.update(&piece);
    }
    Ok(if hex::encode(hash.finalize()) == blob.hash { None } else { other() })
}

pub(super) fn bytes(store: &dyn CopyableStore, blob: &KeptBlob) -> Result<Option<Arc<[u8]>>, StoreError> {
    Blobs::get(store, &blob.tenant, &named(blob)).map_err(store_error)
}

pub(super) fn size(store: &dyn CopyableStore, blob: &KeptBlob) -> Result<Option<u64>, StoreError> {
    Blobs::size(store, &blob.tenant, &named(blob)).map_err(store_error)
}

pub(super) fn piece(store: &dyn CopyableStore, blob: &KeptBlob, offset: u64) -> Result<Vec<u8>, StoreError> {
    let piece = Blobs::read_part(store, &blob.tenant, &named(blob), offset, PIECE_BYTES).map_err(store_error)?;
    Ok(piece.unwrap_or_default())
}

fn named(blob: &KeptBlob) -> BlobRef {
    BlobRef { file_id: blob.hash.as_str().into(), size: 0, mime: blob.mime.as_str().into() }
}

fn store_error(failure: Failure) -> StoreError {
    StoreError(failure.message.to_string().into())
}
