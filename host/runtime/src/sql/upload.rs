//! Large files that go to an object store.
//!
//! Each upload has a name of its own ([`objects`](crate::objects)), and its row follows with the next commit. A content
//! that the store has already is not uploaded again: the store makes its row young first, so no sweep of any process
//! removes it soon.

use std::{collections::HashSet, sync::Arc};

use flowcell_contract::{BlobRef, BlobWriter, Failure, Tenant, WholeWriter};

use super::{
    SharedStore,
    connection::{Connection, SqlError, args},
    queue::Item,
};
use crate::{
    objects::{Draft, Finished, Place, is_apart},
    pieces::LargeFile,
    ports::{StoreError, blob_ref},
    rows::copy_and_check::{KeptBlob, ReadPiece},
};

/// Stores bytes as an object, if that is the place of files of this size and the object store takes them. Returns
/// whether it has done so.
pub(super) fn put(store: &SharedStore, tenant: &Tenant, blob: &BlobRef, bytes: &[u8]) -> bool {
    if !is_apart(&blob.mime, bytes.len() as u64) {
        return false;
    }
    let Some(objects) = store.shared.place.for_new() else { return false };
    // While the server is away, the bytes wait in the queue.
    let Ok((is_known, now)) = store.renew(tenant, &blob.file_id) else { return false };
    if is_known {
        return true;
    }
    // The object store has written its error to the log.
    let Ok(file) = objects.put(tenant, now, bytes) else { return false };
    store.keep_object(tenant, blob.file_id.clone(), file, &blob.mime);
    true
}

/// Stores a blob. `hash` is the SHA-256 of the bytes, in hexadecimal.
pub(super) fn keep(store: &SharedStore, tenant: &Tenant, hash: &Arc<str>, bytes: Arc<[u8]>, mime: &str) {
    store.shared.visible().blobs.insert((tenant.clone(), hash.clone()), bytes.clone());
    let blob = Item::Blob { tenant: tenant.clone(), hash: hash.clone(), bytes, mime: mime.into() };
    store.shared.queue.push(blob);
}

/// Begins a file of a store.
pub(super) fn writer(store: Arc<SharedStore>, tenant: &Tenant) -> Result<Box<dyn BlobWriter>, Failure> {
    let Some(objects) = store.shared.place.for_new() else {
        let condition = match store.shared.place {
            Place::Beside => " without `--blobs`",
            _ => " while its object store cannot be used",
        };
        return Ok(Box::new(WholeWriter::new(store, tenant, condition)));
    };
    let now = store.now()?;
    Ok(Box::new(ObjectWriter { draft: objects.begin(tenant, now), store }))
}

/// A file that is uploaded while it arrives.
struct ObjectWriter {
    store: Arc<SharedStore>,
    draft: Draft,
}

impl BlobWriter for ObjectWriter {
    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.draft.write(bytes)
    }

    fn size(&self) -> u64 {
        self.draft.size()
    }

    fn finish(self: Box<Self>, mime: &str) -> Result<BlobRef, Failure> {
        let ObjectWriter { store, draft } = *self;
        let tenant = draft.tenant().clone();
        match draft.finish(|hash| Ok(store.renew(&tenant, hash)?.0))? {
            Finished::Small(bytes) => {
                let blob = blob_ref(&bytes, mime);
                keep(&store, &tenant, &blob.file_id, bytes.into(), mime);
                Ok(blob)
            }
            Finished::Known { hash, size } => Ok(BlobRef { file_id: hash, size, mime: mime.into() }),
            Finished::Object { hash, row } => Ok(store.keep_object(&tenant, hash, row, mime)),
        }
    }
}

/// Stores a large file of another store.
pub(super) fn take_large(store: &SharedStore, blob: &KeptBlob, read: &mut ReadPiece<'_>) -> Result<bool, StoreError> {
    let Some(objects) = store.shared.place.for_new() else { return Ok(false) };
    let file = objects.take((&blob.tenant, &blob.hash), store.now()?, read)?;
    store.keep_object(&blob.tenant, blob.hash.as_str().into(), file, &blob.mime);
    store.settle()?;
    Ok(true)
}

impl SharedStore {
    fn now(&self) -> Result<u64, StoreError> {
        self.worker.read(async move |connection| Ok(connection.now().await? as u64))
    }

    /// Makes the row of a content young. Returns whether there is one, and the time of the server.
    fn renew(&self, tenant: &Tenant, hash: &Arc<str>) -> Result<(bool, u64), StoreError> {
        let key = (tenant.clone(), hash.clone());
        let sql = "UPDATE flowcell_blobs SET put_at = {now} WHERE tenant = ? AND hash = ?";
        self.worker.write(async move |connection| {
            let renewed = connection.run(sql, args![key.0.as_str(), &*key.1]).await?;
            Ok((renewed > 0, connection.now().await? as u64))
        })
    }

    /// Queues the row of an object that is complete.
    fn keep_object(&self, tenant: &Tenant, hash: Arc<str>, file: LargeFile, mime: &str) -> BlobRef {
        self.shared.visible().objects.insert((tenant.clone(), hash.clone()), file.clone());
        let blob = BlobRef { file_id: hash.clone(), size: file.size, mime: mime.into() };
        self.shared.queue.push(Item::Object { tenant: tenant.clone(), hash, file, mime: mime.into() });
        blob
    }

    /// Removes the objects of rows that a sweep has removed, and those without rows.
    pub(super) fn remove_objects(&self, tenant: &Tenant, names: &[String]) -> Result<(), StoreError> {
        let Some(objects) = self.shared.place.in_use()? else { return Ok(()) };
        objects.remove(tenant, names)?;
        let spared = self.shared.options.spared.as_millis() as u64;
        objects.remove_nameless(
            tenant,
            (self.now()?, spared),
            |_| false,
            || {
                let tenant = tenant.clone();
                self.worker.read(async move |connection| named_objects(connection, &tenant).await)
            },
        )
    }
}

/// Returns the names of the objects in the rows of a tenant.
async fn named_objects(connection: &mut Connection, tenant: &Tenant) -> Result<HashSet<String>, SqlError> {
    let sql = "SELECT object FROM flowcell_blobs WHERE tenant = ? AND object IS NOT NULL";
    connection.rows(sql, args![tenant.as_str()]).await?.iter().map(|row| row.text(0)).collect()
}
