//! The journals of runs in the embedded store.

use std::sync::Arc;

use flowcell_contract::{RunId, Tenant};
use rusqlite::{Connection, OptionalExtension, params};
use serde::Serialize;

use super::{
    Reader, SqliteStore,
    blobs::{CutOut, keep_values},
    queue::Item,
    reader::in_snapshot,
    runs, unit_index,
};
use crate::{
    limits::{MAX_INLINE_BYTES, MAX_READ_BYTES},
    ports::{Entry, Journal, Record, Runs, StoreError, Unit},
    rows::{UnitPosition, UnitRow, checksum, cut::ExternalizedRow, damaged},
};

/// The row of a run, and the end of its journal.
pub(super) struct Row {
    pub(super) id: i64,
    /// The checksum of the last unit.
    pub(super) tail: u32,
}

/// Units of a run that become one row, because they were decided in the same millisecond and are committed together.
pub(super) struct OpenUnit {
    pub(super) first_seq: u64,
    pub(super) facts: u64,
    pub(super) ts: u64,
    /// The facts as a JSON array.
    pub(super) text: String,
}

impl OpenUnit {
    /// Returns true if the next unit becomes part of the same row: it has the same time, and the texts together are
    /// smaller than [`MAX_INLINE_BYTES`].
    pub(super) fn can_extend(&self, next: &OpenUnit) -> bool {
        self.ts == next.ts && self.text.len() + next.text.len() < MAX_INLINE_BYTES
    }

    pub(super) fn extend(&mut self, next: &OpenUnit) {
        self.text.pop();
        self.text.push(',');
        self.text.push_str(&next.text[1..]);
        self.facts += next.facts;
    }
}

impl Row {
    /// Finds the row of a run. Fails if the run has none.
    pub(super) fn find(connection: &Connection, tenant: &str, run: &str) -> Result<Row, rusqlite::Error> {
        let sql = "SELECT id FROM runs WHERE tenant = ? AND run = ?";
        let id = connection.prepare_cached(sql)?.query_row(params![tenant, run], |row| row.get(0))?;
        Ok(Row { id, tail: unit_index::end_position(connection, id)?.unwrap_or_default().checksum })
    }

    /// Appends an open unit.
    pub(super) fn write(
        &mut self,
        connection: &Connection,
        tenant: &Tenant,
        unit: OpenUnit,
    ) -> Result<(), rusqlite::Error> {
        let body = ExternalizedRow::of_facts(unit.text).map_err(unwritable)?;
        keep_values(connection, tenant, &body)?;
        self.append(connection, unit.first_seq, unit.facts, unit.ts, &body)
    }

    /// Appends a unit at the end of the journal.
    pub(super) fn append(
        &mut self,
        connection: &Connection,
        first_seq: u64,
        facts: u64,
        ts: u64,
        body: &ExternalizedRow,
    ) -> Result<(), rusqlite::Error> {
        let checksum = checksum(self.tail, first_seq, ts, &body.text, body.cuts.as_deref());
        let sql = "INSERT INTO units (run, first_seq, facts, ts, checksum, body, cuts) VALUES (?, ?, ?, ?, ?, ?, ?)";
        let unit = params![self.id, first_seq, facts, ts, checksum, body.text, body.cuts];
        let place = connection.prepare_cached(sql)?.insert(unit)?;
        self.tail = checksum;
        unit_index::index_if_due(connection, place)
    }
}

pub(super) fn text(value: &(impl Serialize + ?Sized)) -> Result<String, rusqlite::Error> {
    serde_json::to_string(value).map_err(unwritable)
}

pub(super) fn unwritable(error: serde_json::Error) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(error.into())
}

/// The columns of a unit, in the order of [`unit_row`].
const COLUMNS: &str = "units.first_seq, facts, ts, body, cuts, checksum";

/// Reads the row of a unit.
fn unit_row(row: &rusqlite::Row<'_>) -> Result<UnitRow, rusqlite::Error> {
    Ok(UnitRow {
        first_seq: row.get(0)?,
        facts: row.get(1)?,
        ts: row.get(2)?,
        body: row.get(3)?,
        cuts: row.get(4)?,
        checksum: row.get(5)?,
    })
}

/// The units of one read.
struct Page<'a> {
    run: &'a RunId,
    at: UnitPosition,
    cut_out: CutOut<'a>,
    units: Vec<Arc<Unit>>,
    bytes: usize,
}

impl Page<'_> {
    fn is_full(&self, limit: usize) -> bool {
        self.units.len() >= limit || self.bytes >= MAX_READ_BYTES
    }

    fn add(&mut self, mut stored: UnitRow) -> Result<(), StoreError> {
        stored.check(self.at, self.run)?;
        self.at = stored.position_after();
        let body = self.cut_out.put_back(std::mem::take(&mut stored.body), stored.cuts.as_deref());
        let (unit, size) = stored.into_unit(body, self.run)?;
        self.bytes += size;
        self.units.push(Arc::new(unit));
        Ok(())
    }
}

