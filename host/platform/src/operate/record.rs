//! The record of a tenant.

use flowcell_contract::Tenant;
use flowcell_runtime::ports::{DocumentStore, StoreError};
use serde::{Deserialize, Serialize};

use super::{documents::Documents, policy::OPERATORS};

pub(crate) const TENANT: &str = "tenant";

/// What operators keep of a tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TenantRecord {
    pub(crate) created: u64,
    /// Its tokens let nobody in, and none of its runs begins or goes on.
    #[serde(default)]
    pub(crate) disabled: bool,
}

/// Whether operators have disabled a tenant.
pub(crate) fn is_disabled(documents: &dyn DocumentStore, tenant: &Tenant) -> Result<bool, StoreError> {
    let documents = Documents { store: documents, tenant: &Tenant::from(OPERATORS) };
    let record = documents.get::<TenantRecord>(TENANT, tenant.as_str())?;
    Ok(record.is_some_and(|(record, _)| record.disabled))
}
