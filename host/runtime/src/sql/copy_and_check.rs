//! The shared store as the source or the target of a copy, and as the subject of a check.

use std::{collections::HashMap, sync::Arc};

use flowcell_contract::{MAX_WHOLE_BYTES, RunId, Tenant};

use super::{
    SharedStore,
    blobs::{self, MIME},
    connection::{Arg, Connection, Row, SqlError, args},
    documents, search, sessions, upload,
    values::{hash, text, unwritable},
};
use crate::{
    objects::is_apart,
    ports::{Document, Session, StepState, StoreError, Unit},
    rows::{
        checksum,
        copy_and_check::{CopyableStore, Kept, KeptBlob, KeptRun, KeptState, ReadPiece, no_large_files},
        cut::ExternalizedRow,
        search::{ErrorColumns, wait_text},
    },
};

impl CopyableStore for SharedStore {
    fn kept_runs(&self, after: i64, limit: usize) -> Result<Vec<KeptRun>, StoreError> {
        self.worker.read(async move |connection| kept_runs(connection, after, limit).await)
    }

    fn kept_keys(
        &self,
        after: &(Tenant, String, String),
        limit: usize,
    ) -> Result<Vec<(Tenant, String, String)>, StoreError> {
        let (tenant, flow, key) = after.clone();
        self.worker.read(async move |connection| {
            let sql = "SELECT tenant, flow, name FROM flowcell_state WHERE (tenant, flow, name) > (?, ?, ?)
                ORDER BY tenant, flow, name LIMIT ?";
            let rows = connection.rows(sql, args![tenant.as_str(), flow.as_str(), key.as_str(), limit as u64]).await?;
            let key = |row: &Row| Ok((Tenant::from(row.text(0)?.as_str()), row.text(1)?, row.text(2)?));
            rows.iter().map(key).collect()
        })
    }

    fn kept_blobs(&self, after: &KeptBlob, limit: usize) -> Result<Vec<KeptBlob>, StoreError> {
        let after = after.clone();
        self.worker.read(async move |connection| {
            let sql = "SELECT tenant, hash, mime FROM flowcell_blobs WHERE (tenant, hash) > (?, ?)
                ORDER BY tenant, hash LIMIT ?";
            let rows = connection.rows(sql, args![after.tenant.as_str(), after.hash.as_str(), limit as u64]).await?;
            let blob = |row: &Row| {
                let tenant = Tenant::from(row.text(0)?.as_str());
                Ok(KeptBlob { tenant, hash: row.text(1)?, mime: row.text(2)? })
            };
            rows.iter().map(blob).collect()
        })
    }

    fn kept_sessions(&self, after: &(Tenant, String), limit: usize) -> Result<Vec<(Tenant, Session)>, StoreError> {
        let (tenant, id) = after.clone();
        self.worker.read(async move |connection| {
            let columns = sessions::SESSION;
            let sql = format!("SELECT {columns} WHERE (tenant, id) > (?, ?) ORDER BY tenant, id LIMIT ?");
            let rows = connection.rows(&sql, args![tenant.as_str(), id.as_str(), limit as u64]).await?;
            let session = |row: &Row| Ok((Tenant::from(row.text(7)?.as_str()), sessions::session(row)?));
            rows.iter().map(session).collect()
        })
    }

    fn kept_steps(&self, after: &(Tenant, String), limit: usize) -> Result<Vec<(Tenant, StepState)>, StoreError> {
        let (tenant, session) = after.clone();
        self.worker.read(async move |connection| {
            let columns = sessions::STATE;
            let sql =
                format!("SELECT {columns} WHERE (tenant, session_id) > (?, ?) ORDER BY tenant, session_id LIMIT ?");
            let rows = connection.rows(&sql, args![tenant.as_str(), session.as_str(), limit as u64]).await?;
            let state = |row: &Row| Ok((Tenant::from(row.text(10)?.as_str()), sessions::state(row)?));
            rows.iter().map(state).collect()
        })
    }

    fn kept_documents(
        &self,
        after: &(Tenant, String, String),
        limit: usize,
    ) -> Result<Vec<(Tenant, String, Document)>, StoreError> {
        let (tenant, kind, key) = after.clone();
        self.worker.read(async move |connection| {
            let sql = "SELECT name, value, version, tenant, kind FROM flowcell_registry
                WHERE (tenant, kind, name) > (?, ?, ?) ORDER BY tenant, kind, name LIMIT ?";
            let rows = connection.rows(sql, args![tenant.as_str(), kind.as_str(), key.as_str(), limit as u64]).await?;
            let found = |row: &Row| Ok((Tenant::from(row.text(3)?.as_str()), row.text(4)?, documents::document(row)?));
            rows.iter().map(found).collect()
        })
    }

    fn pin_snapshot(&self) -> Result<(), StoreError> {
        self.worker.pin_snapshot()
    }

