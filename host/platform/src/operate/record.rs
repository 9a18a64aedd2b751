//! The record of a tenant.

use std::collections::BTreeMap;

use flowcell_contract::Tenant;
use flowcell_runtime::ports::{DocumentStore, StoreError};
use serde::{Deserialize, Serialize};

use super::{documents::Documents, policy::OPERATORS};

pub(crate) const TENANT: &str = "tenant";

/// The operators' document of a tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TenantRecord {
    pub(crate) created: u64,
    /// True while the tenant's tokens are rejected, and none of its runs starts or continues.
    #[serde(default)]
    pub(crate) disabled: bool,
    /// The removal of the tenant that has begun. From then on the tenant is refused everywhere, and can only be
    /// removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) removal: Option<Removal>,
}

/// The start of the removal of a tenant: what it has found. A removal that is interrupted goes on with this.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Removal {
    /// The id of the tombstone that will remain.
    pub(crate) id: String,
    /// The time of the start, in milliseconds since 1970.
    pub(crate) began: u64,
    #[serde(flatten)]
    pub(crate) found: FoundData,
    /// True if the tenant had a key of its own, which the removal destroys.
    pub(crate) has_key: bool,
    /// Number of data keys that the key of the store alone opens.
    pub(crate) plain_data_keys: u64,
    /// Number of entries of the audit log.
    pub(crate) audit_entries: u64,
    /// The hash of the last entry of the audit log.
    pub(crate) audit_head: String,
}

/// Returns whether operators have disabled a tenant.
pub(crate) fn is_disabled(documents: &dyn DocumentStore, tenant: &Tenant) -> Result<bool, StoreError> {
    let documents = Documents { store: documents, tenant: &Tenant::from(OPERATORS) };
    let record = documents.get::<TenantRecord>(TENANT, tenant.as_str())?;
    Ok(record.is_some_and(|(record, _)| record.disabled))
}

/// The data of a tenant that a removal has found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FoundData {
    /// The rows of the tenant by their tables.
    pub rows: BTreeMap<String, u64>,
    /// Number of tokens.
    pub tokens: u64,
    /// Number of secrets.
    pub secrets: u64,
    /// Number of credentials. Certificates of earlier versions count none.
    #[serde(default)]
    pub credentials: u64,
    /// Number of accounts of people. Certificates of earlier versions count none.
    #[serde(default)]
    pub accounts: u64,
    /// Number of jobs that are kept. Certificates of earlier versions count none.
    #[serde(default)]
    pub jobs: u64,
}
