//! The lease of this process: its start, renewal and end.

use std::{sync::Arc, time::Instant};

use super::{
    Shared,
    connection::{Connection, Row, SqlError, args},
    epoch,
    outage::Blocked,
    sweep,
};
use crate::shared::StoreProcess;

/// The time after which the row of a dead owner is removed, in milliseconds.
const DEAD_OWNER_KEPT_MS: u64 = 24 * 3_600 * 1_000;

/// Makes this process an owner for the time of a lease. Returns the id of its row in the table of owners.
pub(super) async fn become_owner(connection: &mut Connection, name: &str, lease_ms: u64) -> Result<i64, SqlError> {
    let dead = "DELETE FROM flowcell_owners WHERE until < {now} - ?";
    connection.run(dead, args![DEAD_OWNER_KEPT_MS]).await?;
    let sql = "INSERT INTO flowcell_owners (name, until) VALUES (?, {now} + ?)";
    connection.run(sql, args![name, lease_ms]).await?;
    inserted_id(connection).await
}

/// Returns the id of the row that this connection has inserted last.
async fn inserted_id(connection: &mut Connection) -> Result<i64, SqlError> {
    let sql = connection.dialect().pick("SELECT last_insert_id()", "SELECT lastval()");
    connection.row(sql, args![]).await?.map_or(Err(SqlError::Again), |row| row.int(0))
}

/// Commits a write that changes nothing: it inserts a row and deletes it. On MariaDB and MySQL, transactions that delete owners
/// by name or by time wait for it.
pub(super) async fn commit_test_row(connection: &mut Connection) -> Result<(), SqlError> {
    connection.begin().await?;
    connection.run("INSERT INTO flowcell_owners (name, until) VALUES ('test', 0)", args![]).await?;
    let id = inserted_id(connection).await?;
    connection.run("DELETE FROM flowcell_owners WHERE id = ?", args![id]).await?;
    connection.commit().await
}

/// Renews the lease repeatedly. A process that could not renew it for too long stops its drivers. A process whose
/// lease has ended becomes a new owner.
pub(super) async fn renew_repeatedly(shared: Arc<Shared>) {
    let options = &shared.options;
    loop {
        shared.connections.outages().pause(options.renew()).await;
        if shared.queue.is_closed() {
            return;
        }
        if shared.claims.since_renewal() > options.give_up() {
            shared.claims.lose_all();
        }
        let left = options.give_up().saturating_sub(shared.claims.since_renewal()).max(options.renew());
        match tokio::time::timeout(left, renew(&shared)).await {
            Ok(Ok(Age::Current)) => {}
            // Parking many runs takes longer than a renewal may.
            Ok(Ok(Age::Older)) => {
                if let Err(error) = park_runs(&shared).await {
                    tracing::warn!("cannot park the runs of a restored store, and tries again: {error}");
                }
            }
            // The outage has its own lines in the log.
            Ok(Err(error)) => tracing::debug!("cannot renew the lease: {error}"),
            Err(_) => tracing::debug!("cannot renew the lease: the server does not answer"),
        }
        if shared.claims.since_renewal() > options.give_up() {
            shared.claims.lose_all();
        }
    }
}

/// The age of the database at a renewal of the lease.
enum Age {
    Current,
    /// The database is an older copy, and the lease was not renewed.
    Older,
}

async fn park_runs(shared: &Shared) -> Result<(), SqlError> {
    let mut connection = shared.connections.acquire(shared.options.patience).await?;
    epoch::check(shared, &mut connection).await
}

async fn renew(shared: &Shared) -> Result<Age, SqlError> {
    let options = &shared.options;
    let lease = options.lease.as_millis() as u64;
    shared.connections.outages().wait(Blocked::Writes, options.patience).await?;
    let mut connection = shared.connections.acquire(options.patience).await?;
    if shared.epoch.is_older(&mut connection).await? {
        return Ok(Age::Older);
    }
    let _entering = shared.entering.lock().await;
    let (asked, owner) = (Instant::now(), shared.claims.owner());
    let sql = "UPDATE flowcell_owners SET until = {now} + ? WHERE id = ? AND until > {now}";
    if connection.run(sql, args![lease, owner]).await? == 1 {
        shared.claims.record_renewal(owner, asked);
        sweep::remove_old_messages(&mut connection).await?;
        return Ok(Age::Current);
    }
    replace_owner(shared, &mut connection).await?;
    Ok(Age::Current)
}

/// Ensures that the lease covers the next claim. A process that was suspended for too long becomes a new owner first.
pub(super) async fn ensure_lease(shared: &Shared, connection: &mut Connection) -> Result<(), SqlError> {
    let is_held = || shared.claims.since_renewal() <= shared.options.give_up();
    if is_held() {
        return Ok(());
    }
    let _entering = shared.entering.lock().await;
    if is_held() {
        return Ok(());
    }
    replace_owner(shared, connection).await
}

/// Makes this process a new owner. Other processes may have taken its runs, so it stops all drivers.
async fn replace_owner(shared: &Shared, connection: &mut Connection) -> Result<(), SqlError> {
    shared.claims.lose_all();
    let asked = Instant::now();
    let owner = become_owner(connection, shared.presence.name(), shared.options.lease.as_millis() as u64).await?;
    shared.claims.record_renewal(owner, asked);
    Ok(())
}

/// Returns the latest processes of the store, with the runs that they hold.
pub(super) async fn processes(connection: &mut Connection, limit: usize) -> Result<Vec<StoreProcess>, SqlError> {
    let sql = "SELECT name, until, {now}, (SELECT count(*) FROM flowcell_runs WHERE owner = o.id AND depth = 0)
        FROM flowcell_owners AS o ORDER BY id DESC LIMIT ?";
    let rows = connection.rows(sql, args![limit as u64]).await?;
    let process = |row: &Row| {
        let lease_ms = row.number(1)?.saturating_sub(row.number(2)?);
        Ok(StoreProcess { name: row.text(0)?, lease_ms, runs: row.number(3)? })
    };
    rows.iter().map(process).collect()
}

/// Releases all runs of this process at once.
pub(super) async fn release_runs(connection: &mut Connection, owner: i64) -> Result<(), SqlError> {
    connection.run("DELETE FROM flowcell_owners WHERE id = ?", args![owner]).await.map(drop)
}