    fn is_in_use(&self) -> Result<bool, StoreError> {
        let owner = self.shared.claims.owner();
        self.worker.read(async move |connection| {
            let sql = "SELECT id FROM flowcell_owners WHERE until > {now} AND id <> ? LIMIT 1";
            Ok(connection.row(sql, args![owner]).await?.is_some())
        })
    }

    fn reach_files(&self) -> Result<(), StoreError> {
        self.shared.place.reach()
    }

    fn is_large(&self, blob: &KeptBlob, size: u64) -> bool {
        let apart = blob.mime != MIME && is_apart(&blob.mime, size) && self.shared.place.for_new().is_some();
        apart || size > MAX_WHOLE_BYTES as u64
    }

    fn take_large(&self, blob: &KeptBlob, read: &mut ReadPiece<'_>) -> Result<(), StoreError> {
        match upload::take_large(self, blob, read)? {
            true => Ok(()),
            false => Err(no_large_files(blob)),
        }
    }

    /// Leaves existing rows unchanged, so that the insertion can be repeated while the server is unreachable.
    fn take_over(&self, kept: Vec<Kept>) -> Result<(), StoreError> {
        if self.shared.snapshot.initialized() {
            return Err(StoreError("the store shows a snapshot, so nothing can be inserted".into()));
        }
        self.worker.read(async move |connection| {
            connection.begin().await?;
            let taken = take(connection, &kept).await;
            match taken {
                Ok(()) => connection.commit().await,
                Err(error) => {
                    connection.roll_back().await;
                    Err(error)
                }
            }
        })
    }
}

async fn kept_runs(connection: &mut Connection, after: i64, limit: usize) -> Result<Vec<KeptRun>, SqlError> {
    let sql =
        "SELECT r.id, r.tenant, r.run, r.flow, r.depth, p.run, r.record, r.standing, r.due, r.attention, r.created,
            r.updated
        FROM flowcell_runs r LEFT JOIN flowcell_runs p ON p.id = r.parent WHERE r.id > ? ORDER BY r.id LIMIT ?";
    let rows = connection.rows(sql, args![after, limit as u64]).await?;
    let run = |row: &Row| {
        Ok(KeptRun {
            number: row.int(0)?,
            tenant: Tenant::from(row.text(1)?.as_str()),
            run: RunId::from(row.text(2)?),
            flow: row.text(3)?,
            depth: row.int(4)? as u32,
            parent: row.maybe_text(5)?.map(RunId::from),
            record: row.text(6)?,
            status: row.text(7)?,
            due: row.maybe_number(8)?,
            attention: row.int(9)? != 0,
            created: row.number(10)?,
            updated: row.number(11)?,
        })
    };
    rows.iter().map(run).collect()
}

async fn take(connection: &mut Connection, kept: &[Kept]) -> Result<(), SqlError> {
    let (mut blobs, mut values) = (Vec::new(), Vec::new());
    let now = connection.now().await?;
    let mut keep = |tenant: &Tenant, hash: &str, mime: &str, bytes: Arc<[u8]>| {
        blobs.push(args![tenant.as_str(), hash, mime, bytes.len() as u64, bytes, None::<String>, now]);
    };
    for kept in kept {
        match kept {
            Kept::Run(run) => take_run(connection, run).await?,
            Kept::Blob(blob, bytes) => keep(&blob.tenant, &blob.hash, &blob.mime, bytes.clone()),
            Kept::Session(tenant, session) => sessions::take_session(connection, tenant, session).await?,
            Kept::Document(tenant, kind, document) => documents::take(connection, tenant, kind, document).await?,
            Kept::Step(tenant, step) => sessions::take_state(connection, tenant, step).await?,
            Kept::Units(tenant, run, units) => {
                for (hash, text) in take_units(connection, tenant, run, units).await? {
                    let bytes: Arc<[u8]> = text.into_bytes().into();
                    keep(tenant, &hash, MIME, bytes.clone());
                    values.push((tenant, hash, bytes));
                }
            }
            Kept::State(state) => {
                for (hash, text) in take_state(connection, state).await? {
                    let bytes: Arc<[u8]> = text.into_bytes().into();
                    keep(&state.tenant, &hash, MIME, bytes.clone());
                    values.push((&state.tenant, hash, bytes));
                }
            }
        }
    }
    let after = connection.dialect().or_leave("tenant, hash");
    connection.insert(blobs::COLUMNS, blobs, &after).await?;
    for (tenant, hash, bytes) in values {
        let of = tenant.as_str();
        if !blobs::objects_among(connection, of, [&*hash].into_iter()).await?.is_empty() {
            blobs::put_bytes(connection, of, &hash, bytes).await?;
        }
    }
    Ok(())
}

