//! Blobs, and the large values that rows refer to.

use std::{collections::HashMap, sync::Arc};

use flowcell_contract::{BlobRef, Failure, Tenant};
use rusqlite::{Connection, OptionalExtension, params};

use super::{Reader, SqliteStore};
use crate::{
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
    row.blobs.iter().try_for_each(|(hash, text)| keep(connection, tenant, hash, MIME, text.as_bytes()))
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

/// Reads the bytes of a blob.
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

/// The blobs of a read-only store. Ignores new bytes.
impl Blobs for Reader {
    fn put(&self, _: &Tenant, bytes: Arc<[u8]>, mime: &str) -> BlobRef {
        blob_ref(&bytes, mime)
    }

    fn get(&self, tenant: &Tenant, blob: &BlobRef) -> Result<Option<Arc<[u8]>>, Failure> {
        Ok(read(&self.0.lock(), tenant, &blob.file_id).map_err(StoreError::from)?.map(Arc::from))
    }
}

impl Blobs for SqliteStore {
    fn put(&self, tenant: &Tenant, bytes: Arc<[u8]>, mime: &str) -> BlobRef {
        let blob = blob_ref(&bytes, mime);
        self.keep(tenant, &blob.file_id, bytes, mime);
        blob
    }

    fn get(&self, tenant: &Tenant, blob: &BlobRef) -> Result<Option<Arc<[u8]>>, Failure> {
        let visible = self.visible.lock().blobs.get(&(tenant.clone(), blob.file_id.clone())).cloned();
        match visible {
            Some(bytes) => Ok(Some(bytes)),
            None => Ok(read(&self.reader.0.lock(), tenant, &blob.file_id).map_err(StoreError::from)?.map(Arc::from)),
        }
    }
}
