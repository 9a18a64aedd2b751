//! Rows as they were written: whether they are whole, and what they say with everything back that was cut out of them.

use std::{collections::HashMap, sync::Arc};

use flowcell_contract::Tenant;
use rusqlite::{Connection, OptionalExtension, Row, params};

pub(super) use crate::rows::checksum;
use crate::{
    memory::blob_ref,
    rows::{UnitRow, cut::fill},
};

/// The columns that a unit is read from.
pub(super) const COLUMNS: &str = "units.first_seq, facts, ts, body, cuts, checksum";

/// Reads the row of a unit.
pub(super) fn unit_row(row: &Row<'_>) -> Result<UnitRow, rusqlite::Error> {
    Ok(UnitRow {
        first_seq: row.get(0)?,
        facts: row.get(1)?,
        ts: row.get(2)?,
        body: row.get(3)?,
        cuts: row.get(4)?,
        checksum: row.get(5)?,
    })
}

/// What was cut out of the rows of a tenant. It remembers what it has read, so that it is read once for rows that are read
/// together.
pub(super) struct CutOut<'a> {
    connection: &'a Connection,
    tenant: &'a Tenant,
    read: HashMap<Arc<str>, Arc<str>>,
}

impl<'a> CutOut<'a> {
    pub(super) fn new(connection: &'a Connection, tenant: &'a Tenant) -> CutOut<'a> {
        CutOut { connection, tenant, read: HashMap::new() }
    }

    /// The text as it was before something was cut out of it.
    pub(super) fn put_back(&mut self, text: String, cuts: Option<&str>) -> Result<String, String> {
        match cuts {
            Some(cuts) => fill(&text, cuts, |hash| self.blob(hash)),
            None => Ok(text),
        }
    }

    fn blob(&mut self, hash: &str) -> Result<Arc<str>, String> {
        if let Some(text) = self.read.get(hash) {
            return Ok(text.clone());
        }
        let bytes = blob(self.connection, self.tenant, hash).map_err(|error| format!("the blob {hash}: {error}"))?;
        let bytes = bytes.ok_or_else(|| format!("the blob {hash} is missing"))?;
        let text = String::from_utf8(bytes).ok().filter(|text| *blob_ref(text.as_bytes(), "").file_id == *hash);
        let text: Arc<str> = text.ok_or_else(|| format!("the blob {hash} has another content"))?.into();
        self.read.insert(hash.into(), text.clone());
        Ok(text)
    }
}

/// The bytes of a blob.
pub(super) fn blob(connection: &Connection, tenant: &Tenant, hash: &str) -> Result<Option<Vec<u8>>, rusqlite::Error> {
    let mut select = connection.prepare_cached("SELECT bytes FROM blobs WHERE tenant = ? AND hash = ?")?;
    select.query_row(params![tenant.as_str(), hash], |row| row.get(0)).optional()
}
