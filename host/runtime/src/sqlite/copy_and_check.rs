//! The embedded store as the source or the target of a copy, and as the subject of a check.

use std::sync::Arc;

use flowcell_contract::{Failure, MAX_WHOLE_BYTES, RunId, Tenant};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};
use serde::Serialize;

use super::{
    SqliteStore,
    blobs::{MIME, keep_value},
    documents,
    large::{self, Finished},
    schema, search, sessions,
    units::Row as RunRow,
    upload,
};
use crate::{
    objects::is_apart,
    ports::{Document, Session, StepState, StoreError, Unit},
    rows::{
        copy_and_check::{CopyableStore, Kept, KeptBlob, KeptRun, KeptState, ReadPiece},
        cut::ExternalizedRow,
        search::{ErrorColumns, wait_text},
    },
};

impl CopyableStore for SqliteStore {
    fn kept_runs(&self, after: i64, limit: usize) -> Result<Vec<KeptRun>, StoreError> {
        let connection = self.reader.0.lock();
        let sql = "SELECT id, tenant, run, flow, depth, parent, record, standing, due, attention, created, updated
            FROM runs WHERE id > ? ORDER BY id LIMIT ?";
        let mut select = connection.prepare_cached(sql)?;
        Ok(select.query_map(params![after, limit as u64], run_row)?.collect::<Result<_, _>>()?)
    }

