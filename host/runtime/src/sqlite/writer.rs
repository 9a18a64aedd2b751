//! The writer of the store. It runs on its own thread, or on the thread of a driver that waits for a commit.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Instant,
};

use flowcell_contract::{RunId, Tenant};
use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, params};

use super::{
    OnFailure, Visible,
    blobs::keep,
    compact::{compact, compact_if_worth},
    epoch::Epoch,
    erase::erase,
    large::{self, LargeFiles},
    queue::{Item, Queue, SweptRows},
    search, sessions, state,
    sweep::{REMOVED, remove, sweep},
    units::{OpenUnit, Row, text},
};
use crate::{
    ports::{Entry, RelabelError, Removed},
    rows::search::{ErrorColumns, wait_text},
};

/// The number of runs whose rows the writer remembers.
const MAX_REMEMBERED_RUNS: usize = 10_000;

/// The number of items for which the list keeps its capacity between two commits.
const MAX_KEPT_CAPACITY: usize = 1_000;

pub(super) struct Writer {
    connection: Connection,
    queue: Arc<Queue>,
    visible: Arc<Mutex<Visible>>,
    large: LargeFiles,
    on_failure: OnFailure,
    rows: Rows,
    /// The empty list of the last commit, whose capacity the next one uses.
    written: Vec<Item>,
    pub(super) epoch: Epoch,
}

/// The runs that the writer has appended to.
#[derive(Default)]
struct Rows {
    of: HashMap<RunKey, Kept>,
    /// The runs that have an open unit, in order.
    open: Vec<RunKey>,
}

/// The results of the items of a commit that answer with a result, in order.
#[derive(Default)]
struct Results {
    removed: Vec<Removed>,
    swept: Vec<SweptRows>,
    /// The large files whose rows the sweeps have removed.
    unnamed: Vec<(Tenant, String)>,
    erased: Vec<u64>,
    relabelled: Vec<Vec<Result<(), RelabelError>>>,
    /// The places of the refused entries among the items.
    refused: HashSet<usize>,
}

/// A run that the writer remembers.
struct Kept {
    row: Row,
    open: Option<OpenUnit>,
}

impl Writer {
    pub(super) fn new(
        connection: Connection,
        epoch: Epoch,
        queue: Arc<Queue>,
        (visible, large): (Arc<Mutex<Visible>>, LargeFiles),
        on_failure: OnFailure,
    ) -> Writer {
        Writer { connection, queue, visible, large, on_failure, rows: Rows::default(), written: Vec::new(), epoch }
    }

    /// Writes until the queue is closed, or a commit fails.
    pub(super) fn run(writer: &Mutex<Writer>, queue: &Queue) {
        while queue.wait() {
            writer.lock().write();
        }
    }

    /// Writes all queued items.
    pub(super) fn write(&mut self) {
        let mut items = self.queue.take(std::mem::take(&mut self.written));
        if items.is_empty() {
            return;
        }
        match self.commit(&items) {
            Ok(mut results) => {
                if let Some(last) = results.swept.last_mut() {
                    last.swept.file_bytes = compact_if_worth(&self.connection);
                }
                self.report_written(&items, results);
            }
            // The writer does not try again: a second attempt could succeed although pages of the first one are lost.
            Err(error) => {
                self.queue.abandon();
                (self.on_failure)(&error.into());
            }
        }
        items.clear();
        items.shrink_to(MAX_KEPT_CAPACITY);
        self.written = items;
    }

    /// Compacts the file. It is an error if there is not enough room; then nothing has changed.
    pub(super) fn compact(&self) -> Result<(), rusqlite::Error> {
        compact(&self.connection)
    }

