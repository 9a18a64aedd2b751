//! Sessions and step states in a shared store.

use flowcell_contract::{Json, RunId, Tenant};

use super::{
    SharedStore,
    connection::{Arg, Connection, Row, SqlError, args},
};
use crate::ports::{Change, Entry, Session, Sessions, StepState, StepStatus, StoreError};

const INTO_SESSIONS: &str = "flowcell_sessions (tenant, id, parent_session_id, root_session_id, title, run, created_at, \
                             updated_at)";
const INTO_STATES: &str = "flowcell_flow_states (tenant, session_id, root_session_id, flow_id, step_id, status, args, \
                           output, is_struct_output, created_at, updated_at)";

/// Writes the changes of entries.
pub(super) async fn write(connection: &mut Connection, entries: &[&Entry]) -> Result<(), SqlError> {
    for entry in entries {
        for change in &entry.rows {
            write_change(connection, entry, change).await?;
        }
    }
    Ok(())
}

async fn write_change(connection: &mut Connection, entry: &Entry, change: &Change) -> Result<(), SqlError> {
    let (tenant, now) = (entry.tenant.as_str(), entry.unit.ts);
    match change {
        Change::Clear { root } => {
            let sql = "DELETE FROM flowcell_sessions WHERE tenant = ? AND root_session_id = ?";
            connection.run(sql, args![tenant, root.as_str()]).await.map(drop)
        }
        Change::Renew { root } => {
            let sql = "DELETE FROM flowcell_flow_states WHERE tenant = ? AND root_session_id = ?";
            connection.run(sql, args![tenant, root.as_str()]).await.map(drop)
        }
        Change::Session { id, parent, root, title } => {
            let session = Session {
                id: id.clone(),
                parent: parent.clone(),
                root: root.clone(),
                title: title.clone(),
                run: entry.run.clone(),
                created: now,
                updated: now,
            };
            let changed = ["parent_session_id", "root_session_id", "title", "run", "updated_at"];
            let after = connection.dialect().or_update("tenant, id", &changed);
            connection.insert(INTO_SESSIONS, vec![session_row(tenant, &session)], &after).await
        }
        Change::Begun { session, root, flow, step, status, args } => {
            let state = StepState {
                session: session.clone(),
                root: root.clone(),
                flow: flow.clone(),
                step: step.clone(),
                status: *status,
                args: args.clone(),
                output: None,
                is_struct_output: false,
                created: now,
                updated: now,
            };
            let changed =
                ["root_session_id", "flow_id", "step_id", "status", "args", "output", "is_struct_output", "updated_at"];
            let after = connection.dialect().or_update("tenant, session_id", &changed);
            connection.insert(INTO_STATES, vec![state_row(tenant, &state)], &after).await
        }
        Change::Ended { session, status, output, is_struct_output } => {
            let sql = "UPDATE flowcell_flow_states SET status = ?, output = ?, is_struct_output = ?, updated_at = ?
                WHERE tenant = ? AND session_id = ?";
            let flag = i64::from(*is_struct_output);
            let values = args![Arg::Word(status.name()), output.as_str(), flag, now, tenant, session.as_str()];
            connection.run(sql, values).await.map(drop)
        }
    }
}

fn session_row(tenant: &str, session: &Session) -> Vec<Arg> {
    let Session { id, parent, root, title, run, created, updated } = session;
    args![tenant, id.as_str(), parent.clone(), root.as_str(), title.as_str(), run.as_str(), *created, *updated]
}

fn state_row(tenant: &str, state: &StepState) -> Vec<Arg> {
    let StepState { session, root, flow, step, status, args, output, is_struct_output, created, updated } = state;
    args![
        tenant,
        session.as_str(),
        root.as_str(),
        flow.as_str(),
        step.as_str(),
        Arg::Word(status.name()),
        args.to_text(),
        output.clone(),
        i64::from(*is_struct_output),
        *created,
        *updated
    ]
}

