//! The sweep: the removal of blobs that nothing refers to.
//!
//! A sweep searches all stored texts for hashes, as in the embedded store. Texts of other processes may soon refer to
//! blobs that those processes have put, so the sweep spares recent blobs.

use std::collections::HashMap;

use flowcell_contract::{RunId, Tenant};

use super::{
    Shared, SharedStore,
    connection::{Arg, Connection, SqlError, args, placeholders},
    queue::{SweptRows, Turn},
};
use crate::ports::{Removed, Removing, StoreError, Sweep, Swept, hashes};

impl Sweep for SharedStore {
    fn remove(&self, tenant: &Tenant, runs: &[RunId], removing: Removing) -> Result<Removed, StoreError> {
        let (tenant, runs) = (tenant.clone(), runs.into());
        self.worker.turn(|answer| Turn::Remove { tenant, runs, removing, answer })
    }

    fn sweep(&self, tenant: &Tenant) -> Result<Swept, StoreError> {
        let rows = self.worker.turn(|answer| Turn::Sweep(tenant.clone(), answer))?;
        Ok(rows.swept.with_objects(self.remove_objects(tenant, &rows.objects)))
    }
}

/// The time for which the store keeps the outcome of a message to recognise repeated messages, in milliseconds.
const OUTCOME_KEPT_MS: u64 = 24 * 3_600 * 1_000;
/// The maximum number of rows of one read.
const PAGE_ROWS: u64 = 200;
/// The maximum number of blobs of one statement.
const MAX_REMOVED: usize = 200;

/// Removes the blobs of a tenant that no text refers to, except the spared ones.
pub(super) async fn sweep(
    shared: &Shared,
    connection: &mut Connection,
    tenant: &Tenant,
) -> Result<SweptRows, SqlError> {
    let before = connection.now().await? - shared.options.spared.as_millis() as i64;
    let mut unnamed: HashMap<String, u64> = HashMap::new();
    let mut named = Vec::new();
    for row in connection
        .rows("SELECT hash, size, put_at FROM flowcell_blobs WHERE tenant = ?", args![tenant.as_str()])
        .await?
    {
        let hash = row.text(0)?;
        if row.int(2)? > before {
            named.push(hash);
        } else {
            unnamed.insert(hash, row.number(1)?);
        }
    }
    search_runs(connection, tenant, &mut unnamed, &mut named).await?;
    search_state(connection, tenant, &mut unnamed, &mut named).await?;
    search_steps(connection, tenant, &mut unnamed, &mut named).await?;
    search_files(connection, tenant, &mut unnamed, &mut named).await?;
    while let Some(hash) = named.pop() {
        let sql = "SELECT bytes FROM flowcell_blobs WHERE tenant = ? AND hash = ?";
        if let Some(row) = connection.row(sql, args![tenant.as_str(), hash]).await? {
            search_text(&row.bytes(0)?, &mut unnamed, &mut named);
        }
    }
    remove(connection, tenant, before, unnamed).await
}

/// Searches a text for the hashes of blobs, and moves each hash that it contains from `unnamed` to `named`.
fn search_text(text: &[u8], unnamed: &mut HashMap<String, u64>, named: &mut Vec<String>) {
    named.extend(hashes(text).filter(|hash| unnamed.remove(*hash).is_some()).map(str::to_owned));
}

async fn search_runs(
    connection: &mut Connection,
    tenant: &Tenant,
    unnamed: &mut HashMap<String, u64>,
    named: &mut Vec<String>,
) -> Result<(), SqlError> {
    let mut run = 0;
    loop {
        let sql = "SELECT id, record FROM flowcell_runs WHERE tenant = ? AND id > ? ORDER BY id LIMIT 1";
        let Some(row) = connection.row(sql, args![tenant.as_str(), run]).await?.filter(|_| !unnamed.is_empty()) else {
            return Ok(());
        };
        run = row.int(0)?;
        search_text(&row.bytes(1)?, unnamed, named);
        let mut from = -1;
        loop {
            let sql = "SELECT first_seq, body, cuts FROM flowcell_units WHERE run = ? AND first_seq > ?
                ORDER BY first_seq LIMIT ?";
            let page = connection.rows(sql, args![run, from, PAGE_ROWS]).await?;
            let Some(last) = page.last() else { break };
            from = last.int(0)?;
            for row in &page {
                search_text(&row.bytes(1)?, unnamed, named);
                search_text(row.maybe_text(2)?.unwrap_or_default().as_bytes(), unnamed, named);
            }
        }
    }
}

