//! Blobs in memory.

use std::{collections::HashMap, sync::Arc};

use flowcell_contract::{BlobRef, Failure, Tenant, part};
use parking_lot::Mutex;

use crate::ports::{Blobs, blob_ref};

type BlobKey = (Tenant, Arc<str>);

/// Blobs in memory, optionally above another store that is only read.
#[derive(Default)]
pub struct MemoryBlobs {
    blobs: Mutex<HashMap<BlobKey, Arc<[u8]>>>,
    under: Option<Arc<dyn Blobs>>,
}

impl MemoryBlobs {
    /// Creates a store that puts new blobs in memory. It reads blobs that are not in memory from `under`.
    pub fn over(under: Arc<dyn Blobs>) -> MemoryBlobs {
        MemoryBlobs { under: Some(under), ..MemoryBlobs::default() }
    }

    fn own(&self, tenant: &Tenant, blob: &BlobRef) -> Option<Arc<[u8]>> {
        self.blobs.lock().get(&(tenant.clone(), blob.file_id.clone())).cloned()
    }
}

impl Blobs for MemoryBlobs {
    fn put(&self, tenant: &Tenant, bytes: Arc<[u8]>, mime: &str) -> BlobRef {
        let blob = blob_ref(&bytes, mime);
        self.blobs.lock().insert((tenant.clone(), blob.file_id.clone()), bytes);
        blob
    }

    fn get(&self, tenant: &Tenant, blob: &BlobRef) -> Result<Option<Arc<[u8]>>, Failure> {
        match (self.own(tenant, blob), &self.under) {
            (None, Some(under)) => under.get(tenant, blob),
            (own, _) => Ok(own),
        }
    }

    fn size(&self, tenant: &Tenant, blob: &BlobRef) -> Result<Option<u64>, Failure> {
        match (self.own(tenant, blob), &self.under) {
            (None, Some(under)) => under.size(tenant, blob),
            (own, _) => Ok(own.map(|bytes| bytes.len() as u64)),
        }
    }

    fn read_part(
        &self,
        tenant: &Tenant,
        blob: &BlobRef,
        offset: u64,
        length: usize,
    ) -> Result<Option<Vec<u8>>, Failure> {
        match (self.own(tenant, blob), &self.under) {
            (None, Some(under)) => under.read_part(tenant, blob, offset, length),
            (own, _) => Ok(own.map(|bytes| part(&bytes, offset, length).to_vec())),
        }
    }
}
