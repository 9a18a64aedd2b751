//! Rows of runs whose journals are in another store: for lists, searches and labels.
//!
//! The other store has the truth, and its processes write a row after each change of a run's status. Several of them may
//! write the row of one run. So a row names the number of its last fact, and replaces only a row of an earlier fact.
//! Rows need no claims, and have no units.

use super::{
    OpenSharedStoreError,
    connection::{Arg, Connection, SqlError, args},
    indexed::{IndexedRun, Journals, StatusNote},
    queue::Item,
    remove::REMOVED,
    search::{self, RECORD_COLUMNS, record_values},
    values::{hash, text},
};

/// The document that shows that the journals are elsewhere: its tenant, kind and name.
const MARK: [&str; 3] = ["", "journals", "elsewhere"];

/// Checks the place of the journals with which the store is opened, and remembers it.
pub(super) async fn claim_journals(
    connection: &mut Connection,
    journals: Journals,
) -> Result<(), OpenSharedStoreError> {
    let sql = "SELECT version FROM flowcell_registry WHERE tenant = ? AND kind = ? AND name = ?";
    let is_marked = connection.row(sql, args![MARK[0], MARK[1], MARK[2]]).await?.is_some();
    match journals {
        Journals::Here if is_marked => Err(OpenSharedStoreError::Refused(
            "the events of its runs are in another store; use the URL of that store, such as `restate://…`".into(),
        )),
        Journals::Elsewhere if !is_marked => {
            if connection.row("SELECT id FROM flowcell_runs LIMIT 1", args![]).await?.is_some() {
                let why = "the database has runs with their events; name an empty database, such as a new one";
                return Err(OpenSharedStoreError::Refused(why.into()));
            }
            let after = connection.dialect().or_leave("tenant, kind, name");
            let row = args![MARK[0], MARK[1], MARK[2], "true", 1_i64];
            connection.insert("flowcell_registry (tenant, kind, name, value, version)", vec![row], &after).await?;
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Writes the queued rows, in order.
pub(super) async fn write(connection: &mut Connection, items: &[Item]) -> Result<(), SqlError> {
    for item in items {
        if let Item::Index(run) = item {
            write_row(connection, run).await?;
        }
    }
    Ok(())
}

async fn write_row(connection: &mut Connection, run: &IndexedRun) -> Result<(), SqlError> {
    let stored = match find(connection, run).await? {
        Some(stored) => Some(stored),
        None if insert(connection, run).await? => return Ok(()),
        // Another process has inserted the row meanwhile, or the tree was removed.
        None => find(connection, run).await?,
    };
    let Some((id, next_seq)) = stored.filter(|(_, next_seq)| *next_seq < run.next_seq) else { return Ok(()) };
    if run.record_seq > next_seq {
        search::change_record(connection, id, &run.record).await?;
    }
    let (name, due, attention) = run.status.columns();
    let StatusNote { ts, error, node, words } = run.note.clone();
    let sql = "UPDATE flowcell_runs SET standing = ?, due = ?, attention = ?, updated = ?, error = ?, failed_node = ?,
        error_words = ?, next_seq = ? WHERE id = ? AND standing <> 'removed'";
    let values = args![Arg::Word(name), due, i64::from(attention), ts, error, node, words, run.next_seq, id];
    connection.run(sql, values).await.map(drop)
}

/// Locks the row of a run. Returns its number, and the number of the fact after its last change. A removed run has none
/// that a later change could follow.
async fn find(connection: &mut Connection, run: &IndexedRun) -> Result<Option<(i64, u64)>, SqlError> {
    let sql = "SELECT id, next_seq, standing FROM flowcell_runs WHERE tenant = ? AND hash = ? FOR UPDATE";
    let row = connection.row(sql, args![run.tenant.as_str(), hash(run.run.as_str())]).await?;
    row.map(|row| {
        let next_seq = if row.text(2)? == REMOVED { u64::MAX } else { row.number(1)? };
        Ok((row.int(0)?, next_seq))
    })
    .transpose()
}

/// Inserts the row of a run. Returns false if there is one, or if the run above it was removed or has no row.
async fn insert(connection: &mut Connection, run: &IndexedRun) -> Result<bool, SqlError> {
    let (mut parent, mut top) = (None, None);
    if let Some(above) = &run.record.parent {
        let sql = "SELECT id, top, standing FROM flowcell_runs WHERE tenant = ? AND hash = ?";
        let row = connection.row(sql, args![run.tenant.as_str(), hash(above.as_str())]).await?;
        let Some(row) = row else {
            tracing::warn!(run = %run.run, "lists do not show the run: the run `{above}` above it has no row");
            return Ok(false);
        };
        if row.text(2)? == REMOVED {
            return Ok(false);
        }
        let id = row.int(0)?;
        parent = Some(id);
        top = Some(row.maybe_number(1)?.map_or(id, |top| top as i64));
    }
    let (name, due, attention) = run.status.columns();
    let StatusNote { ts, error, node, words } = run.note.clone();
    let mut row = args![
        run.tenant.as_str(),
        hash(run.run.as_str()),
        run.run.as_str(),
        &*run.record.flow,
        i64::from(run.record.depth),
        Arg::Int(parent),
        Arg::Int(top),
        text(&run.record)?,
        Arg::Word(name),
        due,
        i64::from(attention),
        run.next_seq,
        0_i64,
        run.created,
        ts,
        Arg::Int(None),
        0_i64,
        0_i64,
        error,
        node,
        words,
    ];
    row.extend(record_values(&run.record));
    let into = format!(
        "flowcell_runs (tenant, hash, run, flow, depth, parent, top, record, standing, due, attention, next_seq, tail, \
         created, updated, owner, epoch, claims, error, failed_node, error_words, {RECORD_COLUMNS})"
    );
    let after = connection.dialect().or_leave("tenant, hash");
    connection.insert(&into, vec![row], &after).await?;
    let Some((id, next_seq)) = find(connection, run).await? else { return Ok(false) };
    search::write_labels(connection, [(id, &run.tenant, run.created, &run.record)]).await?;
    Ok(next_seq == run.next_seq)
}
