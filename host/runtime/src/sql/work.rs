//! Claims a given run, or runs without a driver.

use std::sync::Arc;

use flowcell_contract::{RunId, Tenant};

use super::{
    Shared,
    claims::{Key, TreeLease},
    connection::{Arg, Connection, Row, SqlError, args, placeholders},
    values::hash,
};

/// Selects the owners with a valid lease, by the server's clock.
pub(super) const LIVE_OWNERS: &str = "SELECT id FROM flowcell_owners WHERE until > {now}";

/// The columns of a claim.
const CLAIM_COLUMNS: &str = "id, run, flow, epoch, owner";

/// Claims the tree of a run. Returns `None` if another process drives it.
pub(super) async fn claim(
    shared: &Shared,
    connection: &mut Connection,
    run: &Key,
) -> Result<Option<TreeLease>, SqlError> {
    let sql = "SELECT id, top FROM flowcell_runs WHERE tenant = ? AND hash = ?";
    let Some(row) = connection.row(sql, args![run.0.as_str(), hash(run.1.as_str())]).await? else {
        // A run without a row belongs to the process that writes its first unit.
        shared.claims.record_claim(run, run, None, 1, None);
        let lease = TreeLease { top: run.clone(), epoch: 1 };
        shared.claims.record_unconfirmed(&lease);
        return Ok(Some(lease));
    };
    let top = row.maybe_number(1)?.map_or(row.int(0)?, |top| top as i64);
    let sql = format!("SELECT {CLAIM_COLUMNS} FROM flowcell_runs WHERE id = ? FOR UPDATE");
    let Some(row) = connection.row(&sql, args![top]).await? else { return Err(SqlError::Again) };
    let top_run: Key = (run.0.clone(), RunId::from(row.text(1)?));
    let owner = row.maybe_number(4)?.map(|owner| owner as i64);
    if owner == Some(shared.claims.owner())
        && let Some(lease) = shared.claims.add_lease(run, &top_run)
    {
        shared.claims.record_unconfirmed(&lease);
        return Ok(Some(lease));
    }
    if let Some(owner) = owner.filter(|owner| *owner != shared.claims.owner())
        && connection.row(&format!("{LIVE_OWNERS} AND id = ?"), args![owner]).await?.is_some()
    {
        return Ok(None);
    }
    assign(shared, connection, &[top]).await?;
    Ok(Some(record_claim(shared, run, &top_run, &row)?))
}

/// Claims top runs without a driver: active ones, and parked ones with a due timer, the longest waiting first. Skips
/// rows that other processes are about to claim, without waiting.
pub(super) async fn take(
    shared: &Shared,
    connection: &mut Connection,
    tenant: &Tenant,
    now: u64,
    limit: usize,
) -> Result<Vec<(Key, TreeLease)>, SqlError> {
    let free = format!("tenant = ? AND depth = 0 AND (owner IS NULL OR owner NOT IN ({LIVE_OWNERS}))");
    let mut found = Vec::new();
    // The order follows the index, so that the statement locks no more rows than it takes.
    for (which, due) in [("standing = 'active' AND due IS NULL", false), ("standing = 'parked' AND due <= ?", true)] {
        let left = limit.saturating_sub(found.len()) as u64;
        let sql = format!(
            "SELECT {CLAIM_COLUMNS} FROM flowcell_runs {{by work}} WHERE {free} AND {which} ORDER BY due, id LIMIT ?
                FOR UPDATE SKIP LOCKED"
        );
        let mut args = args![tenant.as_str()];
        args.extend(due.then(|| Arg::from(now)));
        args.push(left.into());
        if left > 0 {
            found.extend(connection.rows(&sql, args).await?);
        }
    }
    let ids: Vec<i64> = found.iter().map(|row| row.int(0)).collect::<Result<_, _>>()?;
    assign(shared, connection, &ids).await?;
    let lease = |row: &Row| {
        let run: Key = (tenant.clone(), RunId::from(row.text(1)?));
        Ok((run.clone(), record_claim(shared, &run, &run, row)?))
    };
    found.iter().map(lease).collect()
}

/// Assigns rows to this process, under their next epoch.
async fn assign(shared: &Shared, connection: &mut Connection, ids: &[i64]) -> Result<(), SqlError> {
    if ids.is_empty() {
        return Ok(());
    }
    let sql =
        format!("UPDATE flowcell_runs SET owner = ?, epoch = epoch + 1 WHERE id IN ({})", placeholders(ids.len()));
    let ids = ids.iter().map(|id| Arg::from(*id));
    connection.run(&sql, args![shared.claims.owner()].into_iter().chain(ids).collect()).await.map(drop)
}

/// Records a claim in the claims of this process. If the transaction of the claim fails, the store refuses all writes
/// under the claim.
fn record_claim(shared: &Shared, run: &Key, top: &Key, row: &Row) -> Result<TreeLease, SqlError> {
    let epoch = row.int(3)? + 1;
    shared.claims.record_claim(run, top, Some(row.int(0)?), epoch, Some(Arc::from(row.text(2)?)));
    let lease = TreeLease { top: top.clone(), epoch };
    shared.claims.record_unconfirmed(&lease);
    Ok(lease)
}