/// Returns the row number of a run, and the smallest number that the run's next fact may have. If the units end before
/// this number, some units were lost. It is the greater one of two numbers: the end of the journal when the run last
/// parked or ended, and one more than the first fact of the last indexed unit.
fn end_of(connection: &Connection, tenant: &Tenant, run: &RunId) -> Result<Option<(i64, u64)>, StoreError> {
    let sql =
        "SELECT id, max(next_seq, (SELECT coalesce(max(first_seq) + 1, 0) FROM places WHERE places.run = runs.id))
        FROM runs WHERE tenant = ? AND run = ?";
    let mut select = connection.prepare_cached(sql)?;
    let found = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    Ok(select.query_row(params![tenant.as_str(), run.as_str()], found).optional()?)
}

/// Reads at most `limit` units of a run, from the unit that contains the fact `from`. The connection is in a
/// transaction.
pub(super) fn read(
    connection: &Connection,
    tenant: &Tenant,
    run: &RunId,
    from: u64,
    limit: usize,
) -> Result<Vec<Arc<Unit>>, StoreError> {
    let Some((id, least)) = end_of(connection, tenant, run)? else { return Ok(Vec::new()) };
    let late = unit_index::unindexed(connection, id)?;
    let before = unit_index::position_before(connection, id, &late, from)?;
    let mut page = Page { run, at: before, cut_out: CutOut::new(connection, tenant), units: Vec::new(), bytes: 0 };
    let sql = format!(
        "SELECT {COLUMNS} FROM places CROSS JOIN units USING (place) WHERE places.run = ? AND places.first_seq >= ?
        ORDER BY places.first_seq LIMIT ?"
    );
    let mut select = connection.prepare_cached(&sql)?;
    let mut rows = select.query(params![id, before.next_seq, limit as u64])?;
    while !page.is_full(limit)
        && let Some(row) = rows.next()?
    {
        page.add(unit_row(row)?)?;
    }
    let mut select = connection.prepare_cached(&format!("SELECT {COLUMNS} FROM units WHERE place = ?"))?;
    for late in late.iter().filter(|late| late.first_seq >= before.next_seq) {
        if page.is_full(limit) {
            break;
        }
        page.add(select.query_row([late.place], unit_row)?)?;
    }
    if !page.is_full(limit) {
        page.at.check_reaches(least, run)?;
    }
    Ok(page.units)
}

/// A reader is a journal that accepts no entries.
impl Journal for Reader {
    fn append(&self, _: Entry) {
        tracing::error!("this process may only read the store");
    }

    fn force(&self) {}

    fn left_below(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        let sql =
            "SELECT run FROM runs WHERE tenant = ? AND parent = ? AND standing IN ('active', 'parked') ORDER BY id";
        runs::ids(&self.0.lock(), sql, params![tenant.as_str(), run.as_str()])
    }

    fn children_of(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        Runs::children(self, tenant, run)
    }

    fn repeats_of(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        Runs::repeats(self, tenant, run)
    }

    fn find(&self, tenant: &Tenant, run: &RunId) -> Result<Option<Record>, StoreError> {
        let connection = self.0.lock();
        let sql = "SELECT record FROM runs WHERE tenant = ? AND run = ?";
        let mut select = connection.prepare_cached(sql)?;
        let text: Option<String> =
            select.query_row(params![tenant.as_str(), run.as_str()], |row| row.get(0)).optional()?;
        if text.as_deref() == Some("") {
            return Err(StoreError::removed(run));
        }
        let parse = |text: String| serde_json::from_str(&text).map_err(|error| damaged(run, &error));
        text.map(parse).transpose()
    }

    fn read(&self, tenant: &Tenant, run: &RunId, from: u64, limit: usize) -> Result<Vec<Arc<Unit>>, StoreError> {
        in_snapshot(&mut self.0.lock(), |connection| read(connection, tenant, run, from, limit))?
    }
}

impl Journal for SqliteStore {
    fn append(&self, entry: Entry) {
        self.queue.push(Item::Entry(entry));
    }

    fn force(&self) {
        self.queue.force();
    }

    fn force_here(&self) {
        match self.writer.try_lock() {
            Some(mut writer) => writer.write(),
            // The writer is busy, and looks for more items afterwards.
            None => self.queue.force(),
        }
    }

    fn left_below(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        self.reader.left_below(tenant, run)
    }

    fn children_of(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        self.reader.children_of(tenant, run)
    }

    fn repeats_of(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        self.reader.repeats_of(tenant, run)
    }

    fn find(&self, tenant: &Tenant, run: &RunId) -> Result<Option<Record>, StoreError> {
        self.reader.find(tenant, run)
    }

    fn read(&self, tenant: &Tenant, run: &RunId, from: u64, limit: usize) -> Result<Vec<Arc<Unit>>, StoreError> {
        self.reader.read(tenant, run, from, limit)
    }
}
