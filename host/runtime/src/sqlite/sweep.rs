//! The sweep: the removal of runs, and of blobs that nothing refers to.
//!
//! A sweep searches all stored texts for hashes: rows of runs, state and files, and the blobs that they refer to. So a
//! blob stays if any text contains its hash: as a large value of a row, as a pin of a run, or as a file in a value. The
//! store keeps no reference counts, which a crash could leave wrong; the next sweep removes the leftovers of a crash.
//! The writer sweeps between two commits, so no text changes meanwhile.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use flowcell_contract::{RunId, Tenant};
use rusqlite::{Connection, OptionalExtension, params, types::ValueRef};

use super::{
    SqliteStore,
    queue::{Item, SweptRows},
    search, unit_index, upload,
};
use crate::{
    limits::SPARED_MS,
    ports::{Removed, Removing, StoreError, Sweep, Swept, Undeletable, hashes},
};

impl Sweep for SqliteStore {
    fn remove(&self, tenant: &Tenant, runs: &[RunId], removing: Removing) -> Result<Removed, StoreError> {
        let (answer, answered) = mpsc::channel();
        self.queue.push(Item::Remove { tenant: tenant.clone(), runs: runs.into(), removing, answer });
        answered.recv().map_err(|_| StoreError::unavailable("the store accepts no more writes"))
    }

    /// Spares the blobs that this process has put in the last [`SPARED_MS`], because a text may soon refer to them.
    fn sweep(&self, tenant: &Tenant) -> Result<Swept, StoreError> {
        let (answer, answered) = mpsc::channel();
        self.queue.push(Item::Sweep { tenant: tenant.clone(), answer });
        let rows = answered.recv().map_err(|_| StoreError::unavailable("the store accepts no more writes"))?;
        Ok(rows.swept.with_objects(upload::remove_objects(self, tenant, &rows.objects)))
    }
}

/// Removes the runs that may be removed, within a transaction. Returns the others with their reasons.
pub(super) fn remove(
    connection: &Connection,
    tenant: &Tenant,
    runs: &[RunId],
    removing: Removing,
) -> Result<Removed, rusqlite::Error> {
    let mut removed = Removed::default();
    for run in runs {
        match refusal(connection, tenant, run)? {
            Some(why) => removed.kept.push(why),
            None => removed.runs.push(run.clone()),
        }
    }
    if removing == Removing::AllOrNone && !removed.kept.is_empty() {
        removed.runs.clear();
    }
    removed.runs.iter().try_for_each(|run| forget(connection, tenant, run))?;
    Ok(removed)
}

/// Returns the reason why a run stays, if there is one.
fn refusal(connection: &Connection, tenant: &Tenant, run: &RunId) -> Result<Option<Undeletable>, rusqlite::Error> {
    let key = params![tenant.as_str(), run.as_str()];
    let sql = "SELECT parent, standing, attention FROM runs WHERE tenant = ? AND run = ?";
    let columns = |row: &rusqlite::Row<'_>| {
        Ok((row.get::<_, Option<String>>(0)?, row.get::<_, String>(1)?, row.get::<_, bool>(2)?))
    };
    let found = connection.prepare_cached(sql)?.query_row(key, columns).optional()?;
    let Some((parent, standing, attention)) = found.filter(|(_, standing, _)| standing != REMOVED) else {
        return Ok(Some(Undeletable::Unknown(run.clone())));
    };
    if let Some(parent) = parent {
        return Ok(Some(Undeletable::Called { run: run.clone(), parent: parent.into() }));
    }
    if LIVE.contains(&&*standing) {
        return Ok(Some(Undeletable::not_ended(run, &standing, attention)));
    }
    let sql =
        "WITH RECURSIVE below (run, standing) AS (SELECT run, standing FROM runs WHERE tenant = ?1 AND parent = ?2
        UNION SELECT runs.run, runs.standing FROM runs JOIN below ON runs.parent = below.run WHERE runs.tenant = ?1)
        SELECT 1 FROM below WHERE standing IN ('active', 'parked') LIMIT 1";
    if connection.prepare_cached(sql)?.exists(key)? {
        return Ok(Some(Undeletable::EndsBelow(run.clone())));
    }
    // A removed run repeats no run any more.
    let sql = "WITH RECURSIVE repeats (run, standing) AS (SELECT run, standing FROM runs
        WHERE tenant = ?1 AND retry_of = ?2
        UNION SELECT runs.run, runs.standing FROM runs JOIN repeats ON runs.retry_of = repeats.run
        WHERE runs.tenant = ?1)
        SELECT run FROM repeats WHERE standing IN ('active', 'parked') LIMIT 1";
    let by = connection.prepare_cached(sql)?.query_row(key, |row| row.get::<_, String>(0)).optional()?;
    Ok(by.map(|by| Undeletable::Repeated { run: run.clone(), by: by.into() }))
}

