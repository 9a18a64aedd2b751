//! Sessions and step states in the embedded store.

use flowcell_contract::{Json, RunId, Tenant};
use rusqlite::{Connection, OptionalExtension, Row, params, types::Type};

use super::{Reader, SqliteStore};
use crate::ports::{Change, Entry, Session, Sessions, StepState, StepStatus, StoreError};

/// Writes the changes of an entry.
pub(super) fn write(connection: &Connection, entry: &Entry) -> Result<(), rusqlite::Error> {
    let (tenant, run, now) = (entry.tenant.as_str(), entry.run.as_str(), entry.unit.ts);
    entry.rows.iter().try_for_each(|change| write_change(connection, tenant, run, now, change))
}

fn write_change(
    connection: &Connection,
    tenant: &str,
    run: &str,
    now: u64,
    change: &Change,
) -> Result<(), rusqlite::Error> {
    let done = match change {
        Change::Clear { root } => {
            let sql = "DELETE FROM sessions WHERE tenant = ? AND root_session_id = ?";
            connection.prepare_cached(sql)?.execute(params![tenant, root])
        }
        Change::Renew { root } => {
            let sql = "DELETE FROM flow_states WHERE tenant = ? AND root_session_id = ?";
            connection.prepare_cached(sql)?.execute(params![tenant, root])
        }
        Change::Session { id, parent, root, title } => {
            let sql = "INSERT INTO sessions (tenant, id, parent_session_id, root_session_id, title, run, created_at,
                    updated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7)
                ON CONFLICT DO UPDATE SET parent_session_id = ?3, root_session_id = ?4, title = ?5, run = ?6,
                    updated_at = ?7";
            connection.prepare_cached(sql)?.execute(params![tenant, id, parent, root, title, run, now])
        }
        Change::Begun { session, root, flow, step, status, args } => {
            let sql = "INSERT INTO flow_states (tenant, session_id, root_session_id, flow_id, step_id, status, args,
                    created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8)
                ON CONFLICT DO UPDATE SET root_session_id = ?3, flow_id = ?4, step_id = ?5, status = ?6, args = ?7,
                    output = NULL, is_struct_output = FALSE, updated_at = ?8";
            let values = params![tenant, session, root, flow, step, status.name(), args.to_text(), now];
            connection.prepare_cached(sql)?.execute(values)
        }
        Change::Ended { session, status, output, is_struct_output } => {
            let sql = "UPDATE flow_states SET status = ?, output = ?, is_struct_output = ?, updated_at = ?
                WHERE tenant = ? AND session_id = ?";
            let values = params![status.name(), output, is_struct_output, now, tenant, session];
            connection.prepare_cached(sql)?.execute(values)
        }
    };
    done.map(drop)
}

/// The columns of a session.
pub(super) const SESSION: &str =
    "id, parent_session_id, root_session_id, title, run, created_at, updated_at, tenant FROM sessions";

pub(super) fn session(row: &Row<'_>) -> Result<Session, rusqlite::Error> {
    Ok(Session {
        id: row.get(0)?,
        parent: row.get(1)?,
        root: row.get(2)?,
        title: row.get(3)?,
        run: RunId::from(row.get::<_, String>(4)?),
        created: row.get(5)?,
        updated: row.get(6)?,
    })
}

/// The columns of a step state.
pub(super) const STATE: &str = "session_id, root_session_id, flow_id, step_id, status, args, output, is_struct_output,
    created_at, updated_at, tenant FROM flow_states";

pub(super) fn state(row: &Row<'_>) -> Result<StepState, rusqlite::Error> {
    let wrong = |column, error: &dyn std::fmt::Display| {
        rusqlite::Error::FromSqlConversionFailure(column, Type::Text, error.to_string().into())
    };
    let status: String = row.get(4)?;
    let args: Option<String> = row.get(5)?;
    let args = args.map(|args| Json::restore(&args).map_err(|error| wrong(5, &error))).transpose()?;
    Ok(StepState {
        session: row.get(0)?,
        root: row.get(1)?,
        flow: row.get(2)?,
        step: row.get(3)?,
        status: StepStatus::named(&status).ok_or_else(|| wrong(4, &format!("`{status}` is not a status")))?,
        args: args.unwrap_or_default(),
        output: row.get(6)?,
        is_struct_output: row.get(7)?,
        created: row.get(8)?,
        updated: row.get(9)?,
    })
}

/// Inserts a session of another store.
pub(super) fn take_session(connection: &Connection, tenant: &Tenant, session: &Session) -> Result<(), StoreError> {
    let sql =
        "INSERT INTO sessions (tenant, id, parent_session_id, root_session_id, title, run, created_at, updated_at)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
    let Session { id, parent, root, title, run, created, updated } = session;
    let values = params![tenant.as_str(), id, parent, root, title, run.as_str(), created, updated];
    Ok(connection.prepare_cached(sql)?.execute(values).map(drop)?)
}

/// Inserts a step state of another store, after its session.
pub(super) fn take_state(connection: &Connection, tenant: &Tenant, state: &StepState) -> Result<(), StoreError> {
    let sql = "INSERT INTO flow_states (tenant, session_id, root_session_id, flow_id, step_id, status, args, output,
        is_struct_output, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    let StepState { session, root, flow, step, status, args, output, is_struct_output, created, updated } = state;
    let values = params![
        tenant.as_str(),
        session,
        root,
        flow,
        step,
        status.name(),
        args.to_text(),
        output,
        is_struct_output,
        created,
        updated
    ];
    Ok(connection.prepare_cached(sql)?.execute(values).map(drop)?)
}

impl Sessions for Reader {
    fn session(&self, tenant: &Tenant, id: &str) -> Result<Option<Session>, StoreError> {
        let connection = self.0.lock();
        let sql = format!("SELECT {SESSION} WHERE tenant = ? AND id = ?");
        let mut select = connection.prepare_cached(&sql)?;
        Ok(select.query_row(params![tenant.as_str(), id], session).optional()?)
    }

    fn sessions(&self, tenant: &Tenant, root: &str) -> Result<Vec<Session>, StoreError> {
        let connection = self.0.lock();
        let sql = format!("SELECT {SESSION} WHERE tenant = ? AND root_session_id = ? ORDER BY created_at, id");
        let mut select = connection.prepare_cached(&sql)?;
        Ok(select.query_map(params![tenant.as_str(), root], session)?.collect::<Result<_, _>>()?)
    }

    fn states(&self, tenant: &Tenant, root: &str) -> Result<Vec<StepState>, StoreError> {
        let connection = self.0.lock();
        let sql = format!("SELECT {STATE} WHERE tenant = ? AND root_session_id = ? ORDER BY created_at, session_id");
        let mut select = connection.prepare_cached(&sql)?;
        Ok(select.query_map(params![tenant.as_str(), root], state)?.collect::<Result<_, _>>()?)
    }
}

impl Sessions for SqliteStore {
    fn session(&self, tenant: &Tenant, id: &str) -> Result<Option<Session>, StoreError> {
        self.reader.session(tenant, id)
    }

    fn sessions(&self, tenant: &Tenant, root: &str) -> Result<Vec<Session>, StoreError> {
        self.reader.sessions(tenant, root)
    }

    fn states(&self, tenant: &Tenant, root: &str) -> Result<Vec<StepState>, StoreError> {
        self.reader.states(tenant, root)
    }
}
