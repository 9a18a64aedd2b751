//! Everything that is read: always of the durable prefix, beside whoever writes.

use std::{path::Path, sync::Arc};

use flowcell_contract::{BlobRef, Failure, RunId, Tenant, Value};
use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use super::{
    FILE, OpenStoreError, own, places, schema,
    stored::{self, CutOut},
};
use crate::{
    limits::READ_BYTES,
    memory::blob_ref,
    ports::{Blobs, Entry, Journal, Record, StoreError, Unit},
    rows::{Filter, Place, RunRow, Runs, UnitRow, damaged, removed},
};

/// Reads a store, its own or that of another process.
pub struct Reader(pub(super) Mutex<Connection>);

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> StoreError {
        StoreError(error.to_string().into())
    }
}

/// Why a value cannot be read.
pub(super) enum Unread {
    /// The database cannot be, and so nothing in it.
    Database(rusqlite::Error),
    /// This value is damaged.
    Value(StoreError),
}

impl From<rusqlite::Error> for Unread {
    fn from(error: rusqlite::Error) -> Unread {
        Unread::Database(error)
    }
}

impl Reader {
    /// Opens the store in a folder to read it, beside its owner if there is one. One that an older version has written is
    /// upgraded first, which needs that nobody owns it.
    pub fn open(folder: &Path) -> Result<Reader, OpenStoreError> {
        let file = folder.join(FILE);
        if !file.exists() {
            return Err(OpenStoreError::Missing(folder.to_owned()));
        }
        let unusable =
            |error: rusqlite::Error| OpenStoreError::Unusable { path: folder.to_owned(), error: error.to_string() };
        let connection = schema::connect_read_only(&file).map_err(unusable)?;
        let found: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(unusable)?;
        if found > schema::VERSION {
            return Err(OpenStoreError::Newer { path: folder.to_owned(), found, known: schema::VERSION });
        }
        if found < schema::VERSION {
            let _owner = own(folder)?;
            schema::connect(&file).and_then(|mut connection| schema::migrate(&mut connection)).map_err(unusable)?;
        }
        Ok(Reader(Mutex::new(connection)))
    }

    /// What is known of a run beside its facts.
    pub fn find(&self, tenant: &Tenant, run: &RunId) -> Result<Option<Record>, StoreError> {
        let connection = self.0.lock();
        let sql = "SELECT record FROM runs WHERE tenant = ? AND run = ?";
        let mut select = connection.prepare_cached(sql)?;
        let text: Option<String> =
            select.query_row(params![tenant.as_str(), run.as_str()], |row| row.get(0)).optional()?;
        if text.as_deref() == Some("") {
            return Err(removed(run));
        }
        let parse = |text: String| serde_json::from_str(&text).map_err(|error| damaged(run, &error));
        text.map(parse).transpose()
    }

    /// Units of a run, in order: from the one that holds the fact `from`, and at most `limit`.
    pub fn units(&self, tenant: &Tenant, run: &RunId, from: u64, limit: usize) -> Result<Vec<Arc<Unit>>, StoreError> {
        let mut connection = self.0.lock();
        // Rows and blobs as they were at one time, whatever is removed meanwhile.
        let transaction = connection.transaction()?;
        let Some((id, least)) = end_of(&transaction, tenant, run)? else { return Ok(Vec::new()) };
        let late = places::late(&transaction, id)?;
        let before = places::before(&transaction, id, &late, from)?;
        let mut page =
            Page { run, at: before, cut_out: CutOut::new(&transaction, tenant), units: Vec::new(), bytes: 0 };
        let sql = format!(
            "SELECT {} FROM places CROSS JOIN units USING (place) WHERE places.run = ? AND places.first_seq >= ?
            ORDER BY places.first_seq LIMIT ?",
            stored::COLUMNS
        );
        let mut select = transaction.prepare_cached(&sql)?;
        let mut rows = select.query(params![id, before.next_seq, limit as u64])?;
        while !page.is_full(limit)
            && let Some(row) = rows.next()?
        {
            page.add(stored::unit_row(row)?)?;
        }
        let mut select =
            transaction.prepare_cached(&format!("SELECT {} FROM units WHERE place = ?", stored::COLUMNS))?;
        for late in late.iter().filter(|late| late.first_seq >= before.next_seq) {
            if page.is_full(limit) {
                break;
            }
            page.add(select.query_row([late.place], stored::unit_row)?)?;
        }
        if !page.is_full(limit) {
            page.at.check_reaches(least, run)?;
        }
        Ok(page.units)
    }

