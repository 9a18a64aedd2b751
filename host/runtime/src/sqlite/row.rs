//! The row of a run, and the units that hang on it.

use flowcell_contract::Tenant;
use rusqlite::{Connection, params};
use serde::Serialize;

use super::{cut::Pieces, places, stored::checksum};
use crate::limits::INLINE_BYTES;

/// The media type of what is cut out of rows.
pub(super) const MIME: &str = "application/json";

/// The row of a run, and where its journal ends.
pub(super) struct Row {
    pub(super) id: i64,
    /// The checksum of the last unit.
    pub(super) tail: u32,
}

/// Units of a run that become one row, since they were decided in the same millisecond and are committed together.
pub(super) struct OpenUnit {
    pub(super) first_seq: u64,
    pub(super) facts: u64,
    pub(super) ts: u64,
    /// The facts as a JSON array.
    pub(super) text: String,
}

impl OpenUnit {
    /// Whether the next unit becomes the same row.
    pub(super) fn takes(&self, next: &OpenUnit) -> bool {
        self.ts == next.ts && self.text.len() + next.text.len() < INLINE_BYTES
    }

    pub(super) fn extend(&mut self, next: &OpenUnit) {
        self.text.pop();
        self.text.push(',');
        self.text.push_str(&next.text[1..]);
        self.facts += next.facts;
    }
}

impl Row {
    /// Finds the row of a run that has one.
    pub(super) fn find(connection: &Connection, tenant: &str, run: &str) -> Result<Row, rusqlite::Error> {
        let sql = "SELECT id FROM runs WHERE tenant = ? AND run = ?";
        let id = connection.prepare_cached(sql)?.query_row(params![tenant, run], |row| row.get(0))?;
        Ok(Row { id, tail: places::end(connection, id)?.unwrap_or_default().checksum })
    }

    /// Appends what was written since the last unit.
    pub(super) fn write(
        &mut self,
        connection: &Connection,
        tenant: &Tenant,
        unit: OpenUnit,
    ) -> Result<(), rusqlite::Error> {
        let body = Pieces::of_facts(unit.text).map_err(unwritable)?;
        keep_blobs(connection, tenant, &body)?;
        self.append(connection, unit.first_seq, unit.facts, unit.ts, &body)
    }

    /// Appends a unit, which from now on is the last.
    pub(super) fn append(
        &mut self,
        connection: &Connection,
        first_seq: u64,
        facts: u64,
        ts: u64,
        body: &Pieces,
    ) -> Result<(), rusqlite::Error> {
        let checksum = checksum(self.tail, first_seq, ts, &body.text, body.cuts.as_deref());
        let sql = "INSERT INTO units (run, first_seq, facts, ts, checksum, body, cuts) VALUES (?, ?, ?, ?, ?, ?, ?)";
        let unit = params![self.id, first_seq, facts, ts, checksum, body.text, body.cuts];
        let place = connection.prepare_cached(sql)?.insert(unit)?;
        self.tail = checksum;
        places::appended(connection, place)
    }
}

pub(super) fn text(value: &(impl Serialize + ?Sized)) -> Result<String, rusqlite::Error> {
    serde_json::to_string(value).map_err(unwritable)
}

pub(super) fn unwritable(error: serde_json::Error) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(error.into())
}

/// Keeps what was cut out of a row, before the row.
pub(super) fn keep_blobs(connection: &Connection, tenant: &Tenant, pieces: &Pieces) -> Result<(), rusqlite::Error> {
    pieces.blobs.iter().try_for_each(|(hash, text)| keep(connection, tenant, hash, MIME, text.as_bytes()))
}

/// Keeps bytes, if the tenant does not have them.
pub(super) fn keep(
    connection: &Connection,
    tenant: &Tenant,
    hash: &str,
    mime: &str,
    bytes: &[u8],
) -> Result<(), rusqlite::Error> {
    // To ask first is cheaper than to hand over bytes that are there.
    let sql = "SELECT 1 FROM blobs WHERE tenant = ? AND hash = ?";
    if connection.prepare_cached(sql)?.exists(params![tenant.as_str(), hash])? {
        return Ok(());
    }
    let sql = "INSERT INTO blobs (tenant, hash, mime, bytes) VALUES (?, ?, ?, ?)";
    connection.prepare_cached(sql)?.execute(params![tenant.as_str(), hash, mime, bytes])?;
    Ok(())
}
