//! Claims: of one run, and of those that somebody should drive.

use std::sync::Arc;

use flowcell_contract::{RunId, Tenant};

use super::{
    Shared,
    claims::{Grant, Key},
    link::{Arg, Link, Row, Trouble, args, holes},
    values::hash,
};

/// Owners whose time is not over, by the server's clock.
const LIVE: &str = "SELECT id FROM flowcell_owners WHERE until > {now}";

/// The columns that a claim is made from.
const COLUMNS: &str = "id, run, flow, epoch, owner";

/// Claims the tree of a run; none: another process drives it.
pub(super) async fn claim(shared: &Shared, link: &mut Link, run: &Key) -> Result<Option<Grant>, Trouble> {
    let sql = "SELECT id, top FROM flowcell_runs WHERE tenant = ? AND hash = ?";
    let Some(row) = link.row(sql, args![run.0.as_str(), hash(run.1.as_str())]).await? else {
        // Whoever writes its first unit has it.
        shared.claims.claimed(run, run, None, 1, None);
        return Ok(Some(Grant { top: run.clone(), epoch: 1 }));
    };
    let top = row.maybe_number(1)?.map_or(row.int(0)?, |top| top as i64);
    let sql = format!("SELECT {COLUMNS} FROM flowcell_runs WHERE id = ? FOR UPDATE");
    let Some(row) = link.row(&sql, args![top]).await? else { return Err(Trouble::Again) };
    let top_run: Key = (run.0.clone(), RunId::from(row.text(1)?));
    let owner = row.maybe_number(4)?.map(|owner| owner as i64);
    if owner == Some(shared.claims.owner())
        && let Some(grant) = shared.claims.join(run, &top_run)
    {
        return Ok(Some(grant));
    }
    if let Some(owner) = owner.filter(|owner| *owner != shared.claims.owner())
        && link.row(&format!("{LIVE} AND id = ?"), args![owner]).await?.is_some()
    {
        return Ok(None);
    }
    own(shared, link, &[top]).await?;
    Ok(Some(note(shared, run, &top_run, &row)?))
}

/// Claims runs that somebody should drive and nobody does: active ones, and parked ones whose timer is due, the longest
/// waiting first. Rows that others are about to claim are passed over, so that nobody waits for them.
pub(super) async fn take(
    shared: &Shared,
    link: &mut Link,
    tenant: &Tenant,
    now: u64,
    limit: usize,
) -> Result<Vec<(Key, Grant)>, Trouble> {
    let free = format!("tenant = ? AND depth = 0 AND (owner IS NULL OR owner NOT IN ({LIVE}))");
    let mut found = Vec::new();
    // In the order of the index, so that no more rows are locked than are taken.
    for (which, due) in [("standing = 'active' AND due IS NULL", false), ("standing = 'parked' AND due <= ?", true)] {
        let left = limit.saturating_sub(found.len()) as u64;
        let sql = format!(
            "SELECT {COLUMNS} FROM flowcell_runs {{by work}} WHERE {free} AND {which} ORDER BY due, id LIMIT ?
                FOR UPDATE SKIP LOCKED"
        );
        let mut args = args![tenant.as_str()];
        args.extend(due.then(|| Arg::from(now)));
        args.push(left.into());
        if left > 0 {
            found.extend(link.rows(&sql, args).await?);
        }
    }
    let ids: Vec<i64> = found.iter().map(|row| row.int(0)).collect::<Result<_, _>>()?;
    own(shared, link, &ids).await?;
    let grant = |row: &Row| {
        let run: Key = (tenant.clone(), RunId::from(row.text(1)?));
        Ok((run.clone(), note(shared, &run, &run, row)?))
    };
    found.iter().map(grant).collect()
}

/// Makes rows this process's, under their next epoch.
async fn own(shared: &Shared, link: &mut Link, ids: &[i64]) -> Result<(), Trouble> {
    if ids.is_empty() {
        return Ok(());
    }
    let sql = format!("UPDATE flowcell_runs SET owner = ?, epoch = epoch + 1 WHERE id IN ({})", holes(ids.len()));
    let ids = ids.iter().map(|id| Arg::from(*id));
    link.run(&sql, args![shared.claims.owner()].into_iter().chain(ids).collect()).await.map(drop)
}

/// Remembers a claim: if its commit fails, whatever is written under it is refused.
fn note(shared: &Shared, run: &Key, top: &Key, row: &Row) -> Result<Grant, Trouble> {
    let epoch = row.int(3)? + 1;
    shared.claims.claimed(run, top, Some(row.int(0)?), epoch, Some(Arc::from(row.text(2)?)));
    Ok(Grant { top: top.clone(), epoch })
}