    /// A run as lists have it, and the number that its next event gets.
    pub fn run(&self, tenant: &Tenant, run: &RunId) -> Result<Option<(RunRow, u64)>, StoreError> {
        let connection = self.0.lock();
        let sql = format!("SELECT {RUN_COLUMNS}, id FROM runs WHERE tenant = ? AND run = ?");
        let mut select = connection.prepare_cached(&sql)?;
        let found = |row: &Row<'_>| Ok((run_row(row)?, row.get("id")?));
        let found = select.query_row(params![tenant.as_str(), run.as_str()], found).optional()?;
        found.map(|(row, id)| Ok((row, places::end(&connection, id)?.map_or(0, |end| end.next_seq)))).transpose()
    }

    /// The runs that a run has called, in the order in which they began.
    pub fn children(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        let connection = self.0.lock();
        let sql = "SELECT run FROM runs WHERE tenant = ? AND parent = ? ORDER BY id";
        ids(&connection, sql, params![tenant.as_str(), run.as_str()])
    }

    /// The same, but only those that are not over.
    pub(super) fn left_below(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        let connection = self.0.lock();
        let sql =
            "SELECT run FROM runs WHERE tenant = ? AND parent = ? AND standing IN ('active', 'parked') ORDER BY id";
        ids(&connection, sql, params![tenant.as_str(), run.as_str()])
    }

    /// Runs that somebody outside has started, the latest first.
    pub fn runs(&self, tenant: &Tenant, filter: &Filter) -> Result<Vec<RunRow>, StoreError> {
        let connection = self.0.lock();
        let sql = format!(
            "SELECT {RUN_COLUMNS} FROM runs WHERE tenant = ?1 AND depth = 0 AND standing <> 'removed'
                AND (?2 IS NULL OR flow = ?2) AND (?3 IS NULL OR status = ?3)
                AND (?4 IS NULL OR (created, id) < (SELECT created, id FROM runs WHERE tenant = ?1 AND run = ?4))
            ORDER BY created DESC, id DESC LIMIT ?5"
        );
        let mut select = connection.prepare_cached(&sql)?;
        let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX);
        let after = filter.after.as_ref().map(RunId::as_str);
        let rows = select.query_map(params![tenant.as_str(), filter.flow, filter.status, after, limit], run_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Runs that somebody should drive: those that were active when their process ended, and parked ones with a timer that
    /// is due at `now`.
    pub fn runnable(&self, tenant: &Tenant, now: u64, limit: usize) -> Result<Vec<RunId>, StoreError> {
        let connection = self.0.lock();
        // Two questions, so that each is answered from its index and ends with the limit.
        let active = "SELECT run FROM runs WHERE tenant = ? AND depth = 0 AND standing = 'active' ORDER BY id LIMIT ?";
        let mut runs = ids(&connection, active, params![tenant.as_str(), limit as u64])?;
        let due = "SELECT run FROM runs WHERE tenant = ? AND depth = 0 AND standing = 'parked' AND due <= ?
            ORDER BY due LIMIT ?";
        runs.extend(ids(&connection, due, params![tenant.as_str(), now, (limit - runs.len()) as u64])?);
        Ok(runs)
    }

    /// How many runs that somebody outside has started are not over. It counts no further than `most`.
    pub fn live(&self, tenant: &Tenant, most: u64) -> Result<u64, StoreError> {
        let connection = self.0.lock();
        // Two questions, so that each is answered from its index and ends with the limit.
        let count = |standing: &str, most: u64| -> Result<u64, StoreError> {
            let sql = format!(
                "SELECT count(*) FROM (SELECT 1 FROM runs WHERE tenant = ? AND depth = 0 AND standing = '{standing}'
                LIMIT ?)"
            );
            Ok(connection.prepare_cached(&sql)?.query_row(params![tenant.as_str(), most], |row| row.get(0))?)
        };
        let active = count("active", most)?;
        Ok(active + count("parked", most - active)?)
    }

