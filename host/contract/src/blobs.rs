//! The store of the contents of files.

use std::sync::Arc;

use crate::{BlobRef, Failure, Tenant, code};

/// Maximum size in bytes of a file that is written and read in parts.
pub const MAX_FILE_BYTES: u64 = 4 << 30;
/// Maximum size in bytes of a file that is in memory as a whole.
pub const MAX_WHOLE_BYTES: usize = 32 << 20;
/// The size in bytes of the pieces of a large file. Each piece has a digest of its own, so a read that begins and ends
/// with a piece reads no more than it returns.
pub const PIECE_BYTES: usize = 1 << 20;

/// A store of bytes, addressed by content.
pub trait Blobs: Send + Sync + 'static {
    /// Stores bytes, the same content only once, and returns a reference to them. The bytes become durable before any
    /// record that is written after this call.
    fn put(&self, tenant: &Tenant, bytes: Arc<[u8]>, mime: &str) -> BlobRef;

    /// Returns the bytes, or `None` if this tenant has not stored them. Fails with `file_too_large` for more than
    /// [`MAX_WHOLE_BYTES`].
    fn get(&self, tenant: &Tenant, blob: &BlobRef) -> Result<Option<Arc<[u8]>>, Failure>;

    /// Returns the number of bytes, or `None` if this tenant has not stored them. The size in `blob` counts for
    /// nothing, because a node may have written it.
    fn size(&self, tenant: &Tenant, blob: &BlobRef) -> Result<Option<u64>, Failure> {
        Ok(self.get(tenant, blob)?.map(|bytes| bytes.len() as u64))
    }

    /// Returns at most `length` bytes from `offset` on: none at and after the end. Returns `None` if this tenant has
    /// not stored the bytes.
    fn read_part(
        &self,
        tenant: &Tenant,
        blob: &BlobRef,
        offset: u64,
        length: usize,
    ) -> Result<Option<Vec<u8>>, Failure> {
        Ok(self.get(tenant, blob)?.map(|bytes| part(&bytes, offset, length).to_vec()))
    }

    /// Begins to store bytes in parts. Nothing is stored before [`BlobWriter::finish`]. By default the parts are
    /// collected in memory, up to [`MAX_WHOLE_BYTES`].
    fn writer(self: Arc<Self>, tenant: &Tenant) -> Result<Box<dyn BlobWriter>, Failure> {
        Ok(Box::new(WholeWriter::new(self, tenant, "")))
    }
}

/// Bytes that are stored in parts. Dropping it discards them.
pub trait BlobWriter: Send + Sync {
    /// Adds bytes at the end. Fails with `file_too_large` beyond the limit of the store.
    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure>;

    /// Returns the number of bytes so far.
    fn size(&self) -> u64;

    /// Stores the bytes, the same content only once, and returns a reference to them. The bytes become durable before
    /// any record that is written after this call.
    fn finish(self: Box<Self>, mime: &str) -> Result<BlobRef, Failure>;
}

/// Collects the parts in memory, up to [`MAX_WHOLE_BYTES`].
pub struct WholeWriter<B: Blobs + ?Sized> {
    blobs: Arc<B>,
    tenant: Tenant,
    bytes: Vec<u8>,
    condition: &'static str,
}

impl<B: Blobs + ?Sized> WholeWriter<B> {
    /// Begins to collect the parts of one file. `condition` ends the message of the failure for a larger file: it says
    /// when the store takes no larger ones, and may be empty.
    pub fn new(blobs: Arc<B>, tenant: &Tenant, condition: &'static str) -> WholeWriter<B> {
        WholeWriter { blobs, tenant: tenant.clone(), bytes: Vec::new(), condition }
    }
}

impl<B: Blobs + ?Sized> BlobWriter for WholeWriter<B> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if bytes.len() > MAX_WHOLE_BYTES - self.bytes.len() {
            let message = format!("this store has no files of more than {MAX_WHOLE_BYTES} bytes{}", self.condition);
            return Err(Failure::new(code::FILE_TOO_LARGE, message));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn finish(self: Box<Self>, mime: &str) -> Result<BlobRef, Failure> {
        Ok(self.blobs.put(&self.tenant, self.bytes.into(), mime))
    }
}

/// Returns the failure for a file that is too large to be in memory as a whole.
pub fn too_large_for_memory(size: u64) -> Failure {
    let message = format!(
        "the file has {size} bytes, and a file of more than {MAX_WHOLE_BYTES} bytes is read and sent in parts only"
    );
    Failure::new(code::FILE_TOO_LARGE, message)
}

/// Returns at most `length` of these bytes, from `offset` on.
pub fn part(bytes: &[u8], offset: u64, length: usize) -> &[u8] {
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
    &bytes[start..start.saturating_add(length).min(bytes.len())]
}
