//! Rows as they were written: whether they are whole, and what they say with everything back that was cut out of them.

use std::{collections::HashMap, sync::Arc};

use flowcell_contract::{RunId, Tenant};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Deserialize;

use super::cut::fill;
use crate::{
    memory::blob_ref,
    ports::{StoreError, Unit},
};

/// A place between two units of a journal.
#[derive(Clone, Copy, Default, PartialEq)]
pub(super) struct Place {
    /// The number of the fact that comes next.
    pub(super) next_seq: u64,
    /// The checksum of the unit before.
    pub(super) checksum: u32,
}

impl Place {
    /// Checks that a journal of which nothing more is there ends here.
    pub(super) fn check_end(self, end: Place, run: &RunId) -> Result<(), StoreError> {
        if self == end {
            return Ok(());
        }
        let (here, end) = (self.next_seq, end.next_seq);
        Err(damaged(run, &format!("it should end before event {end}, and ends before event {here}")))
    }
}

/// The row of a unit, whose checksum is right.
pub(super) struct StoredUnit {
    first_seq: u64,
    facts: u64,
    ts: u64,
    body: String,
    cuts: Option<String>,
    checksum: u32,
}

impl StoredUnit {
    /// The columns that a unit is read from.
    pub(super) const COLUMNS: &str = "first_seq, facts, ts, body, cuts, checksum";

    /// Reads the row of a run that comes after a place.
    pub(super) fn read(row: &Row<'_>, before: Place, run: &RunId) -> Result<StoredUnit, StoreError> {
        let stored = StoredUnit {
            first_seq: row.get(0)?,
            facts: row.get(1)?,
            ts: row.get(2)?,
            body: row.get(3)?,
            cuts: row.get(4)?,
            checksum: row.get(5)?,
        };
        let expected = checksum(before.checksum, stored.first_seq, stored.ts, &stored.body, stored.cuts.as_deref());
        if expected != stored.checksum {
            return Err(damaged(run, &format!("the checksum at event {} is wrong", stored.first_seq)));
        }
        if stored.first_seq != before.next_seq {
            return Err(damaged(
                run,
                &format!("there is nothing between event {} and {}", before.next_seq, stored.first_seq),
            ));
        }
        Ok(stored)
    }

    /// The place after the unit.
    pub(super) fn place_after(&self) -> Place {
        Place { next_seq: self.first_seq + self.facts, checksum: self.checksum }
    }

    /// The unit, and how many bytes it has.
    pub(super) fn whole(self, cut_out: &mut CutOut<'_>, run: &RunId) -> Result<(Unit, usize), StoreError> {
        let body = cut_out.put_back(self.body, self.cuts.as_deref());
        let body = body.map_err(|why| damaged(run, &format!("at event {}: {why}", self.first_seq)))?;
        // A value may be nested as deep as JSON may be, and a fact holds it some levels further down.
        let mut reading = serde_json::Deserializer::from_str(&body);
        reading.disable_recursion_limit();
        let facts = Vec::deserialize(&mut reading).map_err(|error| damaged(run, &error))?;
        Ok((Unit { first_seq: self.first_seq, ts: self.ts, facts }, body.len()))
    }
}

/// Says that what is kept of a run is not what was written.
pub(super) fn damaged(run: &RunId, why: &dyn std::fmt::Display) -> StoreError {
    StoreError(format!("the journal of run `{run}` is damaged: {why}").into())
}

/// Covers a row and, through the checksum before, all rows before it.
pub(super) fn checksum(before: u32, first_seq: u64, ts: u64, body: &str, cuts: Option<&str>) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(before);
    hasher.update(&first_seq.to_le_bytes());
    hasher.update(&ts.to_le_bytes());
    hasher.update(body.as_bytes());
    hasher.update(cuts.unwrap_or_default().as_bytes());
    hasher.finalize()
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
