//! The journals of runs in a shared store.

use std::sync::Arc;

use flowcell_contract::{RunId, Tenant};

use super::{
    SharedStore,
    blobs::CutOut,
    connection::{Answer, Connection, Row, SqlError, args},
    queue::Item,
    runs,
    values::hash,
};
use crate::{
    limits::MAX_READ_BYTES,
    ports::{Entry, Journal, Record, Runs, StoreError, Unit},
    rows::{UnitPosition, UnitRow, damaged},
};

/// The maximum number of rows of one read.
const PAGE_ROWS: usize = 100;

/// Returns the metadata of a run.
async fn find(connection: &mut Connection, tenant: &Tenant, run: &RunId) -> Answer<Option<Record>> {
    let sql = "SELECT record FROM flowcell_runs WHERE tenant = ? AND hash = ?";
    let Some(row) = connection.row(sql, args![tenant.as_str(), hash(run.as_str())]).await? else { return Ok(Ok(None)) };
    let text = row.text(0)?;
    if text.is_empty() {
        return Ok(Err(StoreError::removed(run)));
    }
    Ok(serde_json::from_str(&text).map(Some).map_err(|error| damaged(run, &error)))
}

/// Reads at most `limit` units of a run, in order, from the one that contains the fact `from`.
pub(super) async fn units(
    connection: &mut Connection,
    tenant: &Tenant,
    run: &RunId,
    from: u64,
    limit: usize,
) -> Answer<Vec<Arc<Unit>>> {
    if connection.is_pinned() {
        return units_now(connection, tenant, run, from, limit).await;
    }
    connection.snapshot().await?;
    let units = units_now(connection, tenant, run, from, limit).await;
    connection.roll_back().await;
    units
}

async fn units_now(
    connection: &mut Connection,
    tenant: &Tenant,
    run: &RunId,
    from: u64,
    limit: usize,
) -> Answer<Vec<Arc<Unit>>> {
    let sql = "SELECT id, next_seq, tail FROM flowcell_runs WHERE tenant = ? AND hash = ?";
    let Some(row) = connection.row(sql, args![tenant.as_str(), hash(run.as_str())]).await? else {
        return Ok(Ok(Vec::new()));
    };
    let (id, end) = (row.int(0)?, UnitPosition { next_seq: row.number(1)?, checksum: row.number(2)? as u32 });
    let mut at = position_before(connection, id, from).await?;
    let mut cut_out = CutOut::new(tenant);
    let (mut units, mut bytes) = (Vec::new(), 0);
    while units.len() < limit && bytes < MAX_READ_BYTES {
        let page = PAGE_ROWS.min(limit - units.len());
        let sql = "SELECT first_seq, facts, ts, body, cuts, checksum FROM flowcell_units
            WHERE run = ? AND first_seq >= ? ORDER BY first_seq LIMIT ?";
        let rows = connection.rows(sql, args![id, at.next_seq, page as u64]).await?;
        if rows.is_empty() {
            return Ok(at.check_end(end, run).map(|()| units));
        }
        for row in rows {
            let mut stored = unit_row(&row)?;
            if let Err(error) = stored.check(at, run) {
                return Ok(Err(error));
            }
            at = stored.position_after();
            let body = cut_out.put_back(connection, std::mem::take(&mut stored.body), stored.cuts.as_deref()).await?;
            let (unit, size) = match stored.into_unit(body, run) {
                Ok(whole) => whole,
                Err(error) => return Ok(Err(error)),
            };
            bytes += size;
            units.push(Arc::new(unit));
            if bytes >= MAX_READ_BYTES {
                break;
            }
        }
    }
    Ok(Ok(units))
}

fn unit_row(row: &Row) -> Result<UnitRow, SqlError> {
    Ok(UnitRow {
        first_seq: row.number(0)?,
        facts: row.number(1)?,
        ts: row.number(2)?,
        body: row.text(3)?,
        cuts: row.maybe_text(4)?,
        checksum: row.number(5)? as u32,
    })
}

/// Returns the position before the unit that contains a fact.
async fn position_before(connection: &mut Connection, id: i64, fact: u64) -> Result<UnitPosition, SqlError> {
    // Bounded by `first_seq < ?` so that the server seeks in the index instead of scanning from its end.
    let sql = "SELECT first_seq + facts, checksum FROM flowcell_units
        WHERE run = ? AND first_seq < ? AND first_seq + facts <= ? ORDER BY first_seq DESC LIMIT 1";
    let fact = fact.min(i64::MAX as u64);
    let found = connection.row(sql, args![id, fact, fact]).await?;
    found.map_or(Ok(UnitPosition::default()), |row| {
        Ok(UnitPosition { next_seq: row.number(0)?, checksum: row.number(1)? as u32 })
    })
}

/// Returns the live runs that a run has called, in the order of their start.
async fn left_below(connection: &mut Connection, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, SqlError> {
    let sql =
        "SELECT run FROM flowcell_runs WHERE parent = (SELECT id FROM flowcell_runs WHERE tenant = ? AND hash = ?)
        AND standing IN ('active', 'parked') ORDER BY id";
    runs::ids(connection, sql, args![tenant.as_str(), hash(run.as_str())]).await
}

impl Journal for SharedStore {
    fn append(&self, entry: Entry) {
        if let Some(record) = &entry.record {
            self.shared.claims.record_run(&(entry.tenant.clone(), entry.run.clone()), record);
        }
        self.shared.queue.push(Item::Entry(entry));
    }

    fn force(&self) {
        self.shared.queue.force();
    }

    fn left_below(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        let (tenant, run) = (tenant.clone(), run.clone());
        self.worker.read(async move |connection| left_below(connection, &tenant, &run).await)
    }

    fn children_of(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        Runs::children(self, tenant, run)
    }

    fn repeats_of(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        Runs::repeats(self, tenant, run)
    }

    fn find(&self, tenant: &Tenant, run: &RunId) -> Result<Option<Record>, StoreError> {
        let key = (tenant.clone(), run.clone());
        let of = key.clone();
        let found = self.worker.read_checked(async move |connection| find(connection, &of.0, &of.1).await)?;
        found.iter().for_each(|record| self.shared.claims.record_run(&key, record));
        Ok(found)
    }

    fn read(&self, tenant: &Tenant, run: &RunId, from: u64, limit: usize) -> Result<Vec<Arc<Unit>>, StoreError> {
        let (tenant, run) = (tenant.clone(), run.clone());
        self.worker.read_checked(async move |connection| units(connection, &tenant, &run, from, limit).await)
    }
}
