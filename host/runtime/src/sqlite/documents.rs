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
const MAX_REMEMBERED_DOCUMENTS: usize = 4_096;

/// Tenant, kind and key of a document.
type Key = (Tenant, String, String);

/// The documents that the owner of the store has read.
#[derive(Default)]
pub(super) struct Remembered(Mutex<Memory>);

#[derive(Default)]
struct Memory {
    /// The number of writes that have ended.
    writes: u64,
    /// The number of writes that have begun and not ended.
    writing: usize,
    /// Documents by their keys, including missing ones.
    known: HashMap<Key, Option<Document>>,
}

impl Remembered {
    /// Begins a read. Returns the document if it is remembered (`None` inside: the store has no such document).
    /// Otherwise returns, as the error, the number of writes so far. The caller then reads the store, and passes this
    /// number to `end_read`.
    fn start_read(&self, key: &Key) -> Result<Option<Document>, u64> {
        let memory = self.0.lock();
        memory.known.get(key).cloned().ok_or(memory.writes)
    }

    /// Remembers a document that was read from the store, unless a write was in progress at any time since
    /// `start_read`. Such a read may have the previous version, and a reader that has already seen the new version must
    /// not get it.
    fn end_read(&self, key: Key, found: &Option<Document>, writes: u64) {
        let mut memory = self.0.lock();
        if memory.writing == 0 && memory.writes == writes {
            if memory.known.len() >= MAX_REMEMBERED_DOCUMENTS {
                memory.known.clear();
            }
            memory.known.insert(key, found.clone());
        }
    }

    /// Forgets all remembered documents, and then calls `write`. Meanwhile no document is remembered. If the write
    /// fails, the documents stay forgotten, because a failed write may have been committed.
    pub(super) fn write<T>(&self, write: impl FnOnce() -> T) -> T {
        self.start_write();
        let written = write();
        self.end_write();
        written
    }

    fn start_write(&self) {
        let mut memory = self.0.lock();
        memory.writing += 1;
        memory.known.clear();
    }

    fn end_write(&self) {
        let mut memory = self.0.lock();
        memory.writing -= 1;
        memory.writes += 1;
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
        let id = (tenant.clone(), kind.to_owned(), key.to_owned());
        match self.remembered.start_read(&id) {
            Ok(known) => Ok(known),
            Err(writes) => {
                let found = DocumentStore::get(&self.reader, tenant, kind, key)?;
                self.remembered.end_read(id, &found, writes);
                Ok(found)
            }
        }
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
        let connection = schema::connect(path.as_ref())?;
        let _writing = self.document_writes.read();
        self.remembered.write(|| {
            if self.visible.lock().erased.contains(tenant) {
                return Err(StoreError(format!("cannot write `{key}`: its tenant was removed").into()));
            }
            write(&connection, (tenant, kind, key), value, expected_version)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        ("t".into(), "token".into(), "k".into())
    }

    fn version(version: u64) -> Option<Document> {
        Some(Document { key: "k".into(), value: Json::from(version), version })
    }

    /// Reads the document without a pause between the two steps of the read. `stored` is the version in the database.
    /// Returns the version that the reader gets.
    fn read(remembered: &Remembered, stored: u64) -> u64 {
        let found = remembered.start_read(&key()).unwrap_or_else(|writes| {
            remembered.end_read(key(), &version(stored), writes);
            version(stored)
        });
        found.map_or(0, |found| found.version)
    }

    #[test]
    fn a_reader_gets_no_version_older_than_the_one_that_it_has_seen() {
        let remembered = Remembered::default();
        // This reader pauses between its two steps.
        let slow = remembered.start_read(&key());
        remembered.write(|| ());
        assert_eq!(read(&remembered, 1), 1);
        remembered.start_write();
        // Before the commit, and after it.
        assert_eq!(read(&remembered, 1), 1);
        assert_eq!(read(&remembered, 2), 2);
        remembered.end_read(key(), &version(1), slow.expect_err("nothing is remembered"));
        assert_eq!(read(&remembered, 2), 2);
        remembered.end_write();
        assert_eq!(read(&remembered, 2), 2);
    }

    #[test]
    fn a_read_that_overlaps_a_write_is_not_remembered() {
        let remembered = Remembered::default();
        let before = remembered.start_read(&key()).expect_err("nothing is remembered");
        remembered.start_write();
        let during = remembered.start_read(&key()).expect_err("nothing is remembered");
        remembered.end_write();
        remembered.end_read(key(), &version(1), before);
        remembered.end_read(key(), &version(1), during);
        assert_eq!(read(&remembered, 2), 2);
        // Two writes: the end of one does not end the other.
        remembered.start_write();
        remembered.write(|| ());
        assert_eq!((read(&remembered, 2), read(&remembered, 3)), (2, 3));
        remembered.end_write();
        assert_eq!((read(&remembered, 4), read(&remembered, 5)), (4, 4));
    }
}
