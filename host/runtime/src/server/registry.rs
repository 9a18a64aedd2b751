//! The registry of a shared store.

use flowcell_contract::{Json, Tenant};

use super::{
    ServerStore,
    link::{Link, Row, Trouble, args},
};
use crate::ports::{Registered, Registry, StoreError};

const COLUMNS: &str = "name, value, version FROM flowcell_registry WHERE tenant = ? AND kind = ?";

/// Reads key, value and version.
pub(super) fn found(row: &Row) -> Result<Registered, Trouble> {
    let (key, value) = (row.text(0)?, row.text(1)?);
    let value = Json::restore(&value).map_err(|error| Trouble::Lasting(format!("`{key}` is damaged: {error}")))?;
    Ok(Registered { key, value, version: row.number(2)? })
}

/// Takes over something from another store, unless it is there.
pub(super) async fn take(link: &mut Link, tenant: &Tenant, kind: &str, registered: &Registered) -> Result<(), Trouble> {
    let after = link.dialect().or_leave("tenant, kind, name");
    let Registered { key, value, version } = registered;
    let row = args![tenant.as_str(), kind, key.as_str(), value.to_text(), *version];
    link.insert("flowcell_registry (tenant, kind, name, value, version)", vec![row], &after).await
}

impl Registry for ServerStore {
    fn registered(&self, tenant: &Tenant, kind: &str, key: &str) -> Result<Option<Registered>, StoreError> {
        let (tenant, kind, key) = (tenant.clone(), kind.to_owned(), key.to_owned());
        self.door.read(async move |link| {
            let sql = format!("SELECT {COLUMNS} AND name = ?");
            let place = args![tenant.as_str(), kind.as_str(), key.as_str()];
            link.row(&sql, place).await?.as_ref().map(found).transpose()
        })
    }

    fn registered_after(
        &self,
        tenant: &Tenant,
        kind: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<Registered>, StoreError> {
        let (tenant, kind, after) = (tenant.clone(), kind.to_owned(), after.to_owned());
        self.door.read(async move |link| {
            let sql = format!("SELECT {COLUMNS} AND name > ? ORDER BY name LIMIT {limit}");
            let place = args![tenant.as_str(), kind.as_str(), after.as_str()];
            link.rows(&sql, place).await?.iter().map(found).collect()
        })
    }

    fn last_registered(&self, tenant: &Tenant, kind: &str) -> Result<Option<Registered>, StoreError> {
        let (tenant, kind) = (tenant.clone(), kind.to_owned());
        self.door.read(async move |link| {
            let sql = format!("SELECT {COLUMNS} ORDER BY name DESC LIMIT 1");
            link.row(&sql, args![tenant.as_str(), kind.as_str()]).await?.as_ref().map(found).transpose()
        })
    }

    fn register(
        &self,
        tenant: &Tenant,
        kind: &str,
        key: &str,
        value: Option<&Json>,
        seen: u64,
    ) -> Result<bool, StoreError> {
        let (tenant, kind, key) = (tenant.clone(), kind.to_owned(), key.to_owned());
        let text = value.map(Json::to_text);
        self.door.read(async move |link| {
            let (tenant, kind, key) = (tenant.as_str(), kind.as_str(), key.as_str());
            let written = match &text {
                Some(text) if seen == 0 => {
                    let leave = link.dialect().pick(
                        "INSERT IGNORE INTO flowcell_registry (tenant, kind, name, value, version) VALUES (?, ?, ?, ?, 1)",
                        "INSERT INTO flowcell_registry (tenant, kind, name, value, version) VALUES (?, ?, ?, ?, 1)
                            ON CONFLICT DO NOTHING",
                    );
                    link.run(leave, args![tenant, kind, key, text.as_str()]).await?
                }
                Some(text) => {
                    let sql = "UPDATE flowcell_registry SET value = ?, version = version + 1
                        WHERE tenant = ? AND kind = ? AND name = ? AND version = ?";
                    link.run(sql, args![text.as_str(), tenant, kind, key, seen]).await?
                }
                None => {
                    let sql =
                        "DELETE FROM flowcell_registry WHERE tenant = ? AND kind = ? AND name = ? AND version = ?";
                    link.run(sql, args![tenant, kind, key, seen]).await?
                }
            };
            Ok(written > 0)
        })
    }
}
