//! Blobs, and the large values that rows refer to.

use std::{collections::HashMap, sync::Arc};

use flowcell_contract::{BlobRef, BlobWriter, Failure, MAX_WHOLE_BYTES, Tenant, part, too_large_for_memory};
use rusqlite::{Connection, OptionalExtension, params};

use super::{
    Reader, SqliteStore,
    large::{self, LargeFiles},
    upload,
};
use crate::{
    pieces::LargeFile,
    ports::{Blobs, StoreError, blob_ref},
    rows::cut::{ExternalizedRow, fill},
};

/// The media type of values that are cut out of rows.
pub(super) const MIME: &str = "application/json";

/// Stores the values that were cut out of a row. Callers store the row afterwards, so that no row refers to a missing
/// value.
pub(super) fn keep_values(
    connection: &Connection,
    tenant: &Tenant,
    row: &ExternalizedRow,
) -> Result<(), rusqlite::Error> {
    row.blobs.iter().try_for_each(|(hash, text)| keep_value(connection, tenant, hash, text.as_bytes()))
}

/// Stores a value that was cut out of a row. Such a value is always in the database, so that runs can be read without any
/// other file.
pub(super) fn keep_value(
    connection: &Connection,
    tenant: &Tenant,
    hash: &str,
    text: &[u8],
) -> Result<(), rusqlite::Error> {
    keep(connection, tenant, hash, MIME, text)?;
    let sql = "UPDATE blobs SET bytes = ?, file = NULL, object = NULL
        WHERE tenant = ? AND hash = ? AND file IS NOT NULL";
    connection.prepare_cached(sql)?.execute(params![text, tenant.as_str(), hash]).map(drop)
}

/// Stores bytes, if the tenant does not have them.
pub(super) fn keep(
    connection: &Connection,
    tenant: &Tenant,
    hash: &str,
    mime: &str,
    bytes: &[u8],
) -> Result<(), rusqlite::Error> {
    // A lookup is cheaper than the transfer of bytes that already exist.
    let sql = "SELECT 1 FROM blobs WHERE tenant = ? AND hash = ?";
    if connection.prepare_cached(sql)?.exists(params![tenant.as_str(), hash])? {
        return Ok(());
    }
    let sql = "INSERT INTO blobs (tenant, hash, mime, bytes) VALUES (?, ?, ?, ?)";
    connection.prepare_cached(sql)?.execute(params![tenant.as_str(), hash, mime, bytes])?;
    Ok(())
}

/// Reads the bytes of a blob that is in the database.
fn read(connection: &Connection, tenant: &Tenant, hash: &str) -> Result<Option<Vec<u8>>, rusqlite::Error> {
    let mut select = connection.prepare_cached("SELECT bytes FROM blobs WHERE tenant = ? AND hash = ?")?;
    select.query_row(params![tenant.as_str(), hash], |row| row.get(0)).optional()
}

/// Reads the values that were cut out of the rows of a tenant. It remembers the values that it has read, so rows that
/// are read together share them.
pub(super) struct CutOut<'a> {
    connection: &'a Connection,
    tenant: &'a Tenant,
    known: HashMap<Arc<str>, Arc<str>>,
}

impl<'a> CutOut<'a> {
    pub(super) fn new(connection: &'a Connection, tenant: &'a Tenant) -> CutOut<'a> {
        CutOut { connection, tenant, known: HashMap::new() }
    }

    /// Puts the values back into a text.
    pub(super) fn put_back(&mut self, text: String, cuts: Option<&str>) -> Result<String, String> {
        match cuts {
            Some(cuts) => fill(&text, cuts, |hash| self.value(hash)),
            None => Ok(text),
        }
    }

    fn value(&mut self, hash: &str) -> Result<Arc<str>, String> {
        if let Some(text) = self.known.get(hash) {
            return Ok(text.clone());
        }
        let bytes = read(self.connection, self.tenant, hash)
            .map_err(|error| format!("cannot read the blob {hash}: {error}"))?;
        let bytes = bytes.ok_or_else(|| format!("the blob {hash} is missing"))?;
        let text = String::from_utf8(bytes).ok().filter(|text| *blob_ref(text.as_bytes(), "").file_id == *hash);
        let text: Arc<str> = text.ok_or_else(|| format!("the blob {hash} has another content"))?.into();
        self.known.insert(hash.into(), text.clone());
        Ok(text)
    }
}

impl Reader {
    fn blob(&self, tenant: &Tenant, hash: &str) -> Result<Option<Arc<[u8]>>, Failure> {
        let read_large = |file: &LargeFile| whole(&self.1, (tenant, hash), file);
        match self.large(tenant, hash, read_large)? {
            Some(bytes) => Ok(Some(bytes)),
            None => Ok(read(&self.0.lock(), tenant, hash).map_err(StoreError::from)?.map(Arc::from)),
        }
    }

    /// Reads a large file. Returns `None` if the content is none. The row of an object that is missing is read again,
    /// because a sweep or a value of a run may have replaced it meanwhile.
    fn large<T>(
        &self,
        tenant: &Tenant,
        hash: &str,
        read: impl Fn(&LargeFile) -> Result<Option<T>, Failure>,
    ) -> Result<Option<T>, Failure> {
        let find = || large::find(&self.0.lock(), tenant, hash).map_err(StoreError::from);
        let Some(file) = find()? else { return Ok(None) };
        if let Some(found) = read(&file)? {
            return Ok(Some(found));
        }
        match find()? {
            Some(other) if other.object != file.object => {
                read(&other)?.map_or_else(|| Err(large::missing(hash)), |found| Ok(Some(found)))
            }
            Some(_) => Err(large::missing(hash)),
            None => Ok(None),
        }
    }

