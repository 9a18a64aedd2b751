//! The searched columns and labels of runs.

use std::sync::mpsc;

use flowcell_contract::{RunId, Tenant};
use rusqlite::{Connection, OptionalExtension, params};

use super::{SqliteStore, queue::Item, units::text};
use crate::{
    ports::{LabelChange, Record, RelabelError, StoreError},
    rows::search::{ErrorColumns, labels_text, parse_labels, retry_of, started_by},
};

/// Writes the searched columns of a new run's row, and its labels.
pub(super) fn write_record(
    connection: &Connection,
    id: i64,
    tenant: &Tenant,
    created: u64,
    record: &Record,
) -> Result<(), rusqlite::Error> {
    let repeats = retry_of(record);
    if record.version.is_none() && record.labels.is_empty() && record.trigger.is_none() && repeats.is_none() {
        return Ok(());
    }
    let sql = "UPDATE runs SET version = ?, labels = ?, started_by = ?, retry_of = ? WHERE id = ?";
    let values = params![record.version, labels_text(record), started_by(record), repeats, id];
    connection.prepare_cached(sql)?.execute(values)?;
    write_labels(connection, id, tenant, created, record)
}

fn write_labels(
    connection: &Connection,
    id: i64,
    tenant: &Tenant,
    created: u64,
    record: &Record,
) -> Result<(), rusqlite::Error> {
    let sql = "INSERT OR IGNORE INTO labels (tenant, name, value, created, run) VALUES (?, ?, ?, ?, ?)";
    let mut insert = connection.prepare_cached(sql)?;
    for (name, value) in &record.labels {
        insert.execute(params![tenant.as_str(), name, value, created, id])?;
    }
    Ok(())
}

/// Changes the record of a run that moves to another version of its flow. The labels stay as they are stored: they may
/// have changed since the driver read the record.
pub(super) fn change_record(connection: &Connection, id: i64, record: &Record) -> Result<(), rusqlite::Error> {
    let mut select = connection.prepare_cached("SELECT labels FROM runs WHERE id = ?")?;
    let record = Record { labels: parse_labels(select.query_row([id], |row| row.get(0))?), ..record.clone() };
    let sql = "UPDATE runs SET record = ?, version = ? WHERE id = ?";
    connection.prepare_cached(sql)?.execute(params![text(&record)?, record.version, id]).map(drop)
}

impl SqliteStore {
    /// Changes the labels of runs in one commit. Returns when it is on stable storage, with the result of each run.
    pub fn relabel(
        &self,
        tenant: &Tenant,
        runs: &[RunId],
        change: &LabelChange,
    ) -> Result<Vec<Result<(), RelabelError>>, StoreError> {
        let (answer, answered) = mpsc::channel();
        let (tenant, runs, change) = (tenant.clone(), runs.into(), change.clone());
        self.queue.push(Item::Relabel { tenant, runs, change, answer });
        answered.recv().map_err(|_| StoreError::unavailable("the store accepts no more writes"))
    }
}

/// Changes the labels of a run: its record, the column of its row, and the searched rows.
pub(super) fn relabel(
    connection: &Connection,
    tenant: &Tenant,
    run: &RunId,
    change: &LabelChange,
) -> Result<Result<(), RelabelError>, rusqlite::Error> {
    let mut select = connection.prepare_cached("SELECT id, created, record FROM runs WHERE tenant = ? AND run = ?")?;
    let columns = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let found = select.query_row(params![tenant.as_str(), run.as_str()], columns).optional()?;
    let (id, created, before): (i64, u64, String) = found.unwrap_or_default();
    let record = match change.of_record(run, &before) {
        Ok(record) => record,
        Err(error) => return Ok(Err(error)),
    };
    let sql = "UPDATE runs SET record = ?, labels = ? WHERE id = ?";
    connection.prepare_cached(sql)?.execute(params![text(&record)?, labels_text(&record), id])?;
    connection.prepare_cached("DELETE FROM labels WHERE run = ?")?.execute([id])?;
    write_labels(connection, id, tenant, created, &record)?;
    Ok(Ok(()))
}

/// Writes the searched columns of a failed run.
pub(super) fn write_error(connection: &Connection, id: i64, error: &ErrorColumns) -> Result<(), rusqlite::Error> {
    let sql = "UPDATE runs SET error = ?, failed_node = ?, error_words = ? WHERE id = ?";
    connection.prepare_cached(sql)?.execute(params![error.code, error.node, error.words, id]).map(drop)
}

/// Writes the first item that a parked run waits for.
pub(super) fn write_wait(connection: &Connection, id: i64, text: &str) -> Result<(), rusqlite::Error> {
    connection.prepare_cached("UPDATE runs SET error_words = ? WHERE id = ?")?.execute(params![text, id]).map(drop)
}

/// Removes the searched columns and labels of a removed run.
pub(super) fn forget(connection: &Connection, id: i64) -> Result<(), rusqlite::Error> {
    connection.prepare_cached("DELETE FROM labels WHERE run = ?")?.execute([id])?;
    let sql = "UPDATE runs SET version = NULL, labels = NULL, started_by = NULL, retry_of = NULL, error = NULL,
        failed_node = NULL, error_words = NULL WHERE id = ?";
    connection.prepare_cached(sql)?.execute([id]).map(drop)
}
