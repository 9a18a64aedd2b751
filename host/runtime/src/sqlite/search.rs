//! The searched columns and labels of runs.

use flowcell_contract::Tenant;
use rusqlite::{Connection, params};

use crate::{
    ports::Record,
    rows::search::{ErrorColumns, labels_text, retry_of, started_by},
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
    let sql = "INSERT OR IGNORE INTO labels (tenant, name, value, created, run) VALUES (?, ?, ?, ?, ?)";
    let mut insert = connection.prepare_cached(sql)?;
    for (name, value) in &record.labels {
        insert.execute(params![tenant.as_str(), name, value, created, id])?;
    }
    Ok(())
}

/// Changes the record of a run, and the columns that follow from it and can change. `text`: the record as JSON.
pub(super) fn change_record(
    connection: &Connection,
    id: i64,
    text: &str,
    record: &Record,
) -> Result<(), rusqlite::Error> {
    let sql = "UPDATE runs SET record = ?, version = ? WHERE id = ?";
    connection.prepare_cached(sql)?.execute(params![text, record.version, id]).map(drop)
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
