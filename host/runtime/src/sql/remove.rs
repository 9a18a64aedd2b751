//! The removal of ended runs.
//!
//! One transaction locks the rows of the runs, decides which of them may go, and removes these. A driver claims a run by
//! its locked row, and a run that repeats another one locks the row of that one before it begins. So no process can use a
//! run while another one removes it.

use std::collections::HashSet;

use flowcell_contract::{RunId, Tenant};

use super::{
    Shared,
    connection::{Arg, Connection, Row, SqlError, args, placeholders},
    search,
    values::hash,
    work::LIVE_OWNERS,
};
use crate::ports::{Removed, Removing, Undeletable};

/// The maximum number of runs of one statement.
const MAX_RUNS: usize = 200;
/// The maximum number of facts that one statement removes.
const MAX_REMOVED_FACTS: usize = 20_000;
/// The status of a removed run.
pub(super) const REMOVED: &str = "removed";
/// Selects the statuses of runs that have not ended.
const LIVE: &str = "('active', 'parked')";

/// Removes the runs that may be removed. Returns the others with their reasons.
pub(super) async fn remove(
    shared: &Shared,
    connection: &mut Connection,
    tenant: &Tenant,
    runs: &[RunId],
    removing: Removing,
) -> Result<Removed, SqlError> {
    let (mut removed, mut rows) = (Removed::default(), Vec::new());
    for some in runs.chunks(MAX_RUNS) {
        // Commits lock rows in the same order.
        let sql = format!(
            "SELECT id, run, parent, standing, attention, owner FROM flowcell_runs
            WHERE tenant = ? AND hash IN ({}) ORDER BY id FOR UPDATE",
            placeholders(some.len())
        );
        let hashes = some.iter().map(|run| Arg::from(hash(run.as_str())));
        let found = connection.rows(&sql, args![tenant.as_str()].into_iter().chain(hashes).collect()).await?;
        let names = found.iter().map(|row| Ok(RunId::from(row.text(1)?))).collect::<Result<Vec<_>, SqlError>>()?;
        for run in some {
            let row = names.iter().position(|name| name == run).map(|place| &found[place]);
            match refusal(shared, connection, tenant, run, row).await? {
                Ok(row) => {
                    removed.runs.push(run.clone());
                    rows.push(row);
                }
                Err(why) => removed.kept.push(why),
            }
        }
    }
    if removing == Removing::AllOrNone && !removed.kept.is_empty() {
        return Ok(Removed { runs: Vec::new(), ..removed });
    }
    for row in rows {
        forget(connection, row).await?;
    }
    Ok(removed)
}

/// Returns the number of the row of a run that may be removed, or else the reason why it stays.
async fn refusal(
    shared: &Shared,
    connection: &mut Connection,
    tenant: &Tenant,
    run: &RunId,
    row: Option<&Row>,
) -> Result<Result<i64, Undeletable>, SqlError> {
    let Some(row) = row else { return Ok(Err(Undeletable::Unknown(run.clone()))) };
    let (id, standing) = (row.int(0)?, row.text(3)?);
    if standing == REMOVED {
        return Ok(Err(Undeletable::Unknown(run.clone())));
    }
    if let Some(parent) = row.maybe_number(2)? {
        let sql = "SELECT run FROM flowcell_runs WHERE id = ?";
        let parent = connection.row(sql, args![parent]).await?.ok_or(SqlError::Again)?;
        return Ok(Err(Undeletable::Called { run: run.clone(), parent: RunId::from(parent.text(0)?) }));
    }
    if matches!(&*standing, "active" | "parked") {
        return Ok(Err(Undeletable::not_ended(run, &standing, row.int(4)? != 0)));
    }
    let owner = row.maybe_number(5)?.map(|owner| owner as i64);
    if is_held_elsewhere(shared, connection, owner).await? {
        return Ok(Err(Undeletable::Driven(run.clone())));
    }
    let below = format!("SELECT id FROM flowcell_runs WHERE top = ? AND standing IN {LIVE} LIMIT 1");
    if connection.row(&below, args![id]).await?.is_some() {
        return Ok(Err(Undeletable::EndsBelow(run.clone())));
    }
    let by = repeated_by_live_run(connection, tenant, run).await?;
    Ok(by.map_or(Ok(id), |by| Err(Undeletable::Repeated { run: run.clone(), by })))
}

/// Returns whether another process holds an ended run, and its lease has not ended. A driver of this process may still
/// hold it, too, but writes nothing to a run that has ended.
async fn is_held_elsewhere(shared: &Shared, connection: &mut Connection, owner: Option<i64>) -> Result<bool, SqlError> {
    match owner.filter(|owner| *owner != shared.claims.owner()) {
        None => Ok(false),
        Some(owner) => Ok(connection.row(&format!("{LIVE_OWNERS} AND id = ?"), args![owner]).await?.is_some()),
    }
}

/// Returns a run that has not ended and that repeats this run, directly or through other runs. Locks the runs between
/// them, so that no run begins that repeats one of them.
async fn repeated_by_live_run(
    connection: &mut Connection,
    tenant: &Tenant,
    run: &RunId,
) -> Result<Option<RunId>, SqlError> {
    let (mut open, mut seen) = (vec![run.as_str().to_owned()], HashSet::new());
    while let Some(run) = open.pop() {
        let sql = "SELECT run, standing FROM flowcell_runs WHERE tenant = ? AND retry_of = ? ORDER BY id FOR UPDATE";
        for row in connection.rows(sql, args![tenant.as_str(), run]).await? {
            let repeating = row.text(0)?;
            if matches!(&*row.text(1)?, "active" | "parked") {
                return Ok(Some(RunId::from(repeating)));
            }
            if seen.insert(repeating.clone()) {
                open.push(repeating);
            }
        }
    }
    Ok(None)
}

/// Removes the units of a run and of the runs below it. The row of the run itself stays as a tombstone, so that no run
/// reuses its id.
async fn forget(connection: &mut Connection, id: i64) -> Result<(), SqlError> {
    let all = connection.rows("SELECT id FROM flowcell_runs WHERE id = ? OR top = ?", args![id, id]).await?;
    let all = all.iter().map(|row| row.int(0)).collect::<Result<Vec<_>, _>>()?;
    for run in &all {
        remove_units(connection, *run).await?;
    }
    for runs in all.chunks(MAX_RUNS) {
        search::forget(connection, runs).await?;
    }
    connection.run("DELETE FROM flowcell_runs WHERE top = ?", args![id]).await?;
    let tombstone = "UPDATE flowcell_runs SET standing = 'removed', record = ?, due = NULL, next_seq = 0, tail = 0,
        version = NULL, labels = NULL, started_by = NULL, retry_of = NULL, error = NULL, failed_node = NULL,
        error_words = NULL WHERE id = ?";
    connection.run(tombstone, args!["", id]).await.map(drop)
}

/// Removes the units of a run, a limited number with each statement, since a statement has a limited time.
pub(super) async fn remove_units(connection: &mut Connection, run: i64) -> Result<(), SqlError> {
    let sql = "SELECT max(first_seq) FROM flowcell_units WHERE run = ?";
    let last = connection.row(sql, args![run]).await?.map_or(Ok(0), |row| row.number(0))?;
    for upto in (0..=last).step_by(MAX_REMOVED_FACTS).map(|from| from + MAX_REMOVED_FACTS as u64) {
        connection.run("DELETE FROM flowcell_units WHERE run = ? AND first_seq < ?", args![run, upto]).await?;
    }
    Ok(())
}
