//! The searched columns and labels of runs in a shared store.

use std::collections::HashMap;

use flowcell_contract::{RunId, Tenant};

use super::{
    connection::{Arg, Connection, SqlError, args, placeholders},
    dialect::Dialect as Server,
    queue::Relabelled,
    values::{hash, text},
};
use crate::{
    ports::{LabelChange, Record},
    rows::{
        search::{ErrorColumns, labels_text, parse_labels, retry_of, started_by},
        select::{Dialect, Value},
    },
};

/// The statements of a server.
pub(super) fn dialect(server: Server) -> &'static Dialect {
    match server {
        Server::MySql => &MY_SQL,
        Server::Postgres => &POSTGRES,
    }
}

const MY_SQL: Dialect = Dialect {
    runs: "flowcell_runs",
    labels: "flowcell_labels",
    join: "STRAIGHT_JOIN",
    parent: "runs.parent = (SELECT id FROM flowcell_runs WHERE tenant = ? AND hash = ?)",
    run: "runs.tenant = ? AND runs.hash = ?",
    words: "LOCATE(?, runs.error_words) > 0",
    hint: |name| format!(" FORCE INDEX ({name})"),
    latest: ("flowcell_latest", "runs.depth = 0"),
    of_flow: ("flowcell_runs_flow", ""),
    of_status: |status| {
        let attention = if status.1 { " AND runs.attention = 1" } else { " AND runs.attention = 0" };
        Some(("flowcell_runs_standing", attention))
    },
    tops_are_listed: false,
    others: [
        "flowcell_runs_error",
        "flowcell_runs_node",
        "flowcell_runs_trigger",
        "flowcell_runs_retry",
        "flowcell_children",
    ],
};

const POSTGRES: Dialect = Dialect {
    join: "JOIN",
    words: "position(? IN runs.error_words) > 0",
    // The server chooses by its statistics.
    hint: |_| String::new(),
    ..MY_SQL
};

impl From<Value> for Arg {
    fn from(value: Value) -> Arg {
        match value {
            Value::Text(text) => text.into(),
            Value::Run(run) => hash(&run).into(),
            Value::Number(number) => i64::try_from(number).unwrap_or(i64::MAX).into(),
        }
    }
}

/// The searched columns of a record, in the order of [`record_values`].
pub(super) const RECORD_COLUMNS: &str = "version, labels, started_by, retry_of";

/// Returns the values of [`RECORD_COLUMNS`].
pub(super) fn record_values(record: &Record) -> Vec<Arg> {
    args![record.version.map(u64::from), labels_text(record), started_by(record), retry_of(record)]
}

/// Returns the rows of a run's labels.
fn label_rows(id: i64, tenant: &Tenant, created: u64, record: &Record) -> impl Iterator<Item = Vec<Arg>> {
    record.labels.iter().map(move |(name, value)| args![tenant.as_str(), name.as_str(), value.as_str(), created, id])
}

/// Inserts the labels of runs: of each the row number, the tenant, the time of the start and the record.
pub(super) async fn write_labels<'a>(
    connection: &mut Connection,
    runs: impl IntoIterator<Item = (i64, &'a Tenant, u64, &'a Record)>,
) -> Result<(), SqlError> {
    let labels = runs.into_iter().flat_map(|(id, tenant, created, record)| label_rows(id, tenant, created, record));
    let after = connection.dialect().or_leave("tenant, name, value, created, run");
    connection.insert("flowcell_labels (tenant, name, value, created, run)", labels.collect(), &after).await
}

/// Changes the record of a run that moves to another version of its flow. The labels stay as they are stored: they may
/// have changed since the driver read the record.
pub(super) async fn change_record(connection: &mut Connection, id: i64, record: &Record) -> Result<(), SqlError> {
    let sql = "SELECT labels FROM flowcell_runs WHERE id = ? FOR UPDATE";
    let row = connection.row(sql, args![id]).await?.ok_or(SqlError::Again)?;
    let record = Record { labels: parse_labels(row.maybe_text(0)?), ..record.clone() };
    let sql = "UPDATE flowcell_runs SET record = ?, version = ? WHERE id = ?";
    connection.run(sql, args![text(&record)?, record.version.map(u64::from), id]).await.map(drop)
}

/// Changes the labels of runs: their records, the columns of their rows, and the searched rows.
pub(super) async fn relabel(
    connection: &mut Connection,
    tenant: &Tenant,
    runs: &[RunId],
    change: &LabelChange,
) -> Result<Relabelled, SqlError> {
    // In the order in which commits lock rows.
    let sql = format!(
        "SELECT run, id, created, record FROM flowcell_runs WHERE tenant = ? AND hash IN ({}) ORDER BY id FOR UPDATE",
        placeholders(runs.len())
    );
    let hashes = runs.iter().map(|run| Arg::from(hash(run.as_str())));
    let rows = connection.rows(&sql, args![tenant.as_str()].into_iter().chain(hashes).collect()).await?;
    let mut stored = HashMap::new();
    for row in &rows {
        stored.insert(RunId::from(row.text(0)?), (row.int(1)?, row.number(2)?, row.text(3)?));
    }
    let (mut results, mut changed) = (Vec::new(), Vec::new());
    for run in runs {
        let (id, created, before) = stored.remove(run).unwrap_or_default();
        results.push(change.of_record(run, &before).map(|record| changed.push((id, created, record))));
    }
    for (id, _, record) in &changed {
        let sql = "UPDATE flowcell_runs SET record = ?, labels = ? WHERE id = ?";
        connection.run(sql, args![text(record)?, labels_text(record), *id]).await?;
    }
    if !changed.is_empty() {
        forget(connection, &changed.iter().map(|(id, ..)| *id).collect::<Vec<_>>()).await?;
        write_labels(connection, changed.iter().map(|(id, created, record)| (*id, tenant, *created, record))).await?;
    }
    Ok(results)
}

/// Writes the searched columns of a failed run.
pub(super) async fn write_error(connection: &mut Connection, id: i64, error: &ErrorColumns) -> Result<(), SqlError> {
    let sql = "UPDATE flowcell_runs SET error = ?, failed_node = ?, error_words = ? WHERE id = ?";
    let values = args![error.code.as_str(), error.node.clone(), error.words.as_str(), id];
    connection.run(sql, values).await.map(drop)
}

/// Writes the first item that a parked run waits for.
pub(super) async fn write_wait(connection: &mut Connection, id: i64, text: &str) -> Result<(), SqlError> {
    connection.run("UPDATE flowcell_runs SET error_words = ? WHERE id = ?", args![text, id]).await.map(drop)
}

/// Removes the labels of removed runs.
pub(super) async fn forget(connection: &mut Connection, ids: &[i64]) -> Result<(), SqlError> {
    let sql = format!("DELETE FROM flowcell_labels WHERE run IN ({})", placeholders(ids.len()));
    connection.run(&sql, ids.iter().map(|id| Arg::from(*id)).collect()).await.map(drop)
}
