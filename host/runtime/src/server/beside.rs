//! What a commit writes beside units: blobs, state, messages that were taken in, the cache, and what is removed.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use flowcell_contract::{RunId, Tenant};

use super::{
    Shared,
    link::{Arg, Link, Trouble, args, holes},
    queue::Item,
    sessions,
    values::{hash, text, unwritable},
};
use crate::{fact::Write, limits::MAX_CACHE_ENTRIES, ports::Entry, rows::cut::Pieces};

/// The media type of what is cut out of rows.
pub(super) const MIME: &str = "application/json";

/// Bytes to keep, each once.
#[derive(Default)]
pub(super) struct Bytes {
    seen: HashSet<(Tenant, Arc<str>)>,
    tenants: BTreeMap<String, Vec<Blob>>,
}

/// Its hash, what it is, and of which media type.
type Blob = (Arc<str>, Arc<[u8]>, Box<str>);

impl Bytes {
    /// Those that somebody has put.
    pub(super) fn of(items: &[Item]) -> Bytes {
        let mut all = Bytes::default();
        for item in items {
            if let Item::Blob { tenant, hash, bytes, mime } = item {
                all.put(tenant, hash.clone(), bytes.clone(), mime);
            }
        }
        all
    }

    /// Those that were cut out of a row.
    pub(super) fn add(&mut self, tenant: &Tenant, cut: Vec<(Arc<str>, String)>) {
        cut.into_iter().for_each(|(hash, text)| self.put(tenant, hash, text.into_bytes().into(), MIME));
    }

    fn put(&mut self, tenant: &Tenant, hash: Arc<str>, bytes: Arc<[u8]>, mime: &str) {
        if self.seen.insert((tenant.clone(), hash.clone())) {
            self.tenants.entry(tenant.as_str().to_owned()).or_default().push((hash, bytes, mime.into()));
        }
    }

    /// Writes those that the tenants do not have. Those that they have become young again, so that no sweep takes them
    /// before they are named.
    pub(super) async fn write(self, shared: &Shared, link: &mut Link) -> Result<(), Trouble> {
        for (tenant, mut blobs) in self.tenants {
            blobs.sort_by(|a, b| a.0.cmp(&b.0));
            for some in blobs.chunks(ASKED) {
                write_some(shared, link, &tenant, some).await?;
            }
        }
        Ok(())
    }
}

/// Blobs that are asked for at a time.
const ASKED: usize = 64;