    fn kept_keys(
        &self,
        (tenant, flow, key): &(Tenant, String, String),
        limit: usize,
    ) -> Result<Vec<(Tenant, String, String)>, StoreError> {
        let connection = self.reader.0.lock();
        let sql = "SELECT tenant, flow, key FROM state WHERE (tenant, flow, key) > (?, ?, ?)
            ORDER BY tenant, flow, key LIMIT ?";
        let mut select = connection.prepare_cached(sql)?;
        let found = |row: &Row<'_>| Ok((Tenant::from(row.get::<_, String>(0)?.as_str()), row.get(1)?, row.get(2)?));
        let rows = select.query_map(params![tenant.as_str(), flow, key, limit as u64], found)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn kept_blobs(&self, after: &KeptBlob, limit: usize) -> Result<Vec<KeptBlob>, StoreError> {
        let connection = self.reader.0.lock();
        let sql = "SELECT tenant, hash, mime FROM blobs WHERE (tenant, hash) > (?, ?) ORDER BY tenant, hash LIMIT ?";
        let mut select = connection.prepare_cached(sql)?;
        let found = |row: &Row<'_>| {
            let tenant = Tenant::from(row.get::<_, String>(0)?.as_str());
            Ok(KeptBlob { tenant, hash: row.get(1)?, mime: row.get(2)? })
        };
        let rows = select.query_map(params![after.tenant.as_str(), after.hash, limit as u64], found)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn kept_sessions(
        &self,
        (tenant, id): &(Tenant, String),
        limit: usize,
    ) -> Result<Vec<(Tenant, Session)>, StoreError> {
        let connection = self.reader.0.lock();
        let sql = format!("SELECT {} WHERE (tenant, id) > (?, ?) ORDER BY tenant, id LIMIT ?", sessions::SESSION);
        let mut select = connection.prepare_cached(&sql)?;
        let found = |row: &Row<'_>| Ok((tenant_of(row)?, sessions::session(row)?));
        let rows = select.query_map(params![tenant.as_str(), id, limit as u64], found)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn kept_steps(
        &self,
        (tenant, session): &(Tenant, String),
        limit: usize,
    ) -> Result<Vec<(Tenant, StepState)>, StoreError> {
        let connection = self.reader.0.lock();
        let sql = format!(
            "SELECT {} WHERE (tenant, session_id) > (?, ?) ORDER BY tenant, session_id LIMIT ?",
            sessions::STATE
        );
        let mut select = connection.prepare_cached(&sql)?;
        let found = |row: &Row<'_>| Ok((tenant_of(row)?, sessions::state(row)?));
        let rows = select.query_map(params![tenant.as_str(), session, limit as u64], found)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn kept_documents(
        &self,
        (tenant, kind, key): &(Tenant, String, String),
        limit: usize,
    ) -> Result<Vec<(Tenant, String, Document)>, StoreError> {
        let connection = self.reader.0.lock();
        let sql = "SELECT key, value, version, tenant, kind FROM registry WHERE (tenant, kind, key) > (?, ?, ?)
            ORDER BY tenant, kind, key LIMIT ?";
        let mut select = connection.prepare_cached(sql)?;
        let found = |row: &Row<'_>| Ok((tenant_of(row)?, row.get("kind")?, documents::document(row)?));
        let rows = select.query_map(params![tenant.as_str(), kind, key, limit as u64], found)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Does nothing, because the process that has opened the store owns it.
    fn pin_snapshot(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Returns `false`, because the process that has opened the store owns it.
    fn is_in_use(&self) -> Result<bool, StoreError> {
        Ok(false)
    }

    fn reach_files(&self) -> Result<(), StoreError> {
        self.large.place.reach()
    }

    fn is_large(&self, blob: &KeptBlob, size: u64) -> bool {
        let apart = blob.mime != MIME && is_apart(&blob.mime, size) && self.large.place.for_new().is_some();
        apart || size > MAX_WHOLE_BYTES as u64
    }

    fn take_large(&self, blob: &KeptBlob, read: &mut ReadPiece<'_>) -> Result<(), StoreError> {
        if self.large.place.for_new().is_some() {
            return upload::take_large(self, blob, read);
        }
        let path = self.reader.0.lock().path().unwrap_or_default().to_owned();
        take_large(self, &schema::connect(path.as_ref())?, blob, read)
    }

    fn take_over(&self, kept: Vec<Kept>) -> Result<(), StoreError> {
        let path = self.reader.0.lock().path().unwrap_or_default().to_owned();
        let mut connection = schema::connect(path.as_ref())?;
        self.remembered.write(|| take_all(&mut connection, kept))
    }
}

fn take_large(
    store: &SqliteStore,
    connection: &Connection,
    blob: &KeptBlob,
    read: &mut ReadPiece<'_>,
) -> Result<(), StoreError> {
    let failed = |failure: Failure| StoreError(failure.message.to_string().into());
    let (mut draft, mut offset) = (store.large.begin(), 0);
    loop {
        let piece = read(offset)?;
        if piece.is_empty() {
            break;
        }
        offset += piece.len() as u64;
        draft.write(&piece).map_err(failed)?;
    }
    match draft.finish().map_err(failed)? {
        Finished::Small(bytes) => take_blob(connection, blob.tenant.as_str(), &blob.hash, &blob.mime, &bytes),
        Finished::Large(mut file) => {
            if *file.hash != *blob.hash {
                return Err(StoreError(format!("the blob {} has another content", blob.hash).into()));
            }
            file.name(&blob.tenant).and_then(|()| file.sync_name(&blob.tenant)).map_err(failed)?;
            Ok(large::keep(connection, &blob.tenant, &blob.hash, &blob.mime, &file.row)?)
        }
    }
}

fn take_all(connection: &mut Connection, kept: Vec<Kept>) -> Result<(), StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for kept in kept {
        match kept {
            Kept::Run(run) => take_run(&transaction, &run)?,
            Kept::Units(tenant, run, units) => take_units(&transaction, &tenant, &run, &units)?,
            Kept::State(state) => take_state(&transaction, &state)?,
            Kept::Session(tenant, session) => sessions::take_session(&transaction, &tenant, &session)?,
            Kept::Document(tenant, kind, document) => {
                documents::take(&transaction, &tenant, &kind, &document)?;
            }
            Kept::Step(tenant, step) => sessions::take_state(&transaction, &tenant, &step)?,
            Kept::Blob(blob, bytes) => {
                take_blob(&transaction, blob.tenant.as_str(), &blob.hash, &blob.mime, &bytes)?;
            }
        }
    }
    Ok(transaction.commit()?)
}

fn tenant_of(row: &Row<'_>) -> Result<Tenant, rusqlite::Error> {
    Ok(Tenant::from(row.get::<_, String>("tenant")?.as_str()))
}

fn run_row(row: &Row<'_>) -> Result<KeptRun, rusqlite::Error> {
    Ok(KeptRun {
        number: row.get(0)?,
        tenant: Tenant::from(row.get::<_, String>(1)?.as_str()),
        run: RunId::from(row.get::<_, String>(2)?),
        flow: row.get(3)?,
        depth: row.get(4)?,
        parent: row.get::<_, Option<String>>(5)?.map(RunId::from),
        record: row.get(6)?,
        status: row.get(7)?,
        due: row.get(8)?,
        attention: row.get(9)?,
        created: row.get(10)?,
        updated: row.get(11)?,
    })
}

fn take_run(transaction: &Transaction<'_>, run: &KeptRun) -> Result<(), StoreError> {
    let sql = "INSERT INTO runs (tenant, run, flow, depth, parent, record, standing, due, attention, created, updated)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    let values = params![
        run.tenant.as_str(),
        run.run.as_str(),
        run.flow,
        run.depth,
        run.parent.as_ref().map(RunId::as_str),
        run.record,
        run.status,
        run.due,
        run.attention,
        run.created,
        run.updated
    ];
    let id = transaction.prepare_cached(sql)?.insert(values)?;
    if let Some(record) = run.parsed_record()? {
        search::write_record(transaction, id, &run.tenant, run.created, &record)?;
    }
    Ok(())
}

fn take_units(
    transaction: &Transaction<'_>,
    tenant: &Tenant,
    run: &RunId,
    units: &[Arc<Unit>],
) -> Result<(), StoreError> {
    let found = RunRow::find(transaction, tenant.as_str(), run.as_str()).optional()?;
    let Some(mut row) = found else { return Err(StoreError(format!("the run `{run}` does not exist").into())) };
    for unit in units {
        let body = ExternalizedRow::of_facts(text(&unit.facts)?).map_err(unwritable)?;
        for (hash, text) in &body.blobs {
            keep_value(transaction, tenant, hash, text.as_bytes())?;
        }
        row.append(transaction, unit.first_seq, unit.facts.len() as u64, unit.ts, &body)?;
    }
    let next = units.last().map_or(0, |unit| unit.next_seq());
    let sql = "UPDATE runs SET next_seq = ? WHERE tenant = ? AND run = ?";
    transaction.prepare_cached(sql)?.execute(params![next, tenant.as_str(), run.as_str()])?;
    if let Some(error) = units.last().and_then(|unit| ErrorColumns::of_facts(&unit.facts)) {
        search::write_error(transaction, row.id, &error)?;
    }
    if let Some(text) = units.last().and_then(|unit| wait_text(&unit.facts)) {
        search::write_wait(transaction, row.id, &text)?;
    }
    Ok(())
}

fn take_state(transaction: &Transaction<'_>, state: &KeptState) -> Result<(), StoreError> {
    let value = ExternalizedRow::of_value(text(&state.value)?).map_err(unwritable)?;
    for (hash, text) in &value.blobs {
        keep_value(transaction, &state.tenant, hash, text.as_bytes())?;
    }
    let sql = "INSERT INTO state (tenant, flow, key, value, cuts, version) VALUES (?, ?, ?, ?, ?, ?)";
    let values = params![state.tenant.as_str(), state.flow, state.key, value.text, value.cuts, state.version];
    Ok(transaction.prepare_cached(sql)?.execute(values).map(drop)?)
}

fn take_blob(connection: &Connection, tenant: &str, hash: &str, mime: &str, bytes: &[u8]) -> Result<(), StoreError> {
    let sql = "INSERT OR IGNORE INTO blobs (tenant, hash, mime, bytes) VALUES (?, ?, ?, ?)";
    Ok(connection.prepare_cached(sql)?.execute(params![tenant, hash, mime, bytes]).map(drop)?)
}

fn text(value: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(unwritable)
}

fn unwritable(error: serde_json::Error) -> StoreError {
    StoreError(error.to_string().into())
}
