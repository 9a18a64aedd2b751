//! What writes: one at a time, in order. A thread of its own, or whoever waits for it and has nothing else to do.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Instant,
};

use flowcell_contract::{RunId, Tenant};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use serde::Serialize;

use super::{
    OnFailure, Visible,
    cut::Pieces,
    epoch::Epoch,
    lock,
    queue::{Item, Queue},
    schema, sessions,
    stored::checksum,
    sweep::{Swept, sweep},
};
use crate::{
    limits::INLINE_BYTES,
    ports::{Entry, Staged, Standing, StoreError},
    result::RunStatus,
};

/// Runs whose rows the writer remembers.
const REMEMBERED: usize = 10_000;

/// The media type of what is cut out of rows.
pub(super) const MIME: &str = "application/json";

pub(super) struct Writer {
    connection: Connection,
    queue: Arc<Queue>,
    visible: Arc<Mutex<Visible>>,
    on_failure: OnFailure,
    /// The rows of runs that were written to.
    rows: HashMap<RunKey, Row>,
    pub(super) epoch: Epoch,
}

/// The row of a run, and where its journal ends.
#[derive(Clone, Copy)]
pub(super) struct Row {
    id: i64,
    /// Where the last unit is; none: there is no unit yet.
    last: Option<i64>,
    /// The checksum of the last unit.
    tail: u32,
}

impl Writer {
    pub(super) fn new(
        connection: Connection,
        epoch: Epoch,
        queue: Arc<Queue>,
        visible: Arc<Mutex<Visible>>,
        on_failure: OnFailure,
    ) -> Writer {
        Writer { connection, queue, visible, on_failure, rows: HashMap::new(), epoch }
    }

    /// Writes until the queue is closed, or a commit fails.
    pub(super) fn run(writer: &Mutex<Writer>, queue: &Queue) {
        while queue.wait() {
            lock(writer).write();
        }
    }

    /// Writes all that is queued.
    pub(super) fn write(&mut self) {
        let items = self.queue.take();
        if items.is_empty() {
            return;
        }
        match self.commit(&items) {
            Ok(swept) => self.tell(&items, swept),
            // A second try could succeed without the first one's pages being there.
            Err(error) => {
                self.queue.abandon();
                (self.on_failure)(&StoreError(error.to_string().into()));
            }
        }
    }

    /// Writes all, or nothing. Answers what was swept, in order.
    fn commit(&mut self, items: &[Item]) -> Result<Vec<Swept>, rusqlite::Error> {
        if self.rows.len() > REMEMBERED {
            self.rows.clear();
        }
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut swept = Vec::new();
        let mut open = HashMap::new();
        for item in items {
            if matches!(item, Item::Sweep { .. } | Item::Forget { .. }) {
                write_units(&transaction, &mut self.rows, &mut open)?;
            }
            match item {
                Item::Sweep { tenant, .. } => {
                    lock(&self.visible).recent.age(Instant::now());
                    // What is put meanwhile is written after this.
                    let spared = |hash: &str| lock(&self.visible).recent.has(tenant, hash);
                    swept.push(sweep(&transaction, tenant, spared)?);
                }
                Item::Forget { tenant, run } => forget(&transaction, tenant, run)?,
                Item::Entry(entry) => write(&transaction, &mut self.rows, &mut open, entry)?,
                Item::Blob { tenant, hash, bytes, mime } => keep(&transaction, tenant, hash, mime, bytes)?,
                Item::Settle(_) => {}
            }
        }
        write_units(&transaction, &mut self.rows, &mut open)?;
        let counts = self.epoch.pass(&transaction)?;
        transaction.commit()?;
        if counts {
            self.epoch.counted();
        }
        self.queue.committed();
        Ok(swept)
    }

    /// What is durable needs no other place any more, and whoever waits for it goes on.
    fn tell(&self, items: &[Item], swept: Vec<Swept>) {
        let mut visible = lock(&self.visible);
        for item in items {
            match item {
                Item::Blob { tenant, hash, .. } => _ = visible.blobs.remove(&(tenant.clone(), hash.clone())),
                Item::Entry(Entry { tenant, writes: Some(staged), .. }) => {
                    for (write, version) in &staged.writes {
                        let key = (tenant.clone(), staged.flow.to_string(), write.key.clone());
                        // A later write of the same key is not durable yet.
                        if visible.state.get(&key).is_some_and(|(_, latest)| latest == version) {
                            visible.state.remove(&key);
                        }
                    }
                }
                Item::Entry(_) | Item::Forget { .. } | Item::Sweep { .. } | Item::Settle(_) => {}
            }
        }
        drop(visible);
        let mut swept = swept.into_iter();
        for item in items {
            match item {
                Item::Entry(entry) => entry.durable.advance(entry.unit.next_seq()),
                // Whoever asked may have gone.
                Item::Sweep { told, .. } => _ = swept.next().map(|swept| told.send(swept)),
                Item::Settle(told) => _ = told.send(()),
                Item::Blob { .. } | Item::Forget { .. } => {}
            }
        }
    }
}

