//! The documents of operators. A write has a connection of its own, beside the writer of journals, and delays that
//! writer by at most its own commit.
//!
//! Only the owner of the store writes, so it remembers the documents that it has read until its own next write. This
//! saves reads, because every request looks up its token and the policy of its tenant.

use std::collections::HashMap;

use flowcell_contract::{Json, Tenant};
use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, Row, params, types::Type};

use super::{Reader, SqliteStore, schema};
use crate::ports::{Document, DocumentStore, StoreError};

/// The maximum number of remembered documents. Lookups of missing documents, such as unknown tokens, count too.
const REMEMBERED: usize = 4_096;

/// Tenant, kind and key of a document.
type Key = (Tenant, String, String);

/// The documents that the owner of the store has read.
#[derive(Default)]
pub(super) struct Remembered(Mutex<Memory>);

#[derive(Default)]
struct Memory {
    /// The number of writes.
    writes: u64,
    /// Documents by their keys, including missing ones.
    known: HashMap<Key, Option<Document>>,
}

impl Remembered {
    /// Returns a remembered document, or reads and remembers it.
    fn or_read(
        &self,
        key: Key,
        read: impl FnOnce() -> Result<Option<Document>, StoreError>,
    ) -> Result<Option<Document>, StoreError> {
        let writes = {
            let memory = self.0.lock();
            if let Some(known) = memory.known.get(&key) {
                return Ok(known.clone());
            }
            memory.writes
        };
        let found = read()?;
        let mut memory = self.0.lock();
        // Remembers the document only if no write happened meanwhile: the read may have returned the previous
        // version.
        if memory.writes == writes {
            if memory.known.len() >= REMEMBERED {
                memory.known.clear();
            }
            // Other threads may also have read it: the first answer counts until the next write.
            return Ok(memory.known.entry(key).or_insert(found).clone());
        }
        Ok(found)
    }

    /// Forgets all documents, because a write has happened or may have happened.
    pub(super) fn forget(&self) {
        let mut memory = self.0.lock();
        memory.writes += 1;
        memory.known.clear();
    }
}

/// Reads a document from a row with key, value and version.
pub(super) fn document(row: &Row<'_>) -> Result<Document, rusqlite::Error> {
    let value: String = row.get(1)?;
    let value = Json::restore(&value)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(1, Type::Text, error.to_string().into()))?;
    Ok(Document { key: row.get(0)?, value, version: row.get(2)? })
}

impl DocumentStore for Reader {
    fn get(&self, tenant: &Tenant, kind: &str, key: &str) -> Result<Option<Document>, StoreError> {
        let connection = self.0.lock();
        let sql = "SELECT key, value, version FROM registry WHERE tenant = ? AND kind = ? AND key = ?";
        Ok(connection.prepare_cached(sql)?.query_row(params![tenant.as_str(), kind, key], document).optional()?)
    }

    fn list(&self, tenant: &Tenant, kind: &str, after: &str, limit: usize) -> Result<Vec<Document>, StoreError> {
        let connection = self.0.lock();
        let sql = "SELECT key, value, version FROM registry WHERE tenant = ? AND kind = ? AND key > ?
            ORDER BY key LIMIT ?";
        let mut select = connection.prepare_cached(sql)?;
        let rows = select.query_map(params![tenant.as_str(), kind, after, limit as u64], document)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn last(&self, tenant: &Tenant, kind: &str) -> Result<Option<Document>, StoreError> {
        let connection = self.0.lock();
        let sql = "SELECT key, value, version FROM registry WHERE tenant = ? AND kind = ? ORDER BY key DESC LIMIT 1";
        Ok(connection.prepare_cached(sql)?.query_row(params![tenant.as_str(), kind], document).optional()?)
    }

    fn write(
        &self,
        _tenant: &Tenant,
        _kind: &str,
        key: &str,
        _value: Option<&Json>,
        _expected_version: u64,
    ) -> Result<bool, StoreError> {
        Err(StoreError(format!("cannot write `{key}`: this process only reads the store").into()))
    }
}

/// Inserts a document of another store.
pub(super) fn take(
    connection: &Connection,
    tenant: &Tenant,
    kind: &str,
    document: &Document,
) -> Result<(), StoreError> {
    let sql = "INSERT INTO registry (tenant, kind, key, value, version) VALUES (?, ?, ?, ?, ?)";
    let Document { key, value, version } = document;
    Ok(connection.execute(sql, params![tenant.as_str(), kind, key, value.to_text(), version]).map(drop)?)
}

fn write(
    connection: &Connection,
    (tenant, kind, key): (&Tenant, &str, &str),
    value: Option<&Json>,
    expected_version: u64,
) -> Result<bool, StoreError> {
    let key_and_version = params![tenant.as_str(), kind, key, expected_version];
    let written = match value.map(Json::to_text) {
        Some(text) if expected_version == 0 => {
            let sql = "INSERT OR IGNORE INTO registry (tenant, kind, key, value, version) VALUES (?, ?, ?, ?, 1)";
            connection.execute(sql, params![tenant.as_str(), kind, key, text])?
        }
        Some(text) => {
            let sql = "UPDATE registry SET value = ?5, version = version + 1
                WHERE tenant = ?1 AND kind = ?2 AND key = ?3 AND version = ?4";
            connection.execute(sql, params![tenant.as_str(), kind, key, expected_version, text])?
        }
        None => {
            let sql = "DELETE FROM registry WHERE tenant = ? AND kind = ? AND key = ? AND version = ?";
            connection.execute(sql, key_and_version)?
        }
    };
    Ok(written > 0)
}

impl DocumentStore for SqliteStore {
    fn get(&self, tenant: &Tenant, kind: &str, key: &str) -> Result<Option<Document>, StoreError> {
        let place = (tenant.clone(), kind.to_owned(), key.to_owned());
        self.remembered.or_read(place, || DocumentStore::get(&self.reader, tenant, kind, key))
    }

    fn list(&self, tenant: &Tenant, kind: &str, after: &str, limit: usize) -> Result<Vec<Document>, StoreError> {
        self.reader.list(tenant, kind, after, limit)
    }

    fn last(&self, tenant: &Tenant, kind: &str) -> Result<Option<Document>, StoreError> {
        self.reader.last(tenant, kind)
    }

    fn write(
        &self,
        tenant: &Tenant,
        kind: &str,
        key: &str,
        value: Option<&Json>,
        expected_version: u64,
    ) -> Result<bool, StoreError> {
        let path = self.reader.0.lock().path().unwrap_or_default().to_owned();
        let written = write(&schema::connect(path.as_ref())?, (tenant, kind, key), value, expected_version);
        // A write that has failed may have been committed.
        self.remembered.forget();
        written
    }
}