    fn blob_size(&self, tenant: &Tenant, hash: &str) -> Result<Option<u64>, Failure> {
        let connection = self.0.lock();
        let sql = "SELECT coalesce(file, length(bytes)) FROM blobs WHERE tenant = ? AND hash = ?";
        let found = connection
            .prepare_cached(sql)
            .and_then(|mut select| select.query_row(params![tenant.as_str(), hash], |row| row.get(0)).optional());
        Ok(found.map_err(StoreError::from)?)
    }

    fn blob_part(&self, tenant: &Tenant, hash: &str, offset: u64, length: usize) -> Result<Option<Vec<u8>>, Failure> {
        let read_large = |file: &LargeFile| self.1.read((tenant, hash), file, offset, length);
        if let Some(bytes) = self.large(tenant, hash, read_large)? {
            return Ok(Some(bytes));
        }
        let connection = self.0.lock();
        let sql = "SELECT substr(bytes, ?, ?) FROM blobs WHERE tenant = ? AND hash = ?";
        let from = i64::try_from(offset).unwrap_or(i64::MAX).saturating_add(1);
        let found = connection.prepare_cached(sql).and_then(|mut select| {
            let values = params![from, length.min(MAX_WHOLE_BYTES) as u64, tenant.as_str(), hash];
            // A part of an empty content is null.
            let part = |row: &rusqlite::Row<'_>| Ok(row.get::<_, Option<Vec<u8>>>(0)?.unwrap_or_default());
            select.query_row(values, part).optional()
        });
        Ok(found.map_err(StoreError::from)?)
    }
}

/// Reads a large file that is small enough to be in memory.
fn whole(files: &LargeFiles, (tenant, hash): (&Tenant, &str), file: &LargeFile) -> Result<Option<Arc<[u8]>>, Failure> {
    match usize::try_from(file.size) {
        Ok(size) if size <= MAX_WHOLE_BYTES => Ok(files.read((tenant, hash), file, 0, size)?.map(Arc::from)),
        _ => Err(too_large_for_memory(file.size)),
    }
}

/// The blobs of a read-only store. Ignores new bytes.
impl Blobs for Reader {
    fn put(&self, _: &Tenant, bytes: Arc<[u8]>, mime: &str) -> BlobRef {
        blob_ref(&bytes, mime)
    }

    fn get(&self, tenant: &Tenant, blob: &BlobRef) -> Result<Option<Arc<[u8]>>, Failure> {
        self.blob(tenant, &blob.file_id)
    }

    fn size(&self, tenant: &Tenant, blob: &BlobRef) -> Result<Option<u64>, Failure> {
        self.blob_size(tenant, &blob.file_id)
    }

    fn read_part(
        &self,
        tenant: &Tenant,
        blob: &BlobRef,
        offset: u64,
        length: usize,
    ) -> Result<Option<Vec<u8>>, Failure> {
        self.blob_part(tenant, &blob.file_id, offset, length)
    }
}

/// A content that is not durable yet.
enum Seen {
    Bytes(Arc<[u8]>),
    Large(LargeFile),
}

fn seen(store: &SqliteStore, tenant: &Tenant, hash: &Arc<str>) -> Option<Seen> {
    let (visible, key) = (store.visible.lock(), (tenant.clone(), hash.clone()));
    let bytes = visible.blobs.get(&key).cloned().map(Seen::Bytes);
    bytes.or_else(|| visible.large.get(&key).cloned().map(Seen::Large))
}

impl Blobs for SqliteStore {
    fn put(&self, tenant: &Tenant, bytes: Arc<[u8]>, mime: &str) -> BlobRef {
        let blob = blob_ref(&bytes, mime);
        if !upload::put(self, tenant, &blob, &bytes) {
            self.keep(tenant, &blob.file_id, bytes, mime);
        }
        blob
    }

    fn get(&self, tenant: &Tenant, blob: &BlobRef) -> Result<Option<Arc<[u8]>>, Failure> {
        match seen(self, tenant, &blob.file_id) {
            Some(Seen::Bytes(bytes)) => Ok(Some(bytes)),
            Some(Seen::Large(file)) => {
                let read = whole(&self.large, (tenant, &blob.file_id), &file)?;
                read.map_or_else(|| Err(large::missing(&blob.file_id)), |bytes| Ok(Some(bytes)))
            }
            None => self.reader.blob(tenant, &blob.file_id),
        }
    }

    fn size(&self, tenant: &Tenant, blob: &BlobRef) -> Result<Option<u64>, Failure> {
        match seen(self, tenant, &blob.file_id) {
            Some(Seen::Bytes(bytes)) => Ok(Some(bytes.len() as u64)),
            Some(Seen::Large(file)) => Ok(Some(file.size)),
            None => self.reader.blob_size(tenant, &blob.file_id),
        }
    }

    fn read_part(
        &self,
        tenant: &Tenant,
        blob: &BlobRef,
        offset: u64,
        length: usize,
    ) -> Result<Option<Vec<u8>>, Failure> {
        match seen(self, tenant, &blob.file_id) {
            Some(Seen::Bytes(bytes)) => Ok(Some(part(&bytes, offset, length).to_vec())),
            Some(Seen::Large(file)) => {
                let read = self.large.read((tenant, &blob.file_id), &file, offset, length)?;
                read.map_or_else(|| Err(large::missing(&blob.file_id)), |bytes| Ok(Some(bytes)))
            }
            None => self.reader.blob_part(tenant, &blob.file_id, offset, length),
        }
    }

    fn writer(self: Arc<Self>, tenant: &Tenant) -> Result<Box<dyn BlobWriter>, Failure> {
        match self.large.place.for_new() {
            Some(objects) => upload::writer(&self, &objects, tenant),
            None => Ok(large::writer(self, tenant)),
        }
    }
}
