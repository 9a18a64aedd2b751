//! What writes: one at a time, in order. A thread of its own, or whoever waits for it and has nothing else to do.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Instant,
};

use flowcell_contract::{RunId, Tenant};
use rusqlite::{Connection, Transaction, TransactionBehavior, params};
use serde::Serialize;

use super::{
    OnFailure, Visible,
    cut::Pieces,
    lock,
    queue::{Item, Queue},
    sessions,
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
}

/// The row of a run, and where its journal ends.
#[derive(Clone, Copy)]
struct Row {
    id: i64,
    next_seq: u64,
    /// The checksum of the last unit.
    tail: u32,
}

impl Writer {
    pub(super) fn new(
        connection: Connection,
        queue: Arc<Queue>,
        visible: Arc<Mutex<Visible>>,
        on_failure: OnFailure,
    ) -> Writer {
        Writer { connection, queue, visible, on_failure, rows: HashMap::new() }
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
            }
        }
        write_units(&transaction, &mut self.rows, &mut open)?;
        note_ends(&transaction, &self.rows, items)?;
        transaction.commit()?;
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
                Item::Entry(_) | Item::Forget { .. } | Item::Sweep { .. } => {}
            }
        }
        drop(visible);
        let mut swept = swept.into_iter();
        for item in items {
            match item {
                Item::Entry(entry) => entry.durable.advance(entry.unit.next_seq()),
                // Whoever asked may have gone.
                Item::Sweep { told, .. } => _ = swept.next().map(|swept| told.send(swept)),
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
    let checksum = checksum(row.tail, unit.first_seq, unit.ts, &body.text, body.cuts.as_deref());
    let sql = "INSERT INTO units (run, first_seq, facts, ts, body, cuts, checksum) VALUES (?, ?, ?, ?, ?, ?, ?)";
    let values = params![row.id, unit.first_seq, unit.facts, unit.ts, body.text, body.cuts, checksum];
    transaction.prepare_cached(sql)?.execute(values)?;
    (row.next_seq, row.tail) = (unit.first_seq + unit.facts, checksum);
    Ok(())
}

/// Writes where the journals end now that were appended to, so that it is noticed if their ends are lost.
fn note_ends(
    transaction: &Transaction<'_>,
    rows: &HashMap<RunKey, Row>,
    items: &[Item],
) -> Result<(), rusqlite::Error> {
    let appended = |item: &Item| match item {
        Item::Entry(entry) => rows.get(&(entry.tenant.clone(), entry.run.clone())).map(|row| (row.id, *row)),
        Item::Forget { .. } | Item::Blob { .. } | Item::Sweep { .. } => None,
    };
    let ends: HashMap<i64, Row> = items.iter().filter_map(appended).collect();
    let mut update =
        transaction.prepare_cached("UPDATE runs SET next_seq = ?, tail = ? WHERE id = ? AND standing <> 'removed'")?;
    ends.values().try_for_each(|row| update.execute(params![row.next_seq, row.tail, row.id]).map(drop))
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

fn text(value: &impl Serialize) -> Result<String, rusqlite::Error> {
    serde_json::to_string(value).map_err(unwritable)
}

fn unwritable(error: serde_json::Error) -> rusqlite::Error {
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
        let sql = "INSERT INTO runs (tenant, run, flow, depth, parent, record, standing, next_seq, created, updated)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'active', 0, ?7, ?7)";
        let parent = record.parent.as_ref().map(RunId::as_str);
        let values = params![tenant, run, &*record.flow, record.depth, parent, text, entry.unit.ts];
        transaction.prepare_cached(sql)?.execute(values)?;
        return Ok(Row { id: transaction.last_insert_rowid(), next_seq: 0, tail: 0 });
    }
    let sql = "SELECT id, next_seq, tail FROM runs WHERE tenant = ? AND run = ?";
    let found = |row: &rusqlite::Row<'_>| Ok(Row { id: row.get(0)?, next_seq: row.get(1)?, tail: row.get(2)? });
    transaction.prepare_cached(sql)?.query_row(params![tenant, run], found)
}

/// Removes the facts of a run and of the runs below it. Of the run itself a tombstone is left, so that its id is not used
/// again.
fn forget(transaction: &Transaction<'_>, tenant: &Tenant, run: &RunId) -> Result<(), rusqlite::Error> {
    let below = "WITH RECURSIVE below (run) AS (VALUES (?2)
        UNION SELECT runs.run FROM runs JOIN below ON runs.parent = below.run WHERE runs.tenant = ?1)";
    let units = "DELETE FROM units WHERE run IN (SELECT id FROM runs WHERE tenant = ?1 AND run IN below)";
    let children = "DELETE FROM runs WHERE tenant = ?1 AND run IN below AND run <> ?2";
    let tombstone = "UPDATE runs SET standing = 'removed', record = '', due = NULL, next_seq = 0, tail = 0
        WHERE tenant = ?1 AND run = ?2";
    for sql in [&format!("{below} {units}"), &format!("{below} {children}"), tombstone] {
        transaction.execute(sql, params![tenant.as_str(), run.as_str()])?;
    }
    Ok(())
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
