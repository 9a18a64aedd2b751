//! Blobs that nothing names any more.
//!
//! Everything that is kept is looked through for hashes, as in the embedded store. Other processes may be about to name
//! what they have put: a blob is spared until nobody has put it for a while.

use std::collections::HashMap;

use flowcell_contract::Tenant;

use super::{
    Shared,
    link::{Arg, Link, Trouble, args, holes},
};
use crate::rows::{Swept, hashes};

/// Milliseconds for which what came of a message is kept, so that a repeated one is recognised.
const KEPT_MS: u64 = 24 * 3_600 * 1_000;
/// Rows that are looked through at a time.
const PAGE: u64 = 200;
/// Blobs that are removed with one statement.
const REMOVED: usize = 200;

/// Removes the blobs of a tenant that nothing names, but not those that are spared.
pub(super) async fn sweep(shared: &Shared, link: &mut Link, tenant: &Tenant) -> Result<Swept, Trouble> {
    let before = super::beside::now(link).await? - shared.options.spared.as_millis() as i64;
    let mut unnamed: HashMap<String, u64> = HashMap::new();
    let mut named = Vec::new();
    for row in
        link.rows("SELECT hash, size, put_at FROM flowcell_blobs WHERE tenant = ?", args![tenant.as_str()]).await?
    {
        let hash = row.text(0)?;
        if row.int(2)? > before {
            named.push(hash);
        } else {
            unnamed.insert(hash, row.number(1)?);
        }
    }
    look_at_runs(link, tenant, &mut unnamed, &mut named).await?;
    look_at_state(link, tenant, &mut unnamed, &mut named).await?;
    look_at_steps(link, tenant, &mut unnamed, &mut named).await?;
    look_at_files(link, tenant, &mut unnamed, &mut named).await?;
    while let Some(hash) = named.pop() {
        let sql = "SELECT bytes FROM flowcell_blobs WHERE tenant = ? AND hash = ?";
        if let Some(row) = link.row(sql, args![tenant.as_str(), hash]).await? {
            look_at(&row.bytes(0)?, &mut unnamed, &mut named);
        }
    }
    remove(link, tenant, before, unnamed).await
}

/// Moves the hashes that a text names from the unnamed to the named.
fn look_at(text: &[u8], unnamed: &mut HashMap<String, u64>, named: &mut Vec<String>) {
    named.extend(hashes(text).filter(|hash| unnamed.remove(*hash).is_some()).map(str::to_owned));
}

async fn look_at_runs(
    link: &mut Link,
    tenant: &Tenant,
    unnamed: &mut HashMap<String, u64>,
    named: &mut Vec<String>,
) -> Result<(), Trouble> {
    let mut run = 0;
    loop {
        let sql = "SELECT id, record FROM flowcell_runs WHERE tenant = ? AND id > ? ORDER BY id LIMIT 1";
        let Some(row) = link.row(sql, args![tenant.as_str(), run]).await?.filter(|_| !unnamed.is_empty()) else {
            return Ok(());
        };
        run = row.int(0)?;
        look_at(&row.bytes(1)?, unnamed, named);
        let mut from = -1;
        loop {
            let sql = "SELECT first_seq, body, cuts FROM flowcell_units WHERE run = ? AND first_seq > ?
                ORDER BY first_seq LIMIT ?";
            let page = link.rows(sql, args![run, from, PAGE]).await?;
            let Some(last) = page.last() else { break };
            from = last.int(0)?;
            for row in &page {
                look_at(&row.bytes(1)?, unnamed, named);
                look_at(row.maybe_text(2)?.unwrap_or_default().as_bytes(), unnamed, named);
            }
        }
    }
}