    /// Writes all items, or none.
    fn commit(&mut self, items: &[Item]) -> Result<Results, rusqlite::Error> {
        if self.rows.of.len() > MAX_REMEMBERED_RUNS {
            self.rows.of.clear();
        }
        // The statement is prepared like all others: parsing it for each commit takes longer than appending a unit.
        self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute(())?;
        let written = self.write_items(items).and_then(|written| {
            self.connection.prepare_cached("COMMIT")?.execute(())?;
            Ok(written)
        });
        if written.is_err() {
            // The rollback fails if SQLite has already rolled back.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        let (results, counts) = written?;
        if counts {
            self.epoch.increment_durable();
        }
        self.queue.count_commit();
        Ok(results)
    }

    /// Writes within a transaction. Returns the results, and true if the transaction has incremented the epoch.
    fn write_items(&mut self, items: &[Item]) -> Result<(Results, bool), rusqlite::Error> {
        let connection = &self.connection;
        let mut results = Results::default();
        let erased = self.visible.lock().erased.clone();
        for (place, item) in items.iter().enumerate() {
            if matches!(item, Item::Sweep { .. } | Item::Remove { .. } | Item::Erase { .. }) {
                self.rows.close(connection)?;
            }
            match item {
                Item::Sweep { tenant, .. } => {
                    self.visible.lock().recent.age(Instant::now());
                    // Blobs that arrive meanwhile are written only after this sweep.
                    let spared = |hash: &str| self.visible.lock().recent.has(tenant, hash);
                    let mut swept = sweep(connection, tenant, spared)?;
                    let files = std::mem::take(&mut swept.files);
                    results.unnamed.extend(files.into_iter().map(|hash| (tenant.clone(), hash)));
                    results.swept.push(swept);
                }
                Item::Remove { tenant, runs, removing, .. } => {
                    results.removed.push(remove(connection, tenant, runs, *removing)?);
                    // A remembered row may be gone, and its number may be used again.
                    self.rows.of.clear();
                }
                Item::Erase { tenant, .. } => {
                    results.erased.push(erase(connection, tenant)?);
                    self.rows.of.clear();
                }
                // The rows of a removed tenant go away, and its runs with them.
                Item::Relabel { tenant, runs, change, .. } => {
                    let relabel = |run| search::relabel(connection, tenant, run, change);
                    results.relabelled.push(runs.iter().map(relabel).collect::<Result<_, _>>()?);
                }
                Item::Entry(entry) if erased.contains(&entry.tenant) => _ = results.refused.insert(place),
                Item::Blob { tenant, .. } | Item::Large { tenant, .. } if erased.contains(tenant) => {}
                Item::Entry(entry) => {
                    if !self.rows.write(connection, entry)? {
                        results.refused.insert(place);
                    }
                }
                Item::Blob { tenant, hash, bytes, mime } => keep(connection, tenant, hash, mime, bytes)?,
                Item::Large { tenant, hash, file, mime } => large::keep(connection, tenant, hash, mime, file)?,
                Item::Settle(_) => {}
            }
        }
        self.rows.close(connection)?;
        Ok((results, self.epoch.increment_if_due(connection)?))
    }

    /// Reports that the items are durable or refused, and drops their copies in memory.
    fn report_written(&self, items: &[Item], results: Results) {
        let mut visible = self.visible.lock();
        for item in items {
            match item {
                Item::Blob { tenant, hash, .. } => _ = visible.blobs.remove(&(tenant.clone(), hash.clone())),
                Item::Large { tenant, hash, .. } => _ = visible.large.remove(&(tenant.clone(), hash.clone())),
                Item::Entry(Entry { tenant, writes: Some(staged), .. }) => {
                    for (write, version) in &staged.writes {
                        let key = (tenant.clone(), staged.flow.to_string(), write.key.clone());
                        // A later write of the same key is not durable yet.
                        if visible.state.get(&key).is_some_and(|(_, latest)| latest == version) {
                            visible.state.remove(&key);
                        }
                    }
                }
                Item::Entry(_) | Item::Remove { .. } | Item::Sweep { .. } | Item::Erase { .. } => {}
                Item::Relabel { .. } | Item::Settle(_) => {}
            }
        }
        // A file that was put a short time ago has its name again, and its row follows.
        for (tenant, hash) in &results.unnamed {
            if !visible.recent.has(tenant, hash) {
                self.large.remove(tenant, hash);
            }
        }
        drop(visible);
        let (mut swept, mut erased) = (results.swept.into_iter(), results.erased.into_iter());
        let (mut relabelled, mut removed) = (results.relabelled.into_iter(), results.removed.into_iter());
        for (place, item) in items.iter().enumerate() {
            match item {
                Item::Entry(entry) if results.refused.contains(&place) => entry.durable.refuse(),
                Item::Entry(entry) => entry.durable.advance(entry.unit.next_seq()),
                // The caller may have disconnected.
                Item::Remove { answer, .. } => _ = removed.next().map(|removed| answer.send(removed)),
                Item::Sweep { answer, .. } => _ = swept.next().map(|swept| answer.send(swept)),
                Item::Erase { answer, .. } => _ = erased.next().map(|erased| answer.send(erased)),
                Item::Relabel { answer, .. } => _ = relabelled.next().map(|relabelled| answer.send(relabelled)),
                Item::Settle(answer) => _ = answer.send(()),
                Item::Blob { .. } | Item::Large { .. } => {}
            }
        }
    }
}

type RunKey = (Tenant, RunId);

impl Rows {
    /// Writes an entry. Returns false if the run was removed, or is new and repeats a removed run.
    fn write(&mut self, connection: &Connection, entry: &Entry) -> Result<bool, rusqlite::Error> {
        let (unit, key) = (&entry.unit, (entry.tenant.clone(), entry.run.clone()));
        let facts = unit.facts.len() as u64;
        let next = OpenUnit { first_seq: unit.first_seq, facts, ts: unit.ts, text: text(&unit.facts)? };
        let id = match self.of.get_mut(&key) {
            Some(kept) => {
                match &mut kept.open {
                    Some(open) if open.can_extend(&next) => open.extend(&next),
                    Some(open) => kept.row.write(connection, &key.0, std::mem::replace(open, next))?,
                    None => {
                        kept.open = Some(next);
                        self.open.push(key);
                    }
                }
                kept.row.id
            }
            None => {
                let Some(row) = row(connection, entry)? else { return Ok(false) };
                let id = row.id;
                self.of.insert(key.clone(), Kept { row, open: Some(next) });
                self.open.push(key);
                id
            }
        };
        if let Some(record) = entry.changed_record() {
            search::change_record(connection, id, record)?;
        }
        if let Some(status) = entry.status {
            let (name, due, attention) = status.columns();
            // A run that goes on after it was parked for a quota has no error any more.
            let sql = "UPDATE runs SET standing = ?, due = ?, attention = ?, error = NULL, updated = ?, next_seq = ?, error_words = ?
                WHERE id = ?";
            let values = params![name, due, attention, unit.ts, unit.next_seq(), wait_text(&unit.facts), id];
            connection.prepare_cached(sql)?.execute(values)?;
            if let Some(error) = ErrorColumns::of_facts(&unit.facts) {
                search::write_error(connection, id, &error)?;
            }
        }
        sessions::write(connection, entry)?;
        entry.writes.iter().try_for_each(|staged| state::write(connection, &entry.tenant, staged))?;
        Ok(true)
    }

