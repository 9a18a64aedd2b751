//! The registry of the embedded store. It is written beside the writer of journals, which a write here delays by no more
//! than its own commit.
//!
//! Only the owner of the store writes, so it remembers what it has read until it writes that itself: who a token belongs to
//! and what its tenant may do is asked at every request.

use std::collections::HashMap;

use flowcell_contract::{Json, Tenant};
use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, Row, params, types::Type};

use super::{Reader, SqliteStore, schema};
use crate::ports::{Registered, Registry, StoreError};

/// What is remembered at most. Whoever asks for what is not there, such as tokens that nobody has, fills it.
const REMEMBERED: usize = 4_096;

/// What the owner of the store has read.
#[derive(Default)]
pub(super) struct Remembered(Mutex<Memory>);

#[derive(Default)]
struct Memory {
    /// Counts what was written.
    writes: u64,
    /// By tenant, kind and key; what is not there too.
    known: HashMap<(Tenant, String, String), Option<Registered>>,
}

impl Remembered {
    /// What is known of one, or what was read, which is known from then on.
    fn or_read(
        &self,
        place: (Tenant, String, String),
        read: impl FnOnce() -> Result<Option<Registered>, StoreError>,
    ) -> Result<Option<Registered>, StoreError> {
        let writes = {
            let memory = self.0.lock();
            if let Some(known) = memory.known.get(&place) {
                return Ok(known.clone());
            }
            memory.writes
        };
        let found = read()?;
        let mut memory = self.0.lock();
        // What was read while somebody wrote may be what was there before.
        if memory.writes == writes {
            if memory.known.len() >= REMEMBERED {
                memory.known.clear();
            }
            // Others may have read it, too: one of several answers counts until the next write.
            return Ok(memory.known.entry(place).or_insert(found).clone());
        }
        Ok(found)
    }

    /// Something was written, or may have been.
    pub(super) fn forget(&self) {
        let mut memory = self.0.lock();
        memory.writes += 1;
        memory.known.clear();
    }
}

/// Reads key, value and version.
pub(super) fn found(row: &Row<'_>) -> Result<Registered, rusqlite::Error> {
    let value: String = row.get(1)?;
    let value = Json::restore(&value)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(1, Type::Text, error.to_string().into()))?;
    Ok(Registered { key: row.get(0)?, value, version: row.get(2)? })
}

impl Registry for Reader {
    fn registered(&self, tenant: &Tenant, kind: &str, key: &str) -> Result<Option<Registered>, StoreError> {
        let connection = self.0.lock();
        let sql = "SELECT key, value, version FROM registry WHERE tenant = ? AND kind = ? AND key = ?";
        Ok(connection.prepare_cached(sql)?.query_row(params![tenant.as_str(), kind, key], found).optional()?)
    }

    fn registered_after(
        &self,
        tenant: &Tenant,
        kind: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<Registered>, StoreError> {
        let connection = self.0.lock();
        let sql = "SELECT key, value, version FROM registry WHERE tenant = ? AND kind = ? AND key > ?
            ORDER BY key LIMIT ?";
        let mut select = connection.prepare_cached(sql)?;
        let rows = select.query_map(params![tenant.as_str(), kind, after, limit as u64], found)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn last_registered(&self, tenant: &Tenant, kind: &str) -> Result<Option<Registered>, StoreError> {
        let connection = self.0.lock();
        let sql = "SELECT key, value, version FROM registry WHERE tenant = ? AND kind = ? ORDER BY key DESC LIMIT 1";
        Ok(connection.prepare_cached(sql)?.query_row(params![tenant.as_str(), kind], found).optional()?)
    }

    fn register(
        &self,
        _tenant: &Tenant,
        _kind: &str,
        key: &str,
        _value: Option<&Json>,
        _seen: u64,
    ) -> Result<bool, StoreError> {
        Err(StoreError(format!("`{key}` is not written: this process only reads the store").into()))
    }
}

/// Takes over something from another store.
pub(super) fn take(
    connection: &Connection,
    tenant: &Tenant,
    kind: &str,
    registered: &Registered,
) -> Result<(), StoreError> {
    let sql = "INSERT INTO registry (tenant, kind, key, value, version) VALUES (?, ?, ?, ?, ?)";
    let Registered { key, value, version } = registered;
    Ok(connection.execute(sql, params![tenant.as_str(), kind, key, value.to_text(), version]).map(drop)?)
}

fn write(
    connection: &Connection,
    (tenant, kind, key): (&Tenant, &str, &str),
    value: Option<&Json>,
    seen: u64,
) -> Result<bool, StoreError> {
    let place = params![tenant.as_str(), kind, key, seen];
    let written = match value.map(Json::to_text) {
        Some(text) if seen == 0 => {
            let sql = "INSERT OR IGNORE INTO registry (tenant, kind, key, value, version) VALUES (?, ?, ?, ?, 1)";
            connection.execute(sql, params![tenant.as_str(), kind, key, text])?
        }
        Some(text) => {
            let sql = "UPDATE registry SET value = ?5, version = version + 1
                WHERE tenant = ?1 AND kind = ?2 AND key = ?3 AND version = ?4";
            connection.execute(sql, params![tenant.as_str(), kind, key, seen, text])?
        }
        None => {
            let sql = "DELETE FROM registry WHERE tenant = ? AND kind = ? AND key = ? AND version = ?";
            connection.execute(sql, place)?
        }
    };
    Ok(written > 0)
}

impl Registry for SqliteStore {
    fn registered(&self, tenant: &Tenant, kind: &str, key: &str) -> Result<Option<Registered>, StoreError> {
        let place = (tenant.clone(), kind.to_owned(), key.to_owned());
        self.remembered.or_read(place, || self.reader.registered(tenant, kind, key))
    }

    fn registered_after(
        &self,
        tenant: &Tenant,
        kind: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<Registered>, StoreError> {
        self.reader.registered_after(tenant, kind, after, limit)
    }

    fn last_registered(&self, tenant: &Tenant, kind: &str) -> Result<Option<Registered>, StoreError> {
        self.reader.last_registered(tenant, kind)
    }

    fn register(
        &self,
        tenant: &Tenant,
        kind: &str,
        key: &str,
        value: Option<&Json>,
        seen: u64,
    ) -> Result<bool, StoreError> {
        let path = self.reader.0.lock().path().unwrap_or_default().to_owned();
        let written = write(&schema::connect(path.as_ref())?, (tenant, kind, key), value, seen);
        // A write that has failed may have come through.
        self.remembered.forget();
        written
    }
}