/// The statuses of runs that have not ended.
const LIVE: [&str; 2] = ["active", "parked"];
/// The status of a removed run.
pub(super) const REMOVED: &str = "removed";

/// Removes the units of a run and of the runs below it. The row of the run itself stays as a tombstone, so that no
/// run reuses its id.
fn forget(connection: &Connection, tenant: &Tenant, run: &RunId) -> Result<(), rusqlite::Error> {
    let below = "WITH RECURSIVE below (run) AS (VALUES (?2)
        UNION SELECT runs.run FROM runs JOIN below ON runs.parent = below.run WHERE runs.tenant = ?1)";
    let run = params![tenant.as_str(), run.as_str()];
    let mut select = connection.prepare(&format!("{below} SELECT id FROM runs WHERE tenant = ?1 AND run IN below"))?;
    for id in select.query_map(run, |row| row.get(0))? {
        let id = id?;
        unit_index::remove(connection, id)?;
        search::forget(connection, id)?;
    }
    let children = "DELETE FROM runs WHERE tenant = ?1 AND run IN below AND run <> ?2";
    connection.execute(&format!("{below} {children}"), run)?;
    let tombstone = "UPDATE runs SET standing = 'removed', record = '', due = NULL, next_seq = 0
        WHERE tenant = ?1 AND run = ?2";
    connection.execute(tombstone, run).map(drop)
}

/// The texts of a tenant that may refer to blobs.
const TEXTS: [&str; 5] = [
    "SELECT record FROM runs WHERE tenant = ?",
    "SELECT body, cuts FROM units JOIN runs ON runs.id = units.run WHERE runs.tenant = ?",
    "SELECT value, cuts FROM state WHERE tenant = ?",
    "SELECT args, output FROM flow_states WHERE tenant = ?",
    // The records of uploaded files.
    "SELECT value FROM registry WHERE tenant = ? AND kind IN ('file', 'packs')",
];

/// Removes the blobs of a tenant that no text refers to, except the spared ones.
pub(super) fn sweep(
    connection: &Connection,
    tenant: &Tenant,
    spared: impl Fn(&str) -> bool,
) -> Result<SweptRows, rusqlite::Error> {
    let mut unnamed = sizes(connection, tenant)?;
    let mut named: Vec<String> = unnamed.keys().filter(|hash| spared(hash)).cloned().collect();
    named.iter().for_each(|hash| _ = unnamed.remove(hash));
    for sql in TEXTS {
        search_rows(connection, sql, params![tenant.as_str()], &mut unnamed, &mut named)?;
    }
    while let Some(hash) = named.pop() {
        let sql = "SELECT bytes FROM blobs WHERE tenant = ? AND hash = ?";
        search_rows(connection, sql, params![tenant.as_str(), hash], &mut unnamed, &mut named)?;
    }
    let mut delete =
        connection.prepare("DELETE FROM blobs WHERE tenant = ? AND hash = ? RETURNING file IS NOT NULL, object")?;
    let swept = Swept { blobs: unnamed.len() as u64, bytes: unnamed.values().sum(), ..Swept::default() };
    let mut rows = SweptRows { swept, ..SweptRows::default() };
    for hash in unnamed.into_keys() {
        let columns = |row: &rusqlite::Row<'_>| Ok((row.get::<_, bool>(0)?, row.get::<_, Option<String>>(1)?));
        let found: Vec<_> = delete.query_map(params![tenant.as_str(), hash], columns)?.collect::<Result<_, _>>()?;
        match found.into_iter().next() {
            Some((_, Some(object))) => rows.objects.push(object),
            Some((true, None)) => rows.files.push(hash),
            _ => {}
        }
    }
    Ok(rows)
}

