//! Documents: small records that operators keep beside the runs, such as tenants, their tokens, and the audit log. A
//! write returns when the document is on stable storage.

use flowcell_contract::{Json, Tenant};

use super::StoreError;

/// The kind of the documents with the progress of triggers. A store that is restored from an older copy drops them.
pub const MARK: &str = "trigger-mark";

/// A stored document with its version.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// The key of the document, unique among the documents of its kind.
    pub key: String,
    /// The content of the document.
    pub value: Json,
    /// The number of writes of the document, from 1.
    pub version: u64,
}

/// Documents by tenant, kind and key.
pub trait DocumentStore: Send + Sync {
    /// Returns the document with this kind and key.
    fn get(&self, tenant: &Tenant, kind: &str, key: &str) -> Result<Option<Document>, StoreError>;

    /// Lists at most `limit` documents of a kind with keys after `after`, in the byte order of the keys.
    fn list(&self, tenant: &Tenant, kind: &str, after: &str, limit: usize) -> Result<Vec<Document>, StoreError>;

    /// Returns the document of a kind with the last key.
    fn last(&self, tenant: &Tenant, kind: &str) -> Result<Option<Document>, StoreError>;

    /// Writes a document if it has the expected version. A new document has the expected version 0.
    ///
    /// `None` as the value removes the document. Returns whether the document was written: of several writers that
    /// expect the same version, one succeeds.
    fn write(
        &self,
        tenant: &Tenant,
        kind: &str,
        key: &str,
        value: Option<&Json>,
        expected_version: u64,
    ) -> Result<bool, StoreError>;
}
