//! Blobs, in the database beside the cluster.
//!
//! A blob must be durable before the cluster has a fact that names it. So each commit first waits until the blobs are
//! durable that this process has stored before.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use flowcell_contract::{BlobRef, BlobWriter, Blobs, Failure, Tenant};
use flowcell_runtime::{ports::StoreError, sql::SharedStore};
use parking_lot::Mutex;

/// The blobs of a store on a cluster.
pub(crate) struct ClusterBlobs {
    tables: Arc<SharedStore>,
    /// The number of blobs that this process has stored.
    stored: AtomicU64,
    /// The number of those that are durable.
    settled: Mutex<u64>,
}

impl ClusterBlobs {
    pub(crate) fn new(tables: Arc<SharedStore>) -> ClusterBlobs {
        ClusterBlobs { tables, stored: AtomicU64::new(0), settled: Mutex::new(0) }
    }

    /// Counts a blob that is on its way to the database.
    pub(crate) fn count(&self) {
        self.stored.fetch_add(1, Ordering::AcqRel);
    }

    /// Waits until all blobs are durable that were stored before.
    pub(crate) fn settle(&self) -> Result<(), StoreError> {
        if self.stored.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        // Another commit may wait for the same blobs.
        let mut settled = self.settled.lock();
        let stored = self.stored.load(Ordering::Acquire);
        if stored > *settled {
            self.tables.settle()?;
            *settled = stored;
        }
        Ok(())
    }
}

impl Blobs for ClusterBlobs {
    fn put(&self, tenant: &Tenant, bytes: Arc<[u8]>, mime: &str) -> BlobRef {
        let blob = self.tables.put(tenant, bytes, mime);
        self.count();
        blob
    }

    fn get(&self, tenant: &Tenant, blob: &BlobRef) -> Result<Option<Arc<[u8]>>, Failure> {
        self.tables.get(tenant, blob)
    }

    fn size(&self, tenant: &Tenant, blob: &BlobRef) -> Result<Option<u64>, Failure> {
        self.tables.size(tenant, blob)
    }

    fn read_part(
        &self,
        tenant: &Tenant,
        blob: &BlobRef,
        offset: u64,
        length: usize,
    ) -> Result<Option<Vec<u8>>, Failure> {
        self.tables.read_part(tenant, blob, offset, length)
    }

    fn writer(self: Arc<Self>, tenant: &Tenant) -> Result<Box<dyn BlobWriter>, Failure> {
        let writer = self.tables.clone().writer(tenant)?;
        Ok(Box::new(CountedWriter { writer, blobs: self }))
    }
}

/// A writer that counts its blob at the end.
struct CountedWriter {
    writer: Box<dyn BlobWriter>,
    blobs: Arc<ClusterBlobs>,
}

impl BlobWriter for CountedWriter {
    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.writer.write(bytes)
    }

    fn size(&self) -> u64 {
        self.writer.size()
    }

    fn finish(self: Box<Self>, mime: &str) -> Result<BlobRef, Failure> {
        let blob = self.writer.finish(mime)?;
        self.blobs.count();
        Ok(blob)
    }
}