/// Returns the blobs of a tenant with their sizes.
fn sizes(connection: &Connection, tenant: &Tenant) -> Result<HashMap<String, u64>, rusqlite::Error> {
    let mut select = connection.prepare("SELECT hash, coalesce(file, length(bytes)) FROM blobs WHERE tenant = ?")?;
    select.query_map([tenant.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// Searches rows for hashes, and moves each hash that it finds from `unnamed` to `named`.
fn search_rows(
    connection: &Connection,
    sql: &str,
    values: &[&dyn rusqlite::ToSql],
    unnamed: &mut HashMap<String, u64>,
    named: &mut Vec<String>,
) -> Result<(), rusqlite::Error> {
    let mut select = connection.prepare_cached(sql)?;
    let columns = select.column_count();
    let mut rows = select.query(values)?;
    while let Some(row) = rows.next()?.filter(|_| !unnamed.is_empty()) {
        for column in 0..columns {
            if let ValueRef::Text(bytes) | ValueRef::Blob(bytes) = row.get_ref(column)? {
                named.extend(hashes(bytes).filter(|hash| unnamed.remove(*hash).is_some()).map(str::to_owned));
            }
        }
    }
    Ok(())
}

/// The blobs that this process has put a short time ago, and that a text may soon refer to.
pub(super) struct Recent {
    since: Instant,
    latest: HashSet<(Tenant, Arc<str>)>,
    /// The blobs that were put in the period of [`SPARED_MS`] before the present one. `latest` has those of the present
    /// one.
    before: HashSet<(Tenant, Arc<str>)>,
}

impl Default for Recent {
    fn default() -> Recent {
        Recent { since: Instant::now(), latest: HashSet::new(), before: HashSet::new() }
    }
}

impl Recent {
    /// Records a blob that is put now.
    pub(super) fn add(&mut self, now: Instant, tenant: &Tenant, hash: &Arc<str>) {
        self.age(now);
        self.latest.insert((tenant.clone(), hash.clone()));
    }

    /// Forgets blobs that were put longer ago than [`SPARED_MS`]. A blob may stay for about twice that time.
    pub(super) fn age(&mut self, now: Instant) {
        let (passed, spared) = (now.saturating_duration_since(self.since), Duration::from_millis(SPARED_MS));
        if passed > spared {
            self.before = std::mem::take(&mut self.latest);
            self.since = now;
        }
        if passed > spared * 2 {
            self.before.clear();
        }
    }

    /// Returns whether a blob was put a short time ago.
    pub(super) fn has(&self, tenant: &Tenant, hash: &str) -> bool {
        let key = (tenant.clone(), Arc::from(hash));
        self.latest.contains(&key) || self.before.contains(&key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_is_recent_for_a_while() {
        let (tenant, began) = (Tenant::local(), Instant::now());
        let mut recent = Recent::default();
        let time = |count: u32| began + (Duration::from_millis(SPARED_MS) + Duration::from_secs(60)) * count;
        let put = ["a", "b", "c"].map(Arc::from);
        (0..).zip(&put).for_each(|(count, hash)| recent.add(time(count), &tenant, hash));
        let has = |recent: &Recent| put.each_ref().map(|hash| recent.has(&tenant, hash));
        assert_eq!(has(&recent), [false, true, true]);
        recent.age(time(3));
        assert_eq!(has(&recent), [false, false, true]);
        recent.add(time(3), &tenant, &put[0]);
        recent.age(time(5));
        assert_eq!(has(&recent), [false, false, false]);
        recent.add(time(5), &tenant, &put[0]);
        assert!(!recent.has(&Tenant::from("other"), "a"));
    }
}