/// Units of a run that become one row, since they were decided in the same millisecond and are committed together.
struct OpenUnit {
    first_seq: u64,
    facts: u64,
    ts: u64,
    /// The facts as a JSON array.
    text: String,
}

type RunKey = (Tenant, RunId);

fn write(
    transaction: &Transaction<'_>,
    rows: &mut HashMap<RunKey, Row>,
    open: &mut HashMap<RunKey, OpenUnit>,
    entry: &Entry,
) -> Result<(), rusqlite::Error> {
    let key = (entry.tenant.clone(), entry.run.clone());
    let id = match rows.get(&key) {
        Some(row) => row.id,
        None => {
            let row = row(transaction, entry)?;
            rows.insert(key.clone(), row);
            row.id
        }
    };
    let unit = &entry.unit;
    let facts = text(&unit.facts)?;
    let next = OpenUnit { first_seq: unit.first_seq, facts: unit.facts.len() as u64, ts: unit.ts, text: facts };
    match open.get_mut(&key) {
        Some(open) if open.ts == unit.ts && open.text.len() + next.text.len() < INLINE_BYTES => open.extend(&next),
        Some(open) => write_unit(transaction, rows, &key, std::mem::replace(open, next))?,
        None => _ = open.insert(key, next),
    }
    if let Some(standing) = entry.standing {
        let (name, due) = describe(standing);
        let attention = matches!(standing, Standing::Parked { needs_attention: true, .. });
        let sql = "UPDATE runs SET standing = ?, due = ?, attention = ?, updated = ? WHERE id = ?";
        transaction.prepare_cached(sql)?.execute(params![name, due, attention, unit.ts, id])?;
    }
    sessions::write(transaction, entry)?;
    entry.writes.iter().try_for_each(|staged| write_state(transaction, &entry.tenant, staged))
}

impl OpenUnit {
    fn extend(&mut self, next: &OpenUnit) {
        self.text.pop();
        self.text.push(',');
        self.text.push_str(&next.text[1..]);
        self.facts += next.facts;
    }
}

fn write_units(
    transaction: &Transaction<'_>,
    rows: &mut HashMap<RunKey, Row>,
    open: &mut HashMap<RunKey, OpenUnit>,
) -> Result<(), rusqlite::Error> {
    open.drain().try_for_each(|(key, unit)| write_unit(transaction, rows, &key, unit))
}

fn write_unit(
    transaction: &Transaction<'_>,
    rows: &mut HashMap<RunKey, Row>,
    key: &RunKey,
    unit: OpenUnit,
) -> Result<(), rusqlite::Error> {
    let Some(row) = rows.get_mut(key) else { return Ok(()) };
    let body = Pieces::of_facts(unit.text).map_err(unwritable)?;
    keep_blobs(transaction, &key.0, &body)?;
    row.append(transaction, unit.first_seq, unit.facts, unit.ts, &body)
}

impl Row {
    /// Finds the row of a run that has one.
    pub(super) fn find(transaction: &Transaction<'_>, tenant: &str, run: &str) -> Result<Row, rusqlite::Error> {
        let sql = "SELECT id FROM runs WHERE tenant = ? AND run = ?";
        let id = transaction.prepare_cached(sql)?.query_row(params![tenant, run], |row| row.get(0))?;
        let places = schema::places(id, 0);
        let sql = "SELECT place, checksum FROM units WHERE place BETWEEN ? AND ? ORDER BY place DESC LIMIT 1";
        let found = |row: &rusqlite::Row<'_>| Ok(Row { id, last: row.get(0)?, tail: row.get(1)? });
        let last = transaction.prepare_cached(sql)?.query_row([places.start(), places.end()], found).optional()?;
        Ok(last.unwrap_or(Row { id, last: None, tail: 0 }))
    }

    /// Appends a unit, which from now on is the last.
    pub(super) fn append(
        &mut self,
        transaction: &Transaction<'_>,
        first_seq: u64,
        facts: u64,
        ts: u64,
        body: &Pieces,
    ) -> Result<(), rusqlite::Error> {
        let checksum = checksum(self.tail, first_seq, ts, &body.text, body.cuts.as_deref());
        if let Some(last) = self.last {
            transaction.prepare_cached("UPDATE units SET at_end = 0 WHERE place = ?")?.execute([last])?;
        }
        let place = schema::place(self.id, first_seq);
        let sql = "INSERT INTO units (place, facts, at_end, ts, checksum, body, cuts) VALUES (?, ?, 1, ?, ?, ?, ?)";
        transaction.prepare_cached(sql)?.execute(params![place, facts, ts, checksum, body.text, body.cuts])?;
        (self.last, self.tail) = (Some(place), checksum);
        Ok(())
    }
}

