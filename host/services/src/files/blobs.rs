//! Access to stored file contents (blobs) from async code.

use std::sync::Arc;

use bytes::Bytes;
use flowcell_contract::{BlobRef, Blobs, Failure, Tenant, code};

/// The store of blobs, for use in async code. It hashes, reads and writes blobs on threads that may block.
#[derive(Clone)]
pub(crate) struct AsyncBlobs(Arc<dyn Blobs>);

impl AsyncBlobs {
    pub(crate) fn new(blobs: Arc<dyn Blobs>) -> AsyncBlobs {
        AsyncBlobs(blobs)
    }

    pub(crate) async fn put(&self, tenant: &Tenant, bytes: Vec<u8>, mime: String) -> Result<BlobRef, Failure> {
        let (blobs, tenant) = (self.0.clone(), tenant.clone());
        blocking(move || Ok(blobs.put(&tenant, bytes.into(), &mime))).await
    }

    pub(crate) async fn get(&self, tenant: &Tenant, blob: BlobRef) -> Result<Bytes, Failure> {
        let (blobs, tenant) = (self.0.clone(), tenant.clone());
        let (blob, found) = blocking(move || blobs.get(&tenant, &blob).map(|found| (blob, found))).await?;
        let missing = || Failure::new(code::INVALID_INPUT, format!("the file `{}` does not exist", blob.file_id));
        found.map(Bytes::from_owner).ok_or_else(missing)
    }
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let ended = tokio::task::spawn_blocking(work).await;
    ended.unwrap_or_else(|error| Err(Failure::retryable(code::STORE_FAILED, format!("the file store failed: {error}"))))
}