async fn look_at_steps(
    link: &mut Link,
    tenant: &Tenant,
    unnamed: &mut HashMap<String, u64>,
    named: &mut Vec<String>,
) -> Result<(), Trouble> {
    let mut after = String::new();
    loop {
        let sql = "SELECT session_id, args, output FROM flowcell_flow_states WHERE tenant = ? AND session_id > ?
            ORDER BY session_id LIMIT ?";
        let page = link.rows(sql, args![tenant.as_str(), after.as_str(), PAGE]).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.text(0)?;
        for row in &page {
            look_at(row.maybe_text(1)?.unwrap_or_default().as_bytes(), unnamed, named);
            look_at(row.maybe_text(2)?.unwrap_or_default().as_bytes(), unnamed, named);
        }
    }
}

/// Files that somebody has put.
async fn look_at_files(
    link: &mut Link,
    tenant: &Tenant,
    unnamed: &mut HashMap<String, u64>,
    named: &mut Vec<String>,
) -> Result<(), Trouble> {
    let mut after = String::new();
    loop {
        let sql = "SELECT name, value FROM flowcell_registry WHERE tenant = ? AND kind = 'file' AND name > ?
            ORDER BY name LIMIT ?";
        let page = link.rows(sql, args![tenant.as_str(), after.as_str(), PAGE]).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.text(0)?;
        for row in &page {
            look_at(row.text(1)?.as_bytes(), unnamed, named);
        }
    }
}

async fn look_at_state(
    link: &mut Link,
    tenant: &Tenant,
    unnamed: &mut HashMap<String, u64>,
    named: &mut Vec<String>,
) -> Result<(), Trouble> {
    let mut after = (String::new(), String::new());
    loop {
        let sql = "SELECT flow, name, value, cuts FROM flowcell_state WHERE tenant = ? AND (flow > ? OR (flow = ? AND name > ?))
            ORDER BY flow, name LIMIT ?";
        let (flow, name) = (after.0.as_str(), after.1.as_str());
        let page = link.rows(sql, args![tenant.as_str(), flow, flow, name, PAGE]).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = (last.text(0)?, last.text(1)?);
        for row in &page {
            look_at(&row.bytes(2)?, unnamed, named);
            look_at(row.maybe_text(3)?.unwrap_or_default().as_bytes(), unnamed, named);
        }
    }
}

/// Removes blobs that nobody has put meanwhile.
async fn remove(
    link: &mut Link,
    tenant: &Tenant,
    before: i64,
    unnamed: HashMap<String, u64>,
) -> Result<Swept, Trouble> {
    let mut swept = Swept::default();
    let mut hashes: Vec<(String, u64)> = unnamed.into_iter().collect();
    hashes.sort();
    for some in hashes.chunks(REMOVED) {
        let of = |hash: &str| args![tenant.as_str(), before].into_iter().chain(args![hash]).collect::<Vec<Arg>>();
        let places = holes(some.len());
        let all =
            args![tenant.as_str(), before].into_iter().chain(some.iter().map(|(hash, _)| Arg::from(hash.as_str())));
        let sql = format!(
            "SELECT hash FROM flowcell_blobs WHERE tenant = ? AND put_at <= ? AND hash IN ({places}) FOR UPDATE"
        );
        let still: Vec<String> =
            link.rows(&sql, all.collect()).await?.iter().map(|row| row.text(0)).collect::<Result<_, _>>()?;
        for (hash, size) in some.iter().filter(|(hash, _)| still.contains(hash)) {
            let sql = "DELETE FROM flowcell_blobs WHERE tenant = ? AND put_at <= ? AND hash = ?";
            link.run(sql, of(hash)).await?;
            swept.blobs += 1;
            swept.bytes += size;
        }
    }
    Ok(swept)
}

/// Removes messages that are over for so long that nobody sends them again.
pub(super) async fn old_messages(link: &mut Link) -> Result<(), Trouble> {
    let old = "DELETE FROM flowcell_inbox WHERE outcome IS NOT NULL AND put_at < {now} - ?";
    link.run(old, args![KEPT_MS]).await.map(drop)
}