fn write_state(transaction: &Transaction<'_>, tenant: &Tenant, staged: &Staged) -> Result<(), rusqlite::Error> {
    for (write, version) in &staged.writes {
        let value = Pieces::of_value(text(&write.value)?).map_err(unwritable)?;
        keep_blobs(transaction, tenant, &value)?;
        let sql = "INSERT INTO state (tenant, flow, key, value, cuts, version) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
            ON CONFLICT DO UPDATE SET value = ?4, cuts = ?5, version = ?6";
        let values = params![tenant.as_str(), &*staged.flow, write.key, value.text, value.cuts, version];
        transaction.prepare_cached(sql)?.execute(values)?;
    }
    Ok(())
}

pub(super) fn text(value: &(impl Serialize + ?Sized)) -> Result<String, rusqlite::Error> {
    serde_json::to_string(value).map_err(unwritable)
}

pub(super) fn unwritable(error: serde_json::Error) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(error.into())
}

/// Keeps what was cut out of a row, before the row.
fn keep_blobs(transaction: &Transaction<'_>, tenant: &Tenant, pieces: &Pieces) -> Result<(), rusqlite::Error> {
    pieces.blobs.iter().try_for_each(|(hash, text)| keep(transaction, tenant, hash, MIME, text.as_bytes()))
}

/// Keeps bytes, if the tenant does not have them.
fn keep(
    transaction: &Transaction<'_>,
    tenant: &Tenant,
    hash: &str,
    mime: &str,
    bytes: &[u8],
) -> Result<(), rusqlite::Error> {
    // To ask first is cheaper than to hand over bytes that are there.
    let sql = "SELECT 1 FROM blobs WHERE tenant = ? AND hash = ?";
    if transaction.prepare_cached(sql)?.exists(params![tenant.as_str(), hash])? {
        return Ok(());
    }
    let sql = "INSERT INTO blobs (tenant, hash, mime, bytes) VALUES (?, ?, ?, ?)";
    transaction.prepare_cached(sql)?.execute(params![tenant.as_str(), hash, mime, bytes])?;
    Ok(())
}

/// Finds the row of a run, or makes it with the run's first unit.
fn row(transaction: &Transaction<'_>, entry: &Entry) -> Result<Row, rusqlite::Error> {
    let (tenant, run) = (entry.tenant.as_str(), entry.run.as_str());
    if let Some(record) = &entry.record {
        let text = text(record)?;
        let sql = "INSERT INTO runs (tenant, run, flow, depth, parent, record, standing, created, updated)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'active', ?7, ?7)";
        let parent = record.parent.as_ref().map(RunId::as_str);
        let values = params![tenant, run, &*record.flow, record.depth, parent, text, entry.unit.ts];
        transaction.prepare_cached(sql)?.execute(values)?;
        return Ok(Row { id: transaction.last_insert_rowid(), last: None, tail: 0 });
    }
    Row::find(transaction, tenant, run)
}

/// Removes the facts of a run and of the runs below it. Of the run itself a tombstone is left, so that its id is not used
/// again.
fn forget(transaction: &Transaction<'_>, tenant: &Tenant, run: &RunId) -> Result<(), rusqlite::Error> {
    let below = "WITH RECURSIVE below (run) AS (VALUES (?2)
        UNION SELECT runs.run FROM runs JOIN below ON runs.parent = below.run WHERE runs.tenant = ?1)";
    let run = params![tenant.as_str(), run.as_str()];
    let mut select = transaction.prepare(&format!("{below} SELECT id FROM runs WHERE tenant = ?1 AND run IN below"))?;
    for id in select.query_map(run, |row| row.get(0))? {
        let places = schema::places(id?, 0);
        transaction.execute("DELETE FROM units WHERE place BETWEEN ? AND ?", [places.start(), places.end()])?;
    }
    let children = "DELETE FROM runs WHERE tenant = ?1 AND run IN below AND run <> ?2";
    transaction.execute(&format!("{below} {children}"), run)?;
    let tombstone = "UPDATE runs SET standing = 'removed', record = '', due = NULL WHERE tenant = ?1 AND run = ?2";
    transaction.execute(tombstone, run).map(drop)
}

fn describe(standing: Standing) -> (&'static str, Option<u64>) {
    match standing {
        Standing::Parked { due, .. } => ("parked", due),
        Standing::Ended(RunStatus::Succeeded) => ("succeeded", None),
        Standing::Ended(RunStatus::Failed) => ("failed", None),
        Standing::Ended(RunStatus::Cancelled) => ("cancelled", None),
        Standing::Active | Standing::Ended(_) => ("active", None),
    }
}
