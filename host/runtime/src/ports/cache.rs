//! The cache: values that a store may forget at any time.

use flowcell_contract::{Tenant, Value};

/// Values that the store may forget at any time, per tenant.
pub trait CacheStore: Send + Sync {
    /// Returns a value that has not expired at `now`.
    fn get(&self, tenant: &Tenant, key: &str, now: u64) -> Option<Value>;

    /// Stores a value. It expires at `expires` (milliseconds since 1970). `None`: it does not expire.
    fn set(&self, tenant: &Tenant, key: &str, value: Value, expires: Option<u64>);

    /// Forgets the values of a tenant that this process has in memory. The default does nothing, for a store whose
    /// values are rows.
    fn forget(&self, _: &Tenant) {}
}