async fn search_steps(
    connection: &mut Connection,
    tenant: &Tenant,
    unnamed: &mut HashMap<String, u64>,
    named: &mut Vec<String>,
) -> Result<(), SqlError> {
    let mut after = String::new();
    loop {
        let sql = "SELECT session_id, args, output FROM flowcell_flow_states WHERE tenant = ? AND session_id > ?
            ORDER BY session_id LIMIT ?";
        let page = connection.rows(sql, args![tenant.as_str(), after.as_str(), PAGE_ROWS]).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.text(0)?;
        for row in &page {
            search_text(row.maybe_text(1)?.unwrap_or_default().as_bytes(), unnamed, named);
            search_text(row.maybe_text(2)?.unwrap_or_default().as_bytes(), unnamed, named);
        }
    }
}

/// Searches the documents about uploaded files, which contain the hashes of the files, and those about packs.
async fn search_files(
    connection: &mut Connection,
    tenant: &Tenant,
    unnamed: &mut HashMap<String, u64>,
    named: &mut Vec<String>,
) -> Result<(), SqlError> {
    let mut after = String::new();
    loop {
        let sql =
            "SELECT name, value FROM flowcell_registry WHERE tenant = ? AND kind IN ('file', 'packs') AND name > ?
            ORDER BY name LIMIT ?";
        let page = connection.rows(sql, args![tenant.as_str(), after.as_str(), PAGE_ROWS]).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.text(0)?;
        for row in &page {
            search_text(row.text(1)?.as_bytes(), unnamed, named);
        }
    }
}

async fn search_state(
    connection: &mut Connection,
    tenant: &Tenant,
    unnamed: &mut HashMap<String, u64>,
    named: &mut Vec<String>,
) -> Result<(), SqlError> {
    let mut after = (String::new(), String::new());
    loop {
        let sql = "SELECT flow, name, value, cuts FROM flowcell_state WHERE tenant = ? AND (flow > ? OR (flow = ? AND name > ?))
            ORDER BY flow, name LIMIT ?";
        let (flow, name) = (after.0.as_str(), after.1.as_str());
        let page = connection.rows(sql, args![tenant.as_str(), flow, flow, name, PAGE_ROWS]).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = (last.text(0)?, last.text(1)?);
        for row in &page {
            search_text(&row.bytes(2)?, unnamed, named);
            search_text(row.maybe_text(3)?.unwrap_or_default().as_bytes(), unnamed, named);
        }
    }
}

/// Removes blobs, except those that a process has put again meanwhile.
async fn remove(
    connection: &mut Connection,
    tenant: &Tenant,
    before: i64,
    unnamed: HashMap<String, u64>,
) -> Result<SweptRows, SqlError> {
    let mut removed = SweptRows::default();
    let mut hashes: Vec<(String, u64)> = unnamed.into_iter().collect();
    hashes.sort();
    for some in hashes.chunks(MAX_REMOVED) {
        let of = |hash: &str| args![tenant.as_str(), before].into_iter().chain(args![hash]).collect::<Vec<Arg>>();
        let places = placeholders(some.len());
        let all =
            args![tenant.as_str(), before].into_iter().chain(some.iter().map(|(hash, _)| Arg::from(hash.as_str())));
        let sql = format!(
            "SELECT hash, object FROM flowcell_blobs WHERE tenant = ? AND put_at <= ? AND hash IN ({places}) FOR UPDATE"
        );
        let mut still: HashMap<String, Option<String>> = HashMap::new();
        for row in connection.rows(&sql, all.collect()).await? {
            still.insert(row.text(0)?, row.maybe_text(1)?);
        }
        for (hash, size) in some {
            let Some(object) = still.remove(hash) else { continue };
            let sql = "DELETE FROM flowcell_blobs WHERE tenant = ? AND put_at <= ? AND hash = ?";
            connection.run(sql, of(hash)).await?;
            removed.swept.blobs += 1;
            removed.swept.bytes += size;
            removed.objects.extend(object);
        }
    }
    Ok(removed)
}

/// Removes old messages that have an outcome, because their senders no longer repeat them.
pub(super) async fn remove_old_messages(connection: &mut Connection) -> Result<(), SqlError> {
    let old = "DELETE FROM flowcell_inbox WHERE outcome IS NOT NULL AND put_at < {now} - ?";
    connection.run(old, args![OUTCOME_KEPT_MS]).await.map(drop)
}
