//! Access to stored file contents (blobs) from async code.

use std::sync::Arc;

use bytes::Bytes;
use flowcell_contract::{BlobRef, BlobWriter, Blobs, Failure, Tenant, code};

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
        found.map(Bytes::from_owner).ok_or_else(|| missing(&blob))
    }

    /// Returns the size of a stored content in bytes.
    pub(crate) async fn size(&self, tenant: &Tenant, blob: &BlobRef) -> Result<u64, Failure> {
        let (blobs, tenant, blob) = (self.0.clone(), tenant.clone(), blob.clone());
        blocking(move || blobs.size(&tenant, &blob)?.ok_or_else(|| missing(&blob))).await
    }

    /// Returns at most `length` bytes of a stored content from `offset` on: none at and after the end.
    pub(crate) async fn read_part(
        &self,
        tenant: &Tenant,
        blob: &BlobRef,
        offset: u64,
        length: usize,
    ) -> Result<Bytes, Failure> {
        let (blobs, tenant, blob) = (self.0.clone(), tenant.clone(), blob.clone());
        let read = blocking(move || blobs.read_part(&tenant, &blob, offset, length)?.ok_or_else(|| missing(&blob)));
        read.await.map(Bytes::from)
    }

    /// Begins to store a content in parts.
    pub(crate) async fn writer(&self, tenant: &Tenant) -> Result<AsyncWriter, Failure> {
        let (blobs, tenant) = (self.0.clone(), tenant.clone());
        Ok(AsyncWriter(Some(blocking(move || blobs.writer(&tenant)).await?)))
    }

    /// Returns the store itself, for work on a thread that may block.
    pub(super) fn store(&self) -> Arc<dyn Blobs> {
        self.0.clone()
    }
}

/// A content that is stored in parts. After an error it is discarded.
pub(crate) struct AsyncWriter(Option<Box<dyn BlobWriter>>);

impl AsyncWriter {
    pub(crate) async fn write(&mut self, bytes: Bytes) -> Result<(), Failure> {
        let mut writer = self.take()?;
        self.0 = Some(blocking(move || writer.write(&bytes).map(|()| writer)).await?);
        Ok(())
    }

    pub(crate) async fn finish(mut self, mime: String) -> Result<BlobRef, Failure> {
        let writer = self.take()?;
        blocking(move || writer.finish(&mime)).await
    }

    fn take(&mut self) -> Result<Box<dyn BlobWriter>, Failure> {
        self.0.take().ok_or_else(|| Failure::retryable(code::STORE_FAILED, "the file was not stored"))
    }
}

impl Drop for AsyncWriter {
    /// Removes an unfinished file, which may wait for the disk.
    fn drop(&mut self) {
        if let Some(writer) = self.0.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            drop(runtime.spawn_blocking(move || drop(writer)));
        }
    }
}

pub(super) fn missing(blob: &BlobRef) -> Failure {
    Failure::new(code::INVALID_INPUT, format!("the file `{}` does not exist", blob.file_id))
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let ended = tokio::task::spawn_blocking(work).await;
    ended.unwrap_or_else(|error| Err(Failure::retryable(code::STORE_FAILED, format!("the file store failed: {error}"))))
}