    /// Runs that somebody outside has started and that are over, in the order in which they ended.
    pub fn ended(
        &self,
        tenant: &Tenant,
        since: u64,
        after: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<RunRow>, StoreError> {
        let connection = self.0.lock();
        let sql = format!(
            "SELECT {RUN_COLUMNS} FROM runs WHERE tenant = ?1 AND depth = 0
                AND standing IN ('succeeded', 'failed', 'cancelled') AND updated >= ?2
                AND (?3 IS NULL OR (updated, id) > (SELECT updated, id FROM runs WHERE tenant = ?1 AND run = ?3))
            ORDER BY updated, id LIMIT ?4"
        );
        let mut select = connection.prepare_cached(&sql)?;
        let rows =
            select.query_map(params![tenant.as_str(), since, after.map(RunId::as_str), limit as u64], run_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Runs that are over, and ended before a time or are not among the `keep` that ended last.
    pub fn removable(&self, tenant: &Tenant, before: Option<u64>, keep: Option<u64>) -> Result<Vec<RunId>, StoreError> {
        let connection = self.0.lock();
        let sql = "SELECT run FROM (SELECT run, updated, row_number() OVER (ORDER BY updated DESC, id DESC) AS place
                FROM runs WHERE tenant = ?1 AND depth = 0 AND standing IN ('succeeded', 'failed', 'cancelled'))
            WHERE updated < ?2 OR place > ?3 ORDER BY updated";
        ids(&connection, sql, params![tenant.as_str(), before, keep])
    }

    /// When the next timer of a parked run is due.
    pub fn next_due(&self, tenant: &Tenant) -> Result<Option<u64>, StoreError> {
        let connection = self.0.lock();
        let sql =
            "SELECT min(due) FROM runs WHERE tenant = ? AND depth = 0 AND standing = 'parked' AND due IS NOT NULL";
        Ok(connection.prepare_cached(sql)?.query_row(params![tenant.as_str()], |row| row.get(0))?)
    }

    pub(super) fn state(&self, tenant: &Tenant, flow: &str, key: &str) -> Result<Option<(Value, u64)>, Unread> {
        let mut connection = self.0.lock();
        let transaction = connection.transaction()?;
        let sql = "SELECT value, cuts, version FROM state WHERE tenant = ? AND flow = ? AND key = ?";
        let mut select = transaction.prepare_cached(sql)?;
        let entry = |row: &Row<'_>| Ok((row.get(0)?, row.get::<_, Option<String>>(1)?, row.get(2)?));
        let found = select.query_row(params![tenant.as_str(), flow, key], entry).optional()?;
        let Some((text, cuts, version)) = found else { return Ok(None) };
        let damaged =
            |why| Unread::Value(StoreError(format!("the state `{key}` of the flow `{flow}` is damaged: {why}").into()));
        let text = CutOut::new(&transaction, tenant).put_back(text, cuts.as_deref()).map_err(damaged)?;
        let value = Value::restore(text).map_err(|error| damaged(format!("it is not JSON: {error}")))?;
        Ok(Some((value, version)))
    }

    pub(super) fn blob(&self, tenant: &Tenant, hash: &str) -> Result<Option<Arc<[u8]>>, StoreError> {
        Ok(stored::blob(&self.0.lock(), tenant, hash)?.map(Arc::from))
    }
}

/// A reader is a journal that takes nothing in.
impl Journal for Reader {
    fn append(&self, _: Entry) {
        tracing::error!("a store that is only read was written to");
    }

    fn force(&self) {}

    fn left_below(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        Reader::left_below(self, tenant, run)
    }

    fn children_of(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        Reader::children(self, tenant, run)
    }

    fn find(&self, tenant: &Tenant, run: &RunId) -> Result<Option<Record>, StoreError> {
        Reader::find(self, tenant, run)
    }

    fn read(&self, tenant: &Tenant, run: &RunId, from: u64, limit: usize) -> Result<Vec<Arc<Unit>>, StoreError> {
        self.units(tenant, run, from, limit)
    }
}

impl Runs for Reader {
    fn run(&self, tenant: &Tenant, run: &RunId) -> Result<Option<(RunRow, u64)>, StoreError> {
        Reader::run(self, tenant, run)
    }

    fn children(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        Reader::children(self, tenant, run)
    }

    fn runs(&self, tenant: &Tenant, filter: &Filter) -> Result<Vec<RunRow>, StoreError> {
        Reader::runs(self, tenant, filter)
    }

    fn live(&self, tenant: &Tenant, most: u64) -> Result<u64, StoreError> {
        Reader::live(self, tenant, most)
    }

    fn ended(
        &self,
        tenant: &Tenant,
        since: u64,
        after: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<RunRow>, StoreError> {
        Reader::ended(self, tenant, since, after, limit)
    }

    fn removable(&self, tenant: &Tenant, before: Option<u64>, keep: Option<u64>) -> Result<Vec<RunId>, StoreError> {
        Reader::removable(self, tenant, before, keep)
    }

    fn runnable(&self, tenant: &Tenant, now: u64, limit: usize) -> Result<Vec<RunId>, StoreError> {
        Reader::runnable(self, tenant, now, limit)
    }

    fn next_due(&self, tenant: &Tenant) -> Result<Option<u64>, StoreError> {
        Reader::next_due(self, tenant)
    }
}

/// A reader keeps no bytes that it is given.
impl Blobs for Reader {
    fn put(&self, _: &Tenant, bytes: Arc<[u8]>, mime: &str) -> BlobRef {
        blob_ref(&bytes, mime)
    }

    fn get(&self, tenant: &Tenant, blob: &BlobRef) -> Result<Option<Arc<[u8]>>, Failure> {
        Ok(self.blob(tenant, &blob.file_id)?)
    }
}

/// Units that are read together.
struct Page<'a> {
    run: &'a RunId,
    at: Place,
    cut_out: CutOut<'a>,
    units: Vec<Arc<Unit>>,
    bytes: usize,
}

impl Page<'_> {
    fn is_full(&self, limit: usize) -> bool {
        self.units.len() >= limit || self.bytes >= READ_BYTES
    }

    fn add(&mut self, mut stored: UnitRow) -> Result<(), StoreError> {
        stored.check(self.at, self.run)?;
        self.at = stored.place_after();
        let body = self.cut_out.put_back(std::mem::take(&mut stored.body), stored.cuts.as_deref());
        let (unit, size) = stored.whole(body, self.run)?;
        self.bytes += size;
        self.units.push(Arc::new(unit));
        Ok(())
    }
}

/// The row of a run, and what its journal reaches if nothing was lost: where it ended when the run parked or was over, and
/// beyond what is noted.
fn end_of(connection: &Connection, tenant: &Tenant, run: &RunId) -> Result<Option<(i64, u64)>, StoreError> {
    let sql =
        "SELECT id, max(next_seq, (SELECT coalesce(max(first_seq) + 1, 0) FROM places WHERE places.run = runs.id))
        FROM runs WHERE tenant = ? AND run = ?";
    let mut select = connection.prepare_cached(sql)?;
    let found = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
    Ok(select.query_row(params![tenant.as_str(), run.as_str()], found).optional()?)
}

/// The ids that a question is answered with.
fn ids(connection: &Connection, sql: &str, params: impl Params) -> Result<Vec<RunId>, StoreError> {
    let mut select = connection.prepare_cached(sql)?;
    let rows = select.query_map(params, |row| row.get::<_, String>(0))?;
    rows.map(|row| Ok(RunId::from(row?))).collect()
}

/// The columns that the row of a list is made from.
const RUN_COLUMNS: &str =
    "run, flow, iif(standing = 'parked' AND attention, 'needs_attention', standing) AS status, created, updated, due";

fn run_row(row: &Row<'_>) -> rusqlite::Result<RunRow> {
    Ok(RunRow {
        run_id: RunId::from(row.get::<_, String>(0)?),
        flow: row.get(1)?,
        status: row.get(2)?,
        created: row.get(3)?,
        updated: row.get(4)?,
        due: row.get(5)?,
    })
}
