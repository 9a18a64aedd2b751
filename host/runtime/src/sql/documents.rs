//! The documents of operators in a shared store.

use flowcell_contract::{Json, Tenant};

use super::{
    SharedStore,
    connection::{Connection, Row, SqlError, args},
};
use crate::ports::{Document, DocumentStore, StoreError};

const COLUMNS: &str = "name, value, version FROM flowcell_registry WHERE tenant = ? AND kind = ?";

/// Reads a document from a row with key, value and version.
pub(super) fn document(row: &Row) -> Result<Document, SqlError> {
    let (key, value) = (row.text(0)?, row.text(1)?);
    let value = Json::restore(&value).map_err(|error| SqlError::Permanent(format!("`{key}` is damaged: {error}")))?;
    Ok(Document { key, value, version: row.number(2)? })
}

/// Inserts a document of another store, unless it exists.
pub(super) async fn take(
    connection: &mut Connection,
    tenant: &Tenant,
    kind: &str,
    document: &Document,
) -> Result<(), SqlError> {
    let after = connection.dialect().or_leave("tenant, kind, name");
    let Document { key, value, version } = document;
    let row = args![tenant.as_str(), kind, key.as_str(), value.to_text(), *version];
    connection.insert("flowcell_registry (tenant, kind, name, value, version)", vec![row], &after).await
}

impl DocumentStore for SharedStore {
    fn get(&self, tenant: &Tenant, kind: &str, key: &str) -> Result<Option<Document>, StoreError> {
        let (tenant, kind, key) = (tenant.clone(), kind.to_owned(), key.to_owned());
        self.worker.read(async move |connection| {
            let sql = format!("SELECT {COLUMNS} AND name = ?");
            let key = args![tenant.as_str(), kind.as_str(), key.as_str()];
            connection.row(&sql, key).await?.as_ref().map(document).transpose()
        })
    }

    fn list(&self, tenant: &Tenant, kind: &str, after: &str, limit: usize) -> Result<Vec<Document>, StoreError> {
        let (tenant, kind, after) = (tenant.clone(), kind.to_owned(), after.to_owned());
        self.worker.read(async move |connection| {
            let sql = format!("SELECT {COLUMNS} AND name > ? ORDER BY name LIMIT {limit}");
            let key = args![tenant.as_str(), kind.as_str(), after.as_str()];
            connection.rows(&sql, key).await?.iter().map(document).collect()
        })
    }

    fn last(&self, tenant: &Tenant, kind: &str) -> Result<Option<Document>, StoreError> {
        let (tenant, kind) = (tenant.clone(), kind.to_owned());
        self.worker.read(async move |connection| {
            let sql = format!("SELECT {COLUMNS} ORDER BY name DESC LIMIT 1");
            connection.row(&sql, args![tenant.as_str(), kind.as_str()]).await?.as_ref().map(document).transpose()
        })
    }

    fn write(
        &self,
        tenant: &Tenant,
        kind: &str,
        key: &str,
        value: Option<&Json>,
        expected_version: u64,
    ) -> Result<bool, StoreError> {
        let (tenant, kind, key) = (tenant.clone(), kind.to_owned(), key.to_owned());
        let text = value.map(Json::to_text);
        self.worker.write(async move |connection| {
            let (tenant, kind, key) = (tenant.as_str(), kind.as_str(), key.as_str());
            let written = match &text {
                Some(text) if expected_version == 0 => {
                    let insert = connection.dialect().pick(
                        "INSERT IGNORE INTO flowcell_registry (tenant, kind, name, value, version) VALUES (?, ?, ?, ?, 1)",
                        "INSERT INTO flowcell_registry (tenant, kind, name, value, version) VALUES (?, ?, ?, ?, 1)
                            ON CONFLICT DO NOTHING",
                    );
                    connection.run(insert, args![tenant, kind, key, text.as_str()]).await?
                }
                Some(text) => {
                    let sql = "UPDATE flowcell_registry SET value = ?, version = version + 1
                        WHERE tenant = ? AND kind = ? AND name = ? AND version = ?";
                    connection.run(sql, args![text.as_str(), tenant, kind, key, expected_version]).await?
                }
                None => {
                    let sql =
                        "DELETE FROM flowcell_registry WHERE tenant = ? AND kind = ? AND name = ? AND version = ?";
                    connection.run(sql, args![tenant, kind, key, expected_version]).await?
                }
            };
            Ok(written > 0)
        })
    }
}