async fn write_some(shared: &Shared, link: &mut Link, tenant: &str, blobs: &[Blob]) -> Result<(), Trouble> {
    let places = holes(blobs.len());
    let sql =
        format!("SELECT hash FROM flowcell_blobs WHERE tenant = ? AND hash IN ({places}) ORDER BY hash FOR UPDATE");
    let wanted = || args![tenant].into_iter().chain(blobs.iter().map(|(hash, ..)| Arg::from(&**hash)));
    let found = link.rows(&sql, wanted().collect()).await?;
    let known: HashSet<String> = found.iter().map(|row| row.text(0)).collect::<Result<_, _>>()?;
    if !known.is_empty() {
        // Not with every use: a row is written only now and then.
        let age = (shared.options.spared.as_millis() / 24) as u64;
        let sql = format!(
            "UPDATE flowcell_blobs SET put_at = {{now}} WHERE tenant = ? AND hash IN ({places}) AND put_at <= {{now}} - ?"
        );
        link.run(&sql, wanted().chain(args![age]).collect()).await?;
    }
    let missing: Vec<_> = blobs.iter().filter(|(hash, ..)| !known.contains(&**hash)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let now = now(link).await?;
    let row = |(hash, bytes, mime): &&Blob| args![tenant, &**hash, &**mime, bytes.len() as u64, bytes.clone(), now];
    let after = link.dialect().or_update("tenant, hash", &["put_at"]);
    let into = "flowcell_blobs (tenant, hash, mime, size, bytes, put_at)";
    link.insert(into, missing.iter().map(row).collect(), &after).await
}

/// The time of the server's clock.
pub(super) async fn now(link: &mut Link) -> Result<i64, Trouble> {
    link.row("SELECT {now}", args![]).await?.map_or(Ok(0), |row| row.int(0))
}

/// Writes everything that is neither a unit nor a blob of one.
pub(super) async fn write(shared: &Shared, link: &mut Link, entries: &[&Entry], items: &[Item]) -> Result<(), Trouble> {
    write_state(shared, link, entries).await?;
    sessions::write(link, entries).await?;
    let delivered: Vec<Arg> = entries.iter().filter_map(|entry| entry.delivered.map(Arg::from)).collect();
    if !delivered.is_empty() {
        let places = holes(delivered.len());
        let sql = format!("UPDATE flowcell_inbox SET outcome = ? WHERE id IN ({places}) AND outcome IS NULL");
        link.run(&sql, args![TAKEN].into_iter().chain(delivered).collect()).await?;
    }
    write_cache(link, items).await?;
    for item in items {
        if let Item::Forget { tenant, run } = item {
            forget(shared, link, tenant, run).await?;
        }
    }
    let released: Vec<Arg> = items
        .iter()
        .filter_map(|item| if let Item::Release(grant) = item { shared.claims.row(grant) } else { None })
        .map(Arg::from)
        .collect();
    if released.is_empty() {
        return Ok(());
    }
    let sql = format!("UPDATE flowcell_runs SET owner = NULL WHERE owner = ? AND id IN ({})", holes(released.len()));
    link.run(&sql, args![shared.claims.owner()].into_iter().chain(released).collect()).await.map(drop)
}

/// The outcome of a message that a run has taken in.
pub(super) const TAKEN: &str = "{\"Ok\":null}";

/// What is written of a flow's state: the version that is expected, and what replaces it.
type Changes<'a> = BTreeMap<&'a str, (u64, &'a Write, u64)>;

/// Writes state whose version is still the one that was seen. Else the runs of the flow have seen what is not so, and are
/// given up.
async fn write_state(shared: &Shared, link: &mut Link, entries: &[&Entry]) -> Result<(), Trouble> {
    let mut flows: BTreeMap<(&str, &str), Changes<'_>> = BTreeMap::new();
    for entry in entries {
        let Some(staged) = &entry.writes else { continue };
        let changes = flows.entry((entry.tenant.as_str(), &staged.flow)).or_default();
        for (write, version) in &staged.writes {
            let change = changes.entry(&write.key).or_insert((version - 1, write, *version));
            (change.1, change.2) = (write, *version);
        }
    }
    for ((tenant, flow), changes) in flows {
        let sql = format!(
            "SELECT name, version FROM flowcell_state WHERE tenant = ? AND flow = ? AND name IN ({}) ORDER BY name FOR UPDATE",
            holes(changes.len())
        );
        let names = changes.keys().map(|name| Arg::from(*name));
        let mut known = BTreeMap::new();
        for row in link.rows(&sql, args![tenant, flow].into_iter().chain(names).collect()).await? {
            known.insert(row.text(0)?, row.number(1)?);
        }
        if changes.iter().any(|(name, (seen, ..))| known.get(*name).copied().unwrap_or(0) != *seen) {
            shared.distrust(&Tenant::from(tenant), flow);
            return Err(Trouble::Again);
        }
        replace(link, tenant, flow, &changes, |name| known.contains_key(name)).await?;
    }
    Ok(())
}

async fn replace(
    link: &mut Link,
    tenant: &str,
    flow: &str,
    changes: &Changes<'_>,
    is_known: impl Fn(&str) -> bool,
) -> Result<(), Trouble> {
    let (mut blobs, mut new, mut old) = (Bytes::default(), Vec::new(), Vec::new());
    for (name, (_, write, version)) in changes {
        let value = Pieces::of_value(text(&write.value)?).map_err(unwritable)?;
        blobs.add(&Tenant::from(tenant), value.blobs);
        let row = args![tenant, flow, *name, value.text, value.cuts, *version];
        if is_known(name) { old.push(row) } else { new.push(row) }
    }
    for (hash, bytes, mime) in blobs.tenants.into_values().flatten() {
        let now = now(link).await?;
        let after = link.dialect().or_update("tenant, hash", &["put_at"]);
        let row = args![tenant, &*hash, &*mime, bytes.len() as u64, bytes, now];
        link.insert("flowcell_blobs (tenant, hash, mime, size, bytes, put_at)", vec![row], &after).await?;
    }
    let into = "flowcell_state (tenant, flow, name, value, cuts, version)";
    let after = link.dialect().or_update("tenant, flow, name", &["value", "cuts", "version"]);
    link.insert(into, old, &after).await?;
    // Somebody else may have made the row meanwhile.
    link.insert(into, new, "").await.map_err(|trouble| if trouble.is_double() { Trouble::Again } else { trouble })
}

async fn write_cache(link: &mut Link, items: &[Item]) -> Result<(), Trouble> {
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
    let row = |((tenant, key), (value, expires)): ((&str, &str), (&flowcell_contract::Value, Option<u64>))| {
        args![tenant, key, value.text().to_owned(), expires]
    };
    let rows = latest.into_iter().map(row).collect();
    let after = link.dialect().or_update("tenant, name", &["value", "expires"]);
    link.insert("flowcell_cache (tenant, name, value, expires)", rows, &after).await?;
    for tenant in tenants {
        let sql = "SELECT id FROM flowcell_cache WHERE tenant = ? ORDER BY id DESC LIMIT 1 OFFSET ?";
        if let Some(row) = link.row(sql, args![tenant, MAX_CACHE_ENTRIES as u64]).await? {
            let sql = "DELETE FROM flowcell_cache WHERE tenant = ? AND id <= ?";
            link.run(sql, args![tenant, row.int(0)?]).await?;
        }
    }
    Ok(())
}

/// Removes the facts of a run and of the runs below it, unless another process drives it. Of the run itself a tombstone is
/// left, so that its id is not used again.
async fn forget(shared: &Shared, link: &mut Link, tenant: &Tenant, run: &RunId) -> Result<(), Trouble> {
    let sql = "SELECT id FROM flowcell_runs WHERE tenant = ? AND hash = ? AND (owner IS NULL OR owner = ?
        OR owner NOT IN (SELECT id FROM flowcell_owners WHERE until > {now})) FOR UPDATE";
    let owner = shared.claims.owner();
    let Some(row) = link.row(sql, args![tenant.as_str(), hash(run.as_str()), owner]).await? else { return Ok(()) };
    let id = row.int(0)?;
    let all = link.rows("SELECT id FROM flowcell_runs WHERE id = ? OR top = ?", args![id, id]).await?;
    for row in all {
        link.run("DELETE FROM flowcell_units WHERE run = ?", args![row.int(0)?]).await?;
    }
    link.run("DELETE FROM flowcell_runs WHERE top = ?", args![id]).await?;
    let tombstone = "UPDATE flowcell_runs SET standing = 'removed', record = ?, due = NULL, next_seq = 0, tail = 0
        WHERE id = ?";
    link.run(tombstone, args!["", id]).await.map(drop)
}
