//! Blobs that nothing names any more.
//!
//! Everything that is kept is looked through for hashes: rows of runs, state and files, and blobs that are named themselves. So a
//! blob stays whoever names it, and in whatever way: as a large value of a row, as what a run has pinned, as a file in a
//! value. There is no count of references that a crash could leave wrong, and what a crash leaves behind goes with the next
//! sweep. It is done by the writer between two commits, so that nothing is written meanwhile.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use flowcell_contract::Tenant;
use rusqlite::{Connection, params, types::ValueRef};

pub(super) use crate::rows::Swept;
use crate::{limits::SPARED_MS, rows::hashes};

/// Texts of a tenant that may name blobs.
const TEXTS: [&str; 5] = [
    "SELECT record FROM runs WHERE tenant = ?",
    "SELECT body, cuts FROM units JOIN runs ON runs.id = units.run WHERE runs.tenant = ?",
    "SELECT value, cuts FROM state WHERE tenant = ?",
    "SELECT args, output FROM flow_states WHERE tenant = ?",
    // Files that somebody has put.
    "SELECT value FROM registry WHERE tenant = ? AND kind = 'file'",
];

/// Removes the blobs of a tenant that nothing names, but not those that are spared.
pub(super) fn sweep(
    connection: &Connection,
    tenant: &Tenant,
    spared: impl Fn(&str) -> bool,
) -> Result<Swept, rusqlite::Error> {
    let mut unnamed = sizes(connection, tenant)?;
    let mut named: Vec<String> = unnamed.keys().filter(|hash| spared(hash)).cloned().collect();
    named.iter().for_each(|hash| _ = unnamed.remove(hash));
    for sql in TEXTS {
        look_through(connection, sql, params![tenant.as_str()], &mut unnamed, &mut named)?;
    }
    while let Some(hash) = named.pop() {
        let sql = "SELECT bytes FROM blobs WHERE tenant = ? AND hash = ?";
        look_through(connection, sql, params![tenant.as_str(), hash], &mut unnamed, &mut named)?;
    }
    let mut delete = connection.prepare("DELETE FROM blobs WHERE tenant = ? AND hash = ?")?;
    unnamed.keys().try_for_each(|hash| delete.execute(params![tenant.as_str(), hash]).map(drop))?;
    Ok(Swept { blobs: unnamed.len() as u64, bytes: unnamed.values().sum() })
}

/// All blobs of a tenant, and how large they are.
fn sizes(connection: &Connection, tenant: &Tenant) -> Result<HashMap<String, u64>, rusqlite::Error> {
    let mut select = connection.prepare("SELECT hash, length(bytes) FROM blobs WHERE tenant = ?")?;
    select.query_map([tenant.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// Looks for hashes in rows, and moves those that it finds from the unnamed to the named.
fn look_through(
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

/// Blobs that somebody in this process may be about to name: those that it has put not long ago. What nobody has named by
/// the end of the process is not going to be.
pub(super) struct Recent {
    since: Instant,
    latest: HashSet<(Tenant, Arc<str>)>,
    /// Those that were put in the time before.
    before: HashSet<(Tenant, Arc<str>)>,
}

impl Default for Recent {
    fn default() -> Recent {
        Recent { since: Instant::now(), latest: HashSet::new(), before: HashSet::new() }
    }
}

impl Recent {
    /// A blob is put now.
    pub(super) fn add(&mut self, now: Instant, tenant: &Tenant, hash: &Arc<str>) {
        self.age(now);
        self.latest.insert((tenant.clone(), hash.clone()));
    }

    /// Forgets what was put long ago: more than [`SPARED_MS`] for certain, and soon after twice that time.
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

    /// Whether a blob was put not long ago.
    pub(super) fn has(&self, tenant: &Tenant, hash: &str) -> bool {
        let key = (tenant.clone(), Arc::from(hash));
        self.latest.contains(&key) || self.before.contains(&key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_is_recent_for_a_while() {
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
