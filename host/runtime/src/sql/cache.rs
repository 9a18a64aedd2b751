//! The cache in a shared store.

use std::collections::{BTreeMap, HashSet};

use flowcell_contract::{Tenant, Value};

use super::{
    SharedStore,
    connection::{Connection, SqlError, args},
    queue::Item,
};
use crate::{limits::MAX_CACHE_ENTRIES, ports::CacheStore};

/// Writes the cached values of a commit, and removes the oldest ones above the limit.
pub(super) async fn write(connection: &mut Connection, items: &[Item]) -> Result<(), SqlError> {
    let mut latest = BTreeMap::new();
    for item in items {
        if let Item::Cache { tenant, key, value, expires } = item {
            latest.insert((tenant.as_str(), key.as_str()), (value, *expires));
        }
    }
    if latest.is_empty() {
        return Ok(());
    }
    let tenants: HashSet<&str> = latest.keys().map(|(tenant, _)| *tenant).collect();
    let row = |((tenant, key), (value, expires)): ((&str, &str), (&Value, Option<u64>))| {
        args![tenant, key, value.text().to_owned(), expires]
    };
    let rows = latest.into_iter().map(row).collect();
    let after = connection.dialect().or_update("tenant, name", &["value", "expires"]);
    connection.insert("flowcell_cache (tenant, name, value, expires)", rows, &after).await?;
    for tenant in tenants {
        let sql = "SELECT id FROM flowcell_cache WHERE tenant = ? ORDER BY id DESC LIMIT 1 OFFSET ?";
        if let Some(row) = connection.row(sql, args![tenant, MAX_CACHE_ENTRIES as u64]).await? {
            let sql = "DELETE FROM flowcell_cache WHERE tenant = ? AND id <= ?";
            connection.run(sql, args![tenant, row.int(0)?]).await?;
        }
    }
    Ok(())
}

/// Reads a value that has not expired at `now`.
async fn read(connection: &mut Connection, tenant: &Tenant, key: &str, now: u64) -> Result<Option<Value>, SqlError> {
    let sql = "SELECT value FROM flowcell_cache WHERE tenant = ? AND name = ? AND (expires IS NULL OR expires > ?)";
    let row = connection.row(sql, args![tenant.as_str(), key, now]).await?;
    // A damaged value counts as forgotten.
    Ok(row.map(|row| row.text(0)).transpose()?.and_then(|text| Value::restore(text).ok()))
}

impl CacheStore for SharedStore {
    /// Returns a cached value. If the server does not answer, the value counts as forgotten.
    fn get(&self, tenant: &Tenant, key: &str, now: u64) -> Option<Value> {
        let key = (tenant.clone(), key.to_owned());
        if let Some((value, expires)) = self.shared.visible().cache.get(&key) {
            return expires.is_none_or(|expires| now < expires).then(|| value.clone());
        }
        self.worker.read(async move |connection| read(connection, &key.0, &key.1, now).await).ok().flatten()
    }

    fn set(&self, tenant: &Tenant, key: &str, value: Value, expires: Option<u64>) {
        self.shared.visible().cache.insert((tenant.clone(), key.to_owned()), (value.clone(), expires));
        self.shared.queue.push(Item::Cache { tenant: tenant.clone(), key: key.to_owned(), value, expires });
    }
}