/// Inserts a session of another store, unless it exists.
pub(super) async fn take_session(
    connection: &mut Connection,
    tenant: &Tenant,
    session: &Session,
) -> Result<(), SqlError> {
    let after = connection.dialect().or_leave("tenant, id");
    connection.insert(INTO_SESSIONS, vec![session_row(tenant.as_str(), session)], &after).await
}

/// Inserts a step state of another store, after its session, unless it exists.
pub(super) async fn take_state(
    connection: &mut Connection,
    tenant: &Tenant,
    state: &StepState,
) -> Result<(), SqlError> {
    let after = connection.dialect().or_leave("tenant, session_id");
    connection.insert(INTO_STATES, vec![state_row(tenant.as_str(), state)], &after).await
}

/// The columns of a session.
pub(super) const SESSION: &str =
    "id, parent_session_id, root_session_id, title, run, created_at, updated_at, tenant FROM flowcell_sessions";

pub(super) fn session(row: &Row) -> Result<Session, SqlError> {
    Ok(Session {
        id: row.text(0)?,
        parent: row.maybe_text(1)?,
        root: row.text(2)?,
        title: row.text(3)?,
        run: RunId::from(row.text(4)?),
        created: row.number(5)?,
        updated: row.number(6)?,
    })
}

/// The columns of a step state.
pub(super) const STATE: &str = "session_id, root_session_id, flow_id, step_id, status, args, output, is_struct_output,
    created_at, updated_at, tenant FROM flowcell_flow_states";

pub(super) fn state(row: &Row) -> Result<StepState, SqlError> {
    let session = row.text(0)?;
    let damaged = |why: &dyn std::fmt::Display| {
        SqlError::Permanent(format!("the state of the session `{session}` is damaged: {why}"))
    };
    let status = row.text(4)?;
    let status = StepStatus::named(&status).ok_or_else(|| damaged(&format!("`{status}` is not a status")))?;
    let args = row.maybe_text(5)?.map(|args| Json::restore(&args).map_err(|error| damaged(&error))).transpose()?;
    Ok(StepState {
        root: row.text(1)?,
        flow: row.text(2)?,
        step: row.text(3)?,
        status,
        args: args.unwrap_or_default(),
        output: row.maybe_text(6)?,
        is_struct_output: row.int(7)? != 0,
        created: row.number(8)?,
        updated: row.number(9)?,
        session,
    })
}

impl Sessions for SharedStore {
    fn session(&self, tenant: &Tenant, id: &str) -> Result<Option<Session>, StoreError> {
        let (tenant, id) = (tenant.clone(), id.to_owned());
        self.worker.read(async move |connection| {
            let sql = format!("SELECT {SESSION} WHERE tenant = ? AND id = ?");
            connection.row(&sql, args![tenant.as_str(), id.as_str()]).await?.as_ref().map(session).transpose()
        })
    }

    fn sessions(&self, tenant: &Tenant, root: &str) -> Result<Vec<Session>, StoreError> {
        let (tenant, root) = (tenant.clone(), root.to_owned());
        self.worker.read(async move |connection| {
            let sql = format!("SELECT {SESSION} WHERE tenant = ? AND root_session_id = ? ORDER BY created_at, id");
            connection.rows(&sql, args![tenant.as_str(), root.as_str()]).await?.iter().map(session).collect()
        })
    }

    fn states(&self, tenant: &Tenant, root: &str) -> Result<Vec<StepState>, StoreError> {
        let (tenant, root) = (tenant.clone(), root.to_owned());
        self.worker.read(async move |connection| {
            let sql =
                format!("SELECT {STATE} WHERE tenant = ? AND root_session_id = ? ORDER BY created_at, session_id");
            connection.rows(&sql, args![tenant.as_str(), root.as_str()]).await?.iter().map(state).collect()
        })
    }
}
