//! The removal of everything that a store has of one tenant.

use std::collections::BTreeMap;

use flowcell_contract::Tenant;

use super::StoreError;

/// Removes all rows of a tenant.
///
/// The defaults are those of a store that cannot remove a tenant: one in memory, or one that is only read.
pub trait Erase: Send + Sync {
    /// Counts the rows of a tenant by the names of their tables, for tables with a column of tenants. The journal of a
    /// run counts with its run. Leaves out tables without rows of the tenant.
    fn rows_of(&self, _: &Tenant) -> Result<BTreeMap<String, u64>, StoreError> {
        Err(cannot_erase())
    }

    /// Counts the runs of a tenant that other processes drive now.
    fn driven_elsewhere(&self, _: &Tenant) -> Result<u64, StoreError> {
        Err(cannot_erase())
    }

    /// Removes some rows of a tenant, at most about [`MAX_ERASED_ROWS`](crate::limits::MAX_ERASED_ROWS), and returns
    /// their number when the removal is durable. 0: the tenant has no more rows. A store with one owner refuses all
    /// writes of this process for the tenant from the first call on, until [`Erase::readmit`]. A shared store fails
    /// while a process drives a run of the tenant.
    fn erase_some(&self, _: &Tenant) -> Result<u64, StoreError> {
        Err(cannot_erase())
    }

    /// Accepts writes of a tenant again, for a new tenant with the name of a removed one.
    fn readmit(&self, _: &Tenant) {}

    /// Removes what the store's own file still has of removed rows, such as free pages and the write-ahead log. Returns
    /// true if the file has nothing of them. Returns false for a server, which keeps its own files, and for a file of
    /// more than [`COMPACT_USED_BYTES`](crate::limits::COMPACT_USED_BYTES), since all writes wait for its compaction.
    fn purge(&self) -> Result<bool, StoreError> {
        Err(cannot_erase())
    }

    /// Returns the first tenant in byte order after `after` that has rows. `None`: there is no such tenant.
    fn next_tenant(&self, _after: &Tenant) -> Result<Option<Tenant>, StoreError> {
        Err(cannot_erase())
    }
}

fn cannot_erase() -> StoreError {
    StoreError("this process has no lasting store to remove a tenant from".into())
}
