//! Everything that is read: always of what is committed, by whatever process.

use std::{collections::HashMap, sync::Arc};

use flowcell_contract::{RunId, Tenant, Value};

use super::{
    link::{Arg, Link, Row, Trouble, args},
    values::hash,
};
use crate::{
    limits::READ_BYTES,
    memory::blob_ref,
    ports::{Record, StoreError, Unit},
    rows::{Filter, Place, RunRow, UnitRow, cut::fill, damaged, removed},
};

/// Rows of a journal that are asked for at a time.
const PAGE: usize = 100;

/// What a question is answered with: an answer, or why what is kept is no answer.
pub(super) type Answer<T> = Result<Result<T, StoreError>, Trouble>;

/// What is known of a run beside its facts.
pub(super) async fn find(link: &mut Link, tenant: &Tenant, run: &RunId) -> Answer<Option<Record>> {
    let sql = "SELECT record FROM flowcell_runs WHERE tenant = ? AND hash = ?";
    let Some(row) = link.row(sql, args![tenant.as_str(), hash(run.as_str())]).await? else { return Ok(Ok(None)) };
    let text = row.text(0)?;
    if text.is_empty() {
        return Ok(Err(removed(run)));
    }
    Ok(serde_json::from_str(&text).map(Some).map_err(|error| damaged(run, &error)))
}

/// Units of a run, in order: from the one that holds the fact `from`, and at most `limit`.
pub(super) async fn units(
    link: &mut Link,
    tenant: &Tenant,
    run: &RunId,
    from: u64,
    limit: usize,
) -> Answer<Vec<Arc<Unit>>> {
    link.snapshot().await?;
    let units = units_now(link, tenant, run, from, limit).await;
    link.roll_back().await;
    units
}

async fn units_now(link: &mut Link, tenant: &Tenant, run: &RunId, from: u64, limit: usize) -> Answer<Vec<Arc<Unit>>> {
    let sql = "SELECT id, next_seq, tail FROM flowcell_runs WHERE tenant = ? AND hash = ?";
    let Some(row) = link.row(sql, args![tenant.as_str(), hash(run.as_str())]).await? else { return Ok(Ok(Vec::new())) };
    let (id, end) = (row.int(0)?, Place { next_seq: row.number(1)?, checksum: row.number(2)? as u32 });
    let mut at = place_before(link, id, from).await?;
    let mut cut_out = CutOut::new(tenant);
    let (mut units, mut bytes) = (Vec::new(), 0);
    while units.len() < limit && bytes < READ_BYTES {
        let page = PAGE.min(limit - units.len());
        let sql = "SELECT first_seq, facts, ts, body, cuts, checksum FROM flowcell_units
            WHERE run = ? AND first_seq >= ? ORDER BY first_seq LIMIT ?";
        let rows = link.rows(sql, args![id, at.next_seq, page as u64]).await?;
        if rows.is_empty() {
            return Ok(at.check_end(end, run).map(|()| units));
        }
        for row in rows {
            let mut stored = unit_row(&row)?;
            if let Err(error) = stored.check(at, run) {
                return Ok(Err(error));
            }
            at = stored.place_after();
            let body = cut_out.put_back(link, std::mem::take(&mut stored.body), stored.cuts.as_deref()).await?;
            let (unit, size) = match stored.whole(body, run) {
                Ok(whole) => whole,
                Err(error) => return Ok(Err(error)),
            };
            bytes += size;
            units.push(Arc::new(unit));
            if bytes >= READ_BYTES {
                break;
            }
        }
    }
    Ok(Ok(units))
}

fn unit_row(row: &Row) -> Result<UnitRow, Trouble> {
    Ok(UnitRow {
        first_seq: row.number(0)?,
        facts: row.number(1)?,
        ts: row.number(2)?,
        body: row.text(3)?,
        cuts: row.maybe_text(4)?,
        checksum: row.number(5)? as u32,
    })
}

/// The place in a journal before the unit that holds a fact.
async fn place_before(link: &mut Link, id: i64, fact: u64) -> Result<Place, Trouble> {
    // A unit has a fact: the first question is for the index, which else would be gone through from its end.
    let sql = "SELECT first_seq + facts, checksum FROM flowcell_units
        WHERE run = ? AND first_seq < ? AND first_seq + facts <= ? ORDER BY first_seq DESC LIMIT 1";
    let fact = fact.min(i64::MAX as u64);
    let found = link.row(sql, args![id, fact, fact]).await?;
    found.map_or(Ok(Place::default()), |row| Ok(Place { next_seq: row.number(0)?, checksum: row.number(1)? as u32 }))
}

/// What was cut out of the rows of a tenant. It remembers what it has read.
struct CutOut<'a> {
    tenant: &'a Tenant,
    read: HashMap<String, Arc<str>>,
}

