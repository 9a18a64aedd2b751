//! Large files that go to an object store.
//!
//! Each upload has a name of its own ([`objects`](crate::objects)), and its row follows. A content that the store has
//! already is not uploaded again. That decision waits for the writer: a sweep that began before it has ended then, and
//! later ones spare the content, because it was put a short time ago.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use flowcell_contract::{BlobRef, BlobWriter, Failure, Tenant, code};
use rusqlite::params;

use super::SqliteStore;
use crate::{
    blocking::blocking,
    limits::SPARED_MS,
    objects::{Draft, Finished, Objects, is_apart},
    pieces::LargeFile,
    ports::StoreError,
    rows::copy_and_check::{KeptBlob, ReadPiece},
};

/// Returns the failure for a file of a tenant that is being removed.
pub(super) fn removed(tenant: &Tenant) -> Failure {
    Failure::new(code::DENIED, format!("the tenant `{tenant}` is being removed"))
}

/// Returns the time of the system in milliseconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}

/// Stores bytes as an object, if that is the place of files of this size and the object store takes them. Returns
/// whether it has done so.
pub(super) fn put(store: &SqliteStore, tenant: &Tenant, blob: &BlobRef, bytes: &[u8]) -> bool {
    if !is_apart(&blob.mime, bytes.len() as u64) {
        return false;
    }
    let Some(objects) = store.large.place.for_new() else { return false };
    if is_erased(store, tenant) {
        return false;
    }
    match has(store, tenant, &blob.file_id) {
        Ok(true) => return true,
        Ok(false) => {}
        Err(_) => return false,
    }
    // The object store has written its error to the log.
    let Ok(file) = objects.put(tenant, now(), bytes) else { return false };
    keep_object(store, &objects, tenant, blob.file_id.clone(), file, &blob.mime).is_ok()
}

/// Begins a file of a store.
pub(super) fn writer(
    store: &Arc<SqliteStore>,
    objects: &Objects,
    tenant: &Tenant,
) -> Result<Box<dyn BlobWriter>, Failure> {
    if is_erased(store, tenant) {
        return Err(removed(tenant));
    }
    let draft = objects.begin(tenant, now());
    store.visible.lock().recent.add(Instant::now(), tenant, draft.name());
    Ok(Box::new(Writer { store: store.clone(), draft }))
}

/// A file that is written to a store in parts.
struct Writer {
    store: Arc<SqliteStore>,
    draft: Draft,
}

impl BlobWriter for Writer {
    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.draft.write(bytes)
    }

    fn size(&self) -> u64 {
        self.draft.size()
    }

    fn finish(self: Box<Self>, mime: &str) -> Result<BlobRef, Failure> {
        let Writer { store, draft } = *self;
        let (tenant, objects) = (draft.tenant().clone(), draft.objects().clone());
        let is_known = |hash: &Arc<str>| Ok(has(&store, &tenant, hash)?);
        match draft.finish(is_known)? {
            Finished::Small(bytes) => {
                let blob = crate::ports::blob_ref(&bytes, mime);
                store.keep(&tenant, &blob.file_id, bytes.into(), mime);
                Ok(blob)
            }
            Finished::Known { hash, size } => Ok(BlobRef { file_id: hash, size, mime: mime.into() }),
            Finished::Object { hash, row } => keep_object(&store, &objects, &tenant, hash, row, mime),
        }
    }
}

/// Stores a large file of another store.
pub(super) fn take_large(store: &SqliteStore, blob: &KeptBlob, read: &mut ReadPiece<'_>) -> Result<(), StoreError> {
    let Some(objects) = store.large.place.for_new() else { return Ok(()) };
    let file = objects.take((&blob.tenant, &blob.hash), now(), read)?;
    let kept = keep_object(store, &objects, &blob.tenant, blob.hash.as_str().into(), file, &blob.mime);
    kept.map_err(|failure| StoreError(failure.message.to_string().into()))?;
    store.settle()
}

fn is_erased(store: &SqliteStore, tenant: &Tenant) -> bool {
    store.visible.lock().erased.contains(tenant)
}

/// Returns whether the store has a content. If so, no sweep removes it soon.
fn has(store: &SqliteStore, tenant: &Tenant, hash: &Arc<str>) -> Result<bool, StoreError> {
    store.visible.lock().recent.add(Instant::now(), tenant, hash);
    blocking(|| store.settle())?;
    let connection = store.reader.0.lock();
    let sql = "SELECT 1 FROM blobs WHERE tenant = ? AND hash = ?";
    Ok(connection.prepare_cached(sql)?.exists(params![tenant.as_str(), hash])?)
}

/// Queues the row of an object that is complete.
fn keep_object(
    store: &SqliteStore,
    objects: &Objects,
    tenant: &Tenant,
    hash: Arc<str>,
    file: LargeFile,
    mime: &str,
) -> Result<BlobRef, Failure> {
    let name = file.object.clone();
    let mut visible = store.visible.lock();
    if visible.erased.contains(tenant) {
        drop(visible);
        if let Err(error) = objects.remove(tenant, &name.iter().map(|name| name.to_string()).collect::<Vec<_>>()) {
            tracing::warn!("a file of the tenant `{tenant}` stays, which is being removed: {error}");
        }
        return Err(removed(tenant));
    }
    name.iter().for_each(|name| visible.recent.add(Instant::now(), tenant, name));
    drop(visible);
    Ok(store.keep_row(tenant, hash, file, mime))
}

/// Removes the objects of rows that a sweep has removed, and those without rows.
pub(super) fn remove_objects(store: &SqliteStore, tenant: &Tenant, names: &[String]) -> Result<(), StoreError> {
    let Some(objects) = store.large.place.in_use()? else { return Ok(()) };
    objects.remove(tenant, names)?;
    let is_recent = |name: &str| store.visible.lock().recent.has(tenant, name);
    objects.remove_nameless(tenant, (now(), SPARED_MS), is_recent, || {
        let connection = store.reader.0.lock();
        let mut select =
            connection.prepare_cached("SELECT object FROM blobs WHERE tenant = ? AND object IS NOT NULL")?;
        Ok(select.query_map([tenant.as_str()], |row| row.get(0))?.collect::<Result<HashSet<String>, _>>()?)
    })
}