    /// Writes the open units.
    fn close(&mut self, connection: &Connection) -> Result<(), rusqlite::Error> {
        for key in self.open.drain(..) {
            if let Some(kept) = self.of.get_mut(&key)
                && let Some(open) = kept.open.take()
            {
                kept.row.write(connection, &key.0, open)?;
            }
        }
        Ok(())
    }
}

/// Finds the row of a run, or inserts it with the run's first unit. Returns `None` if the run was removed, or is new and
/// repeats a removed run.
fn row(connection: &Connection, entry: &Entry) -> Result<Option<Row>, rusqlite::Error> {
    let (tenant, run) = (entry.tenant.as_str(), entry.run.as_str());
    if let Some(record) = entry.new_record() {
        if let Some(repeated) = &record.repeats
            && standing(connection, tenant, repeated.as_str())?.as_deref() == Some(REMOVED)
        {
            tracing::warn!(run = %entry.run, "the run does not begin: the run `{repeated}`, which it repeats, was removed");
            return Ok(None);
        }
        let text = text(record)?;
        let sql = "INSERT INTO runs (tenant, run, flow, depth, parent, record, standing, created, updated)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'active', ?7, ?7)";
        let parent = record.parent.as_ref().map(RunId::as_str);
        let values = params![tenant, run, &*record.flow, record.depth, parent, text, entry.unit.ts];
        let id = connection.prepare_cached(sql)?.insert(values)?;
        search::write_record(connection, id, &entry.tenant, entry.unit.ts, record)?;
        return Ok(Some(Row { id, tail: 0 }));
    }
    if standing(connection, tenant, run)?.is_none_or(|standing| standing == REMOVED) {
        tracing::warn!(%run, "the run was removed, so this process stops driving it");
        return Ok(None);
    }
    Row::find(connection, tenant, run).map(Some)
}

/// Returns the stored status of a run.
fn standing(connection: &Connection, tenant: &str, run: &str) -> Result<Option<String>, rusqlite::Error> {
    let sql = "SELECT standing FROM runs WHERE tenant = ? AND run = ?";
    connection.prepare_cached(sql)?.query_row(params![tenant, run], |row| row.get(0)).optional()
}
