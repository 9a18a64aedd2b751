//! Documents: small records that operators keep beside the runs, such as tenants, their tokens, and the audit log. Each
//! write is on stable storage when it returns.

use flowcell_contract::{Json, Tenant};

use super::StoreError;

/// The kind of the documents with the progress of triggers. A store that is restored from an older copy drops them.
pub const MARK: &str = "trigger-mark";

/// A stored document.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Its key among the documents of its kind.
    pub key: String,
    /// Its content.
    pub value: Json,
    /// The number of its writes, from 1.
    pub version: u64,
}

/// Documents by tenant, kind and key.
pub trait DocumentStore: Send + Sync {
    /// Returns a document.
    fn get(&self, tenant: &Tenant, kind: &str, key: &str) -> Result<Option<Document>, StoreError>;

    /// Lists at most `limit` documents of a kind with keys after `after`, in the byte order of the keys.
    fn list(&self, tenant: &Tenant, kind: &str, after: &str, limit: usize) -> Result<Vec<Document>, StoreError>;

    /// Returns the document of a kind with the last key.
    fn last(&self, tenant: &Tenant, kind: &str) -> Result<Option<Document>, StoreError>;

    /// Writes a document if it has the expected version, which is 0 for a new one. No value removes it. Returns whether
    /// it was written: of several writers that expect the same version, one succeeds.
    fn write(
        &self,
        tenant: &Tenant,
        kind: &str,
        key: &str,
        value: Option<&Json>,
        expected_version: u64,
    ) -> Result<bool, StoreError>;
}
