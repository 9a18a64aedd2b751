//! The record of a tenant.

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
}

/// Returns whether operators have disabled a tenant.
pub(crate) fn is_disabled(documents: &dyn DocumentStore, tenant: &Tenant) -> Result<bool, StoreError> {
    let documents = Documents { store: documents, tenant: &Tenant::from(OPERATORS) };
    let record = documents.get::<TenantRecord>(TENANT, tenant.as_str())?;
    Ok(record.is_some_and(|(record, _)| record.disabled))
}