impl<'a> CutOut<'a> {
    fn new(tenant: &'a Tenant) -> CutOut<'a> {
        CutOut { tenant, read: HashMap::new() }
    }

    /// The text as it was before something was cut out of it, or why it cannot be had.
    async fn put_back(
        &mut self,
        link: &mut Link,
        text: String,
        cuts: Option<&str>,
    ) -> Result<Result<String, String>, Trouble> {
        let Some(cuts) = cuts else { return Ok(Ok(text)) };
        for name in crate::rows::hashes(cuts.as_bytes()) {
            if self.read.contains_key(name) {
                continue;
            }
            let Some(bytes) = blob(link, self.tenant, name).await? else {
                return Ok(Err(format!("the blob {name} is missing")));
            };
            let text = String::from_utf8(bytes).ok().filter(|text| *blob_ref(text.as_bytes(), "").file_id == *name);
            let Some(text) = text else { return Ok(Err(format!("the blob {name} has another content"))) };
            self.read.insert(name.to_owned(), text.into());
        }
        let known = |hash: &str| self.read.get(hash).cloned().ok_or_else(|| format!("the blob {hash} is missing"));
        Ok(fill(&text, cuts, known))
    }
}

/// The bytes of a blob.
pub(super) async fn blob(link: &mut Link, tenant: &Tenant, hash: &str) -> Result<Option<Vec<u8>>, Trouble> {
    let sql = "SELECT bytes FROM flowcell_blobs WHERE tenant = ? AND hash = ?";
    link.row(sql, args![tenant.as_str(), hash]).await?.map(|row| row.bytes(0)).transpose()
}

/// A value of a flow's state, and its version.
pub(super) async fn state(link: &mut Link, tenant: &Tenant, flow: &str, key: &str) -> Answer<Option<(Value, u64)>> {
    let sql = "SELECT value, cuts, version FROM flowcell_state WHERE tenant = ? AND flow = ? AND name = ?";
    let Some(row) = link.row(sql, args![tenant.as_str(), flow, key]).await? else { return Ok(Ok(None)) };
    let text = CutOut::new(tenant).put_back(link, row.text(0)?, row.maybe_text(1)?.as_deref()).await?;
    let version = row.number(2)?;
    let value = text.and_then(|text| Value::restore(text).map_err(|error| format!("it is not JSON: {error}")));
    let damaged = |why| StoreError(format!("the state `{key}` of the flow `{flow}` is damaged: {why}").into());
    Ok(value.map(|value| Some((value, version))).map_err(damaged))
}

/// A value of the cache that has not expired at `now`.
pub(super) async fn cached(link: &mut Link, tenant: &Tenant, key: &str, now: u64) -> Result<Option<Value>, Trouble> {
    let sql = "SELECT value FROM flowcell_cache WHERE tenant = ? AND name = ? AND (expires IS NULL OR expires > ?)";
    let row = link.row(sql, args![tenant.as_str(), key, now]).await?;
    // What cannot be read was forgotten.
    Ok(row.map(|row| row.text(0)).transpose()?.and_then(|text| Value::restore(text).ok()))
}

/// The columns that the row of a list is made from.
const RUN_COLUMNS: &str =
    "run, flow, CASE WHEN standing = 'parked' AND attention = 1 THEN 'needs_attention' ELSE standing END,
    created, updated, due";

fn run_row(row: &Row) -> Result<RunRow, Trouble> {
    Ok(RunRow {
        run_id: RunId::from(row.text(0)?),
        flow: row.text(1)?,
        status: row.text(2)?,
        created: row.number(3)?,
        updated: row.number(4)?,
        due: row.maybe_number(5)?,
    })
}

pub(super) async fn run(link: &mut Link, tenant: &Tenant, run: &RunId) -> Result<Option<(RunRow, u64)>, Trouble> {
    let sql = format!("SELECT {RUN_COLUMNS}, next_seq FROM flowcell_runs WHERE tenant = ? AND hash = ?");
    let row = link.row(&sql, args![tenant.as_str(), hash(run.as_str())]).await?;
    row.map(|row| Ok((run_row(&row)?, row.number(6)?))).transpose()
}

pub(super) async fn children(link: &mut Link, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, Trouble> {
    let sql =
        "SELECT run FROM flowcell_runs WHERE parent = (SELECT id FROM flowcell_runs WHERE tenant = ? AND hash = ?)
        ORDER BY id";
    ids(link, sql, args![tenant.as_str(), hash(run.as_str())]).await
}

pub(super) async fn left_below(link: &mut Link, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, Trouble> {
    let sql =
        "SELECT run FROM flowcell_runs WHERE parent = (SELECT id FROM flowcell_runs WHERE tenant = ? AND hash = ?)
        AND standing IN ('active', 'parked') ORDER BY id";
    ids(link, sql, args![tenant.as_str(), hash(run.as_str())]).await
}

pub(super) async fn runs(link: &mut Link, tenant: &Tenant, filter: &Filter) -> Result<Vec<RunRow>, Trouble> {
    let mut sql =
        format!("SELECT {RUN_COLUMNS} FROM flowcell_runs WHERE tenant = ? AND depth = 0 AND standing <> 'removed'");
    let mut args = args![tenant.as_str()];
    if let Some(flow) = &filter.flow {
        sql.push_str(" AND flow = ?");
        args.push(flow.as_str().into());
    }
    match filter.status.as_deref() {
        None => {}
        Some("needs_attention") => sql.push_str(" AND standing = 'parked' AND attention = 1"),
        Some("parked") => sql.push_str(" AND standing = 'parked' AND attention = 0"),
        Some(status) => {
            let known = ["active", "succeeded", "failed", "cancelled"].into_iter().find(|known| *known == status);
            sql.push_str(" AND standing = ?");
            args.push(Arg::Word(known.unwrap_or("none")));
        }
    }
    if let Some(after) = &filter.after {
        sql.push_str(" AND (created, id) < (SELECT created, id FROM flowcell_runs WHERE tenant = ? AND run = ?)");
        args.extend([tenant.as_str().into(), after.as_str().into()]);
    }
    sql.push_str(" ORDER BY created DESC, id DESC LIMIT ?");
    args.push(limit(filter.limit));
    link.rows(&sql, args).await?.iter().map(run_row).collect()
}

pub(super) async fn live(link: &mut Link, tenant: &Tenant, most: u64) -> Result<u64, Trouble> {
    let sql = "SELECT count(*) FROM (SELECT id FROM flowcell_runs WHERE tenant = ? AND depth = 0
        AND standing IN ('active', 'parked') LIMIT ?) AS live";
    link.row(sql, args![tenant.as_str(), most]).await?.map_or(Ok(0), |row| row.number(0))
}

pub(super) async fn ended(
    link: &mut Link,
    tenant: &Tenant,
    since: u64,
    after: Option<&RunId>,
    most: usize,
) -> Result<Vec<RunRow>, Trouble> {
    let mut sql = format!(
        "SELECT {RUN_COLUMNS} FROM flowcell_runs WHERE tenant = ? AND depth = 0
        AND standing IN ('succeeded', 'failed', 'cancelled') AND updated >= ?"
    );
    let mut args = args![tenant.as_str(), since];
    if let Some(after) = after {
        sql.push_str(" AND (updated, id) > (SELECT updated, id FROM flowcell_runs WHERE tenant = ? AND hash = ?)");
        args.extend([tenant.as_str().into(), hash(after.as_str()).into()]);
    }
    sql.push_str(" ORDER BY updated, id LIMIT ?");
    args.push(limit(most));
    link.rows(&sql, args).await?.iter().map(run_row).collect()
}

pub(super) async fn removable(
    link: &mut Link,
    tenant: &Tenant,
    before: Option<u64>,
    keep: Option<u64>,
) -> Result<Vec<RunId>, Trouble> {
    let sql = "SELECT run FROM (
            SELECT run, updated, row_number() OVER (ORDER BY updated DESC, id DESC) AS place FROM flowcell_runs
            WHERE tenant = ? AND depth = 0 AND standing IN ('succeeded', 'failed', 'cancelled')
        ) AS ended WHERE updated < ? OR place > ? ORDER BY updated";
    ids(link, sql, args![tenant.as_str(), before, keep]).await
}

pub(super) async fn runnable(link: &mut Link, tenant: &Tenant, now: u64, most: usize) -> Result<Vec<RunId>, Trouble> {
    let free = "tenant = ? AND depth = 0
        AND (owner IS NULL OR owner NOT IN (SELECT id FROM flowcell_owners WHERE until > {now}))";
    let active = format!("SELECT run FROM flowcell_runs WHERE {free} AND standing = 'active' ORDER BY id LIMIT ?");
    let mut runs = ids(link, &active, args![tenant.as_str(), most as u64]).await?;
    let due =
        format!("SELECT run FROM flowcell_runs WHERE {free} AND standing = 'parked' AND due <= ? ORDER BY due LIMIT ?");
    let left = (most - runs.len()) as u64;
    runs.extend(ids(link, &due, args![tenant.as_str(), now, left]).await?);
    Ok(runs)
}

pub(super) async fn next_due(link: &mut Link, tenant: &Tenant) -> Result<Option<u64>, Trouble> {
    let sql = "SELECT min(due) FROM flowcell_runs WHERE tenant = ? AND depth = 0 AND standing = 'parked'";
    link.row(sql, args![tenant.as_str()]).await?.map_or(Ok(None), |row| row.maybe_number(0))
}

fn limit(most: usize) -> Arg {
    Arg::Int(Some(i64::try_from(most).unwrap_or(i64::MAX)))
}

async fn ids(link: &mut Link, sql: &str, args: Vec<Arg>) -> Result<Vec<RunId>, Trouble> {
    link.rows(sql, args).await?.iter().map(|row| row.text(0).map(RunId::from)).collect()
}
