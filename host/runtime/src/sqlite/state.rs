//! The state of flows in the embedded store.

use std::sync::Arc;

use flowcell_contract::{Tenant, Value};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{
    Reader, SqliteStore, Visible,
    blobs::{CutOut, keep_values},
    reader::in_snapshot,
    units::{text, unwritable},
};
use crate::{
    fact::Write,
    ports::{StageError, Staged, StateStore, StoreError},
    rows::cut::ExternalizedRow,
};

/// Tenant, flow and key of a value.
pub(super) type StateKey = (Tenant, String, String);

/// Writes the state of an entry.
pub(super) fn write(connection: &Connection, tenant: &Tenant, staged: &Staged) -> Result<(), rusqlite::Error> {
    for (write, version) in &staged.writes {
        let value = ExternalizedRow::of_value(text(&write.value)?).map_err(unwritable)?;
        keep_values(connection, tenant, &value)?;
        let sql = "INSERT INTO state (tenant, flow, key, value, cuts, version) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
            ON CONFLICT DO UPDATE SET value = ?4, cuts = ?5, version = ?6";
        let values = params![tenant.as_str(), &*staged.flow, write.key, value.text, value.cuts, version];
        connection.prepare_cached(sql)?.execute(values)?;
    }
    Ok(())
}

/// The reason why a value cannot be read.
enum ReadError {
    /// The database cannot be read.
    Database(rusqlite::Error),
    /// This value is damaged.
    Value(StoreError),
}

impl From<rusqlite::Error> for ReadError {
    fn from(error: rusqlite::Error) -> ReadError {
        ReadError::Database(error)
    }
}

fn read(reader: &Reader, tenant: &Tenant, flow: &str, key: &str) -> Result<Option<(Value, u64)>, ReadError> {
    in_snapshot(&mut reader.0.lock(), |connection| read_durable(connection, tenant, flow, key))?
}

fn read_durable(
    connection: &Connection,
    tenant: &Tenant,
    flow: &str,
    key: &str,
) -> Result<Option<(Value, u64)>, ReadError> {
    let sql = "SELECT value, cuts, version FROM state WHERE tenant = ? AND flow = ? AND key = ?";
    let mut select = connection.prepare_cached(sql)?;
    let entry = |row: &Row<'_>| Ok((row.get(0)?, row.get::<_, Option<String>>(1)?, row.get(2)?));
    let found = select.query_row(params![tenant.as_str(), flow, key], entry).optional()?;
    let Some((text, cuts, version)) = found else { return Ok(None) };
    let damaged = |why| {
        ReadError::Value(StoreError::damaged(format!("the state `{key}` of the flow `{flow}` is damaged: {why}")))
    };
    let text = CutOut::new(connection, tenant).put_back(text, cuts.as_deref()).map_err(damaged)?;
    let value = Value::restore(text).map_err(|error| damaged(format!("it is not JSON: {error}")))?;
    Ok(Some((value, version)))
}

/// Returns a value in the view of this process: a staged one, or the durable one.
fn visible_state(
    store: &SqliteStore,
    visible: &Visible,
    tenant: &Tenant,
    flow: &str,
    key: &str,
) -> Result<Option<(Value, u64)>, StoreError> {
    match visible.state.get(&(tenant.clone(), flow.to_owned(), key.to_owned())) {
        Some(found) => Ok(Some(found.clone())),
        None => read(&store.reader, tenant, flow, key).map_err(|error| match error {
            ReadError::Value(error) => error,
            // The process cannot read the facts on the disk. No run may continue or fail as if they were known.
            ReadError::Database(error) => {
                let error = StoreError::from(error);
                let message = format!("it cannot be read: {error}");
                let error = error.with_message(message);
                (store.on_failure)(&error);
                error
            }
        }),
    }
}

impl StateStore for SqliteStore {
    fn get(&self, tenant: &Tenant, flow: &str, key: &str) -> Result<Option<(Value, u64)>, StoreError> {
        visible_state(self, &self.visible.lock(), tenant, flow, key)
    }

    fn stage(&self, tenant: &Tenant, flow: &Arc<str>, writes: Vec<Write>) -> Result<Staged, StageError> {
        let mut visible = self.visible.lock();
        let version =
            |key: &str| Ok(visible_state(self, &visible, tenant, flow, key)?.map_or(0, |(_, version)| version));
        let staged = Staged::assign_versions(flow, writes, version)?;
        for (write, version) in &staged.writes {
            let key = (tenant.clone(), flow.to_string(), write.key.clone());
            visible.state.insert(key, (write.value.clone(), *version));
        }
        Ok(staged)
    }
}
