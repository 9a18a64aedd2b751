//! The state of flows in a shared store.

use std::{collections::BTreeMap, sync::Arc};

use flowcell_contract::{Tenant, Value};

use super::{
    Shared, SharedStore,
    blobs::{CommitBlobs, CutOut},
    connection::{Answer, Arg, Connection, SqlError, args, placeholders},
    values::{text, unwritable},
};
use crate::{
    fact::Write,
    ports::{Entry, StageError, Staged, StateStore, StoreError},
    rows::cut::ExternalizedRow,
};

/// The writes of a flow's state by key: the expected version, and the last write with its version.
type Changes<'a> = BTreeMap<&'a str, (u64, &'a Write, u64)>;

/// Writes the state of entries. If another process has changed one of the values, fails with [`SqlError::Again`]. This
/// process then gives up the runs of the flow, because they may have read outdated state.
pub(super) async fn write(shared: &Shared, connection: &mut Connection, entries: &[&Entry]) -> Result<(), SqlError> {
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
            placeholders(changes.len())
        );
        let names = changes.keys().map(|name| Arg::from(*name));
        let mut known = BTreeMap::new();
        for row in connection.rows(&sql, args![tenant, flow].into_iter().chain(names).collect()).await? {
            known.insert(row.text(0)?, row.number(1)?);
        }
        if changes.iter().any(|(name, (seen, ..))| known.get(*name).copied().unwrap_or(0) != *seen) {
            shared.drop_staged(&Tenant::from(tenant), flow);
            return Err(SqlError::Again);
        }
        replace(connection, tenant, flow, &changes, |name| known.contains_key(name)).await?;
    }
    Ok(())
}

async fn replace(
    connection: &mut Connection,
    tenant: &str,
    flow: &str,
    changes: &Changes<'_>,
    is_known: impl Fn(&str) -> bool,
) -> Result<(), SqlError> {
    let (mut blobs, mut new, mut old) = (CommitBlobs::default(), Vec::new(), Vec::new());
    for (name, (_, write, version)) in changes {
        let value = ExternalizedRow::of_value(text(&write.value)?).map_err(unwritable)?;
        blobs.add(&Tenant::from(tenant), value.blobs);
        let row = args![tenant, flow, *name, value.text, value.cuts, *version];
        if is_known(name) { old.push(row) } else { new.push(row) }
    }
    blobs.insert(connection).await?;
    let into = "flowcell_state (tenant, flow, name, value, cuts, version)";
    let after = connection.dialect().or_update("tenant, flow, name", &["value", "cuts", "version"]);
    connection.insert(into, old, &after).await?;
    // Another process may have inserted the row meanwhile.
    connection.insert(into, new, "").await.map_err(|error| match error {
        SqlError::DuplicateRow(_) => SqlError::Again,
        error => error,
    })
}

/// Reads a value and its version.
async fn read(connection: &mut Connection, tenant: &Tenant, flow: &str, key: &str) -> Answer<Option<(Value, u64)>> {
    let sql = "SELECT value, cuts, version FROM flowcell_state WHERE tenant = ? AND flow = ? AND name = ?";
    let Some(row) = connection.row(sql, args![tenant.as_str(), flow, key]).await? else { return Ok(Ok(None)) };
    let text = CutOut::new(tenant).put_back(connection, row.text(0)?, row.maybe_text(1)?.as_deref()).await?;
    let version = row.number(2)?;
    let value = text.and_then(|text| Value::restore(text).map_err(|error| format!("it is not JSON: {error}")));
    let damaged = |why| StoreError::damaged(format!("the state `{key}` of the flow `{flow}` is damaged: {why}"));
    Ok(value.map(|value| Some((value, version))).map_err(damaged))
}

/// Returns a value in the view of this process: a staged one, or the durable one.
fn visible_state(
    store: &SharedStore,
    tenant: &Tenant,
    flow: &Arc<str>,
    key: &str,
) -> Result<Option<(Value, u64)>, StoreError> {
    let key = (tenant.clone(), flow.clone(), key.to_owned());
    if let Some(found) = store.shared.visible().state.get(&key) {
        return Ok(Some(found.clone()));
    }
    store.worker.read_checked(async move |connection| read(connection, &key.0, &key.1, &key.2).await)
}

impl StateStore for SharedStore {
    fn get(&self, tenant: &Tenant, flow: &str, key: &str) -> Result<Option<(Value, u64)>, StoreError> {
        visible_state(self, tenant, &flow.into(), key)
    }

    fn stage(&self, tenant: &Tenant, flow: &Arc<str>, writes: Vec<Write>) -> Result<Staged, StageError> {
        let _staging = self.staging.lock();
        let version = |key: &str| Ok(visible_state(self, tenant, flow, key)?.map_or(0, |(_, version)| version));
        let staged = Staged::assign_versions(flow, writes, version)?;
        let mut visible = self.shared.visible();
        for (write, version) in &staged.writes {
            let key = (tenant.clone(), flow.clone(), write.key.clone());
            visible.state.insert(key, (write.value.clone(), *version));
        }
        Ok(staged)
    }
}
