//! The registry: what operators keep beside the runs, such as tenants, their tokens, and the audit log. Few and small
//! things, and each write is on stable storage when it returns.

use flowcell_contract::{Json, Tenant};

use super::StoreError;

/// The kind of what says how far something has come. It is forgotten by a store that is brought back from an older copy.
pub const MARK: &str = "trigger-mark";

/// Something that is registered.
#[derive(Clone, Debug, PartialEq)]
pub struct Registered {
    /// What it is found by among those of its kind.
    pub key: String,
    /// What it says.
    pub value: Json,
    /// Counts its writes, from 1.
    pub version: u64,
}

/// Where things are registered, by tenant, kind and key.
pub trait Registry: Send + Sync {
    /// One of them.
    fn registered(&self, tenant: &Tenant, kind: &str, key: &str) -> Result<Option<Registered>, StoreError>;

    /// Those of a kind whose keys come after one, in the order of their bytes, and at most `limit`.
    fn registered_after(
        &self,
        tenant: &Tenant,
        kind: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<Registered>, StoreError>;

    /// The one of a kind with the last key.
    fn last_registered(&self, tenant: &Tenant, kind: &str) -> Result<Option<Registered>, StoreError>;

    /// Writes one if it still has the version that was `seen`, 0 if it was not there; no value removes it. Answers
    /// whether it was written: of several who have seen the same, one wins.
    fn register(
        &self,
        tenant: &Tenant,
        kind: &str,
        key: &str,
        value: Option<&Json>,
        seen: u64,
    ) -> Result<bool, StoreError>;
}