async fn take_run(connection: &mut Connection, run: &KeptRun) -> Result<(), SqlError> {
    let mut above = (None, None);
    if let Some(parent) = &run.parent {
        let sql = "SELECT id, top FROM flowcell_runs WHERE tenant = ? AND hash = ?";
        let row = connection.row(sql, args![run.tenant.as_str(), hash(parent.as_str())]).await?;
        let row = row.ok_or_else(|| SqlError::Permanent(format!("the run `{parent}` is missing")))?;
        let id = row.int(0)?;
        above = (Some(id), Some(row.maybe_number(1)?.map_or(id, |top| top as i64)));
    }
    let standings = ["active", "parked", "succeeded", "failed", "cancelled", "removed"];
    let standing = standings.into_iter().find(|known| *known == run.status);
    let standing = standing.ok_or_else(|| SqlError::Permanent(format!("`{}` is not a status", run.status)))?;
    let mut row = args![
        run.tenant.as_str(),
        hash(run.run.as_str()),
        run.run.as_str(),
        run.flow.as_str(),
        i64::from(run.depth),
        Arg::Int(above.0),
        Arg::Int(above.1),
        run.record.as_str(),
        Arg::Word(standing),
        run.due,
        i64::from(run.attention),
        0_i64,
        0_i64,
        run.created,
        run.updated,
        0_i64,
        0_i64,
    ];
    let record = run.parsed_record().map_err(|error| SqlError::Permanent(error.to_string()))?;
    row.extend(record.as_ref().map_or_else(|| vec![Arg::Int(None), NULL, NULL, NULL], search::record_values));
    let into = format!(
        "flowcell_runs (tenant, hash, run, flow, depth, parent, top, record, standing, due, attention, next_seq, tail, \
         created, updated, epoch, claims, {})",
        search::RECORD_COLUMNS
    );
    let after = connection.dialect().or_leave("tenant, hash");
    connection.insert(&into, vec![row], &after).await?;
    let Some(record) = &record else { return Ok(()) };
    let sql = "SELECT id FROM flowcell_runs WHERE tenant = ? AND hash = ?";
    let id = connection.row(sql, args![run.tenant.as_str(), hash(run.run.as_str())]).await?;
    let id = id.map_or(Ok(0), |row| row.int(0))?;
    search::write_labels(connection, [(id, &run.tenant, run.created, record)]).await
}

const NULL: Arg = Arg::Bytes(None);

/// Inserts units. Returns the values that were cut out of them.
async fn take_units(
    connection: &mut Connection,
    tenant: &Tenant,
    run: &RunId,
    units: &[Arc<Unit>],
) -> Result<HashMap<Arc<str>, String>, SqlError> {
    let sql = "SELECT id, next_seq, tail FROM flowcell_runs WHERE tenant = ? AND hash = ? FOR UPDATE";
    let row = connection.row(sql, args![tenant.as_str(), hash(run.as_str())]).await?;
    let row = row.ok_or_else(|| SqlError::Permanent(format!("the run `{run}` does not exist")))?;
    let (id, mut end, mut tail) = (row.int(0)?, row.number(1)?, row.number(2)? as u32);
    let (mut rows, mut cut) = (Vec::new(), HashMap::new());
    for unit in units.iter().filter(|unit| unit.first_seq >= end) {
        let body = ExternalizedRow::of_facts(text(&unit.facts)?).map_err(unwritable)?;
        tail = checksum(tail, unit.first_seq, unit.ts, &body.text, body.cuts.as_deref());
        cut.extend(body.blobs);
        let facts = unit.facts.len() as u64;
        rows.push(args![id, unit.first_seq, facts, unit.ts, body.text, body.cuts, u64::from(tail)]);
    }
    end = units.last().map_or(end, |unit| unit.next_seq().max(end));
    connection.insert("flowcell_units (run, first_seq, facts, ts, body, cuts, checksum)", rows, "").await?;
    let sql = "UPDATE flowcell_runs SET next_seq = ?, tail = ? WHERE id = ?";
    connection.run(sql, args![end, u64::from(tail), id]).await?;
    if let Some(error) = units.last().and_then(|unit| ErrorColumns::of_facts(&unit.facts)) {
        search::write_error(connection, id, &error).await?;
    }
    if let Some(text) = units.last().and_then(|unit| wait_text(&unit.facts)) {
        search::write_wait(connection, id, &text).await?;
    }
    Ok(cut)
}

/// Inserts a value of state. Returns the values that were cut out of it.
async fn take_state(connection: &mut Connection, state: &KeptState) -> Result<Vec<(Arc<str>, String)>, SqlError> {
    let value = ExternalizedRow::of_value(text(&state.value)?).map_err(unwritable)?;
    let (tenant, flow, key) = (state.tenant.as_str(), state.flow.as_str(), state.key.as_str());
    let row = args![tenant, flow, key, value.text, value.cuts, state.version];
    let after = connection.dialect().or_leave("tenant, flow, name");
    connection.insert("flowcell_state (tenant, flow, name, value, cuts, version)", vec![row], &after).await?;
    Ok(value.blobs)
}
