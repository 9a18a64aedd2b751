//! The removal of all rows of a tenant.
//!
//! The writer removes a part of the rows in each commit, so that other writes wait only for one part. From the first
//! part on it refuses all entries of the tenant, and the documents of the tenant are refused, too: a request that was
//! admitted before the tenant was disabled can leave nothing behind.

use std::{collections::BTreeMap, sync::mpsc};

use flowcell_contract::Tenant;
use rusqlite::{Connection, OptionalExtension, params};

use super::{FILE, SqliteStore, compact, queue::Item, search, unit_index};
use crate::{
    limits::{COMPACT_USED_BYTES, MAX_ERASED_BLOBS, MAX_ERASED_ROWS, MAX_ERASED_RUNS},
    ports::{Erase, StoreError},
};

/// The tables with a column of tenants, in the order of the removal, and the columns of their keys. The rows of `runs`
/// go first, with those of [`OF_RUNS`].
const OF_TENANTS: [(&str, &str); 6] = [
    ("labels", "tenant, name, value, created, run"),
    ("state", "tenant, flow, key"),
    ("flow_states", "tenant, session_id"),
    ("sessions", "tenant, id"),
    ("blobs", "tenant, hash"),
    ("registry", "tenant, kind, key"),
];
const RUNS: &str = "runs";
/// The tables whose rows belong to a run, by its number.
#[cfg(test)]
const OF_RUNS: [&str; 2] = ["units", "places"];
/// The tables without rows of tenants.
#[cfg(test)]
const OF_THE_STORE: [&str; 3] = ["noted", "epoch", "object_store"];

fn tables() -> impl Iterator<Item = &'static str> {
    std::iter::once(RUNS).chain(OF_TENANTS.into_iter().map(|(table, _)| table))
}

impl Erase for SqliteStore {
    fn rows_of(&self, tenant: &Tenant) -> Result<BTreeMap<String, u64>, StoreError> {
        self.settle()?;
        let connection = self.reader.0.lock();
        let mut rows = BTreeMap::new();
        for table in tables() {
            let sql = format!("SELECT count(*) FROM {table} WHERE tenant = ?");
            let count = connection.query_row(&sql, [tenant.as_str()], |row| row.get::<_, u64>(0))?;
            if count > 0 {
                rows.insert(table.to_owned(), count);
            }
        }
        Ok(rows)
    }

    /// Returns 0, because the process that has opened the store owns it.
    fn driven_elsewhere(&self, _: &Tenant) -> Result<u64, StoreError> {
        Ok(0)
    }

    fn erase_some(&self, tenant: &Tenant) -> Result<u64, StoreError> {
        self.visible.lock().erased.insert(tenant.clone());
        // Documents are written beside the writer. Those that were not refused are written before the removal.
        drop(self.document_writes.write());
        let (answer, answered) = mpsc::channel();
        self.queue.push(Item::Erase { tenant: tenant.clone(), answer });
        let erased = answered.recv().map_err(|_| StoreError::unavailable("the store accepts no more writes"));
        if matches!(erased, Ok(0)) {
            self.large.remove_all(tenant).map_err(|error| {
                StoreError::unavailable(format!("cannot remove the large files of the tenant: {error}"))
            })?;
            if let Some(objects) = self.large.place.in_use()? {
                objects.remove_all(tenant)?;
            }
        }
        // Forgets the documents of the tenant.
        self.remembered.write(|| ());
        erased
    }

    fn readmit(&self, tenant: &Tenant) {
        self.visible.lock().erased.remove(tenant);
    }

    fn purge(&self) -> Result<bool, StoreError> {
        // All other writes wait for the compaction, so a large file is compacted only on request.
        if compact::size(&self.folder) > COMPACT_USED_BYTES {
            return Ok(false);
        }
        self.compact()?;
        // A reader of another process may still need the log.
        let log = self.folder.join(format!("{FILE}-wal"));
        Ok(log.metadata().map_or(true, |log| log.len() == 0))
    }

    fn next_tenant(&self, after: &Tenant) -> Result<Option<Tenant>, StoreError> {
        let connection = self.reader.0.lock();
        let mut first: Option<String> = None;
        for table in tables() {
            let sql = format!("SELECT tenant FROM {table} WHERE tenant > ? ORDER BY tenant LIMIT 1");
            let next = connection.query_row(&sql, [after.as_str()], |row| row.get::<_, String>(0)).optional()?;
            first = first.into_iter().chain(next).min();
        }
        Ok(first.map(|name| Tenant::from(name.as_str())))
    }
}

/// Removes some rows of a tenant within a transaction, and returns their number. Overwrites them with zeros.
pub(super) fn erase(connection: &Connection, tenant: &Tenant) -> Result<u64, rusqlite::Error> {
    connection.pragma(None, "secure_delete", true, |_| Ok(()))?;
    let erased = erase_overwritten(connection, tenant);
    connection.pragma(None, "secure_delete", false, |_| Ok(()))?;
    erased
}

fn erase_overwritten(connection: &Connection, tenant: &Tenant) -> Result<u64, rusqlite::Error> {
    let mut select = connection.prepare_cached("SELECT id FROM runs WHERE tenant = ? LIMIT ?")?;
    let found = select.query_map(params![tenant.as_str(), MAX_ERASED_RUNS as u64], |row| row.get::<_, i64>(0))?;
    let runs: Vec<i64> = found.collect::<Result<_, _>>()?;
    for run in &runs {
        unit_index::remove(connection, *run)?;
        search::forget(connection, *run)?;
        connection.prepare_cached("DELETE FROM runs WHERE id = ?")?.execute([run])?;
    }
    if !runs.is_empty() {
        return Ok(runs.len() as u64);
    }
    for (table, key) in OF_TENANTS {
        let most = if table == "blobs" { MAX_ERASED_BLOBS } else { MAX_ERASED_ROWS };
        let sql =
            format!("DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} WHERE tenant = ? LIMIT {most})");
        let erased = connection.execute(&sql, [tenant.as_str()])?;
        if erased > 0 {
            return Ok(erased as u64);
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::{super::schema, *};

    #[test]
    fn every_table_of_the_schema_has_a_rule_for_the_removal_of_a_tenant() {
        let mut connection = Connection::open_in_memory().unwrap();
        schema::migrate(&mut connection, |_| Ok(())).unwrap();
        let names = |sql: &str| -> Vec<String> {
            let mut select = connection.prepare(sql).unwrap();
            let found = select.query_map([], |row| row.get(0)).unwrap();
            found.map(Result::unwrap).collect()
        };
        for table in names("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'") {
            let columns = names(&format!("SELECT name FROM pragma_table_info('{table}')"));
            let has_tenants = columns.iter().any(|column| column == "tenant");
            let ruled = tables().any(|ruled| ruled == table);
            let other = OF_RUNS.iter().chain(&OF_THE_STORE).any(|other| *other == table);
            assert!(ruled == has_tenants && other != has_tenants, "`{table}` has no rule in `erase.rs`");
        }
    }
}
