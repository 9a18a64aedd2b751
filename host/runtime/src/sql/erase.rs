//! The removal of all rows of a tenant.
//!
//! The rows of a run that a process drives stay: then the removal fails. A process that has lost its claim of a removed
//! run finds no row, and its writes are refused.

use std::collections::BTreeMap;

use flowcell_contract::Tenant;

use super::{
    Shared, SharedStore,
    connection::{Arg, Connection, SqlError, args, placeholders},
    queue::Turn,
    remove, search,
    work::LIVE_OWNERS,
};
use crate::{
    limits::{MAX_ERASED_BLOBS, MAX_ERASED_ROWS, MAX_ERASED_RUNS},
    ports::{Erase, StoreError},
};

const RUNS: &str = "flowcell_runs";
/// The tables with a column of tenants beside that of the runs, in the order of the removal. The units of a run go with
/// its row.
const OF_TENANTS: [&str; 8] = [
    "flowcell_labels",
    "flowcell_state",
    "flowcell_flow_states",
    "flowcell_sessions",
    "flowcell_blobs",
    "flowcell_cache",
    "flowcell_inbox",
    "flowcell_registry",
];

/// The prefix of all tables.
const PREFIX: &str = "flowcell_";

fn tables() -> impl Iterator<Item = &'static str> {
    std::iter::once(RUNS).chain(OF_TENANTS)
}

impl Erase for SharedStore {
    fn rows_of(&self, tenant: &Tenant) -> Result<BTreeMap<String, u64>, StoreError> {
        self.settle()?;
        let tenant = tenant.clone();
        self.worker.read(async move |connection| {
            let mut rows = BTreeMap::new();
            for table in tables() {
                let sql = format!("SELECT count(*) FROM {table} WHERE tenant = ?");
                let count = connection.row(&sql, args![tenant.as_str()]).await?.map_or(Ok(0), |row| row.number(0))?;
                if count > 0 {
                    rows.insert(table.trim_start_matches(PREFIX).to_owned(), count);
                }
            }
            Ok(rows)
        })
    }

    fn driven_elsewhere(&self, tenant: &Tenant) -> Result<u64, StoreError> {
        self.settle()?;
        let (tenant, owner) = (tenant.clone(), self.shared.claims.owner());
        self.worker.read(async move |connection| driven(connection, &tenant, Some(owner)).await)
    }

    fn erase_some(&self, tenant: &Tenant) -> Result<u64, StoreError> {
        let erased = self.worker.turn(|answer| Turn::Erase(tenant.clone(), answer))?;
        if erased == 0
            && let Some(objects) = self.shared.place.in_use()?
        {
            objects.remove_all(tenant)?;
        }
        Ok(erased)
    }

    fn purge(&self) -> Result<bool, StoreError> {
        Ok(false)
    }

    fn next_tenant(&self, after: &Tenant) -> Result<Option<Tenant>, StoreError> {
        let after = after.clone();
        self.worker.read(async move |connection| {
            let mut first: Option<String> = None;
            for table in tables() {
                let sql = format!("SELECT tenant FROM {table} WHERE tenant > ? ORDER BY tenant LIMIT 1");
                let next = connection.row(&sql, args![after.as_str()]).await?.map(|row| row.text(0)).transpose()?;
                first = first.into_iter().chain(next).min();
            }
            Ok(first.map(|name| Tenant::from(name.as_str())))
        })
    }
}

/// Counts the top runs of a tenant that a process drives now, except the process `but`.
async fn driven(connection: &mut Connection, tenant: &Tenant, but: Option<i64>) -> Result<u64, SqlError> {
    let sql = format!("SELECT count(*) FROM {RUNS} WHERE tenant = ? AND owner IN ({LIVE_OWNERS}) AND owner <> ?");
    let values = args![tenant.as_str(), but.unwrap_or(0)];
    connection.row(&sql, values).await?.map_or(Ok(0), |row| row.number(0))
}

/// Removes some rows of a tenant, and returns their number.
pub(super) async fn erase(_: &Shared, connection: &mut Connection, tenant: &Tenant) -> Result<u64, SqlError> {
    let sql = format!("SELECT id, owner FROM {RUNS} WHERE tenant = ? ORDER BY id LIMIT {MAX_ERASED_RUNS} FOR UPDATE");
    let found = connection.rows(&sql, args![tenant.as_str()]).await?;
    // The rows are locked, so that no process claims one of them from now on.
    let count = driven(connection, tenant, None).await?;
    if count > 0 {
        return Err(SqlError::Permanent(format!("{count} runs of the tenant are driven")));
    }
    let runs: Vec<i64> = found.iter().map(|row| row.int(0)).collect::<Result<_, _>>()?;
    if !runs.is_empty() {
        for run in &runs {
            remove::remove_units(connection, *run).await?;
        }
        search::forget(connection, &runs).await?;
        let sql = format!("DELETE FROM {RUNS} WHERE id IN ({})", placeholders(runs.len()));
        return connection.run(&sql, runs.iter().map(|run| Arg::from(*run)).collect()).await;
    }
    for table in OF_TENANTS {
        let most = if table == "flowcell_blobs" { MAX_ERASED_BLOBS } else { MAX_ERASED_ROWS };
        let sql = connection.dialect().pick(
            format!("DELETE FROM {table} WHERE tenant = ? LIMIT {most}"),
            format!(
                "DELETE FROM {table} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {table} WHERE tenant = ?
                    LIMIT {most}))"
            ),
        );
        let erased = connection.run(&sql, args![tenant.as_str()]).await?;
        if erased > 0 {
            return Ok(erased);
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::{super::schema, *};

    /// The tables whose rows belong to a run, and those without rows of tenants.
    const OTHERS: [&str; 5] =
        ["flowcell_units", "flowcell_owners", "flowcell_version", "flowcell_epoch", "flowcell_objects"];

    #[test]
    fn every_table_of_the_schema_has_a_rule_for_the_removal_of_a_tenant() {
        for (table, has_tenants) in schema::tables() {
            let ruled = tables().any(|ruled| ruled == table);
            let other = OTHERS.contains(&&*table);
            assert!(ruled == has_tenants && other != has_tenants, "`{table}` has no rule in `erase.rs`");
        }
    }
}
