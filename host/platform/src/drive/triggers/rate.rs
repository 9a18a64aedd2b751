//! How many runs the ends of triggered runs start: a rate of each tenant.
//!
//! The end of a run may start several runs, and the end of each of these again. Their number grows with every step, so that
//! [`DEPTH`](super::ends::DEPTH) steps alone do not limit it. The first step of a chain is as free as what it follows. From
//! the second step on each start takes from the tenant's rate; a start that finds nothing left is made later. The rate is
//! that of one process.

use std::collections::HashMap;

use flowcell_contract::Tenant;
use parking_lot::Mutex;

/// Starts that a tenant may make at once in the second and later steps of chains.
pub const CHAINED_AT_ONCE: u32 = 100;
/// Starts that it may make in a second after that.
pub const CHAINED_A_SECOND: u32 = 10;
/// Milliseconds between two warnings about the same tenant.
const WARNS_MS: u64 = 60_000;

/// The starts that tenants may make. Times are milliseconds since 1970.
#[derive(Default)]
pub(super) struct Rate(Mutex<HashMap<Tenant, Left>>);

#[derive(Clone, Copy)]
struct Left {
    starts: f64,
    at: u64,
    warned: Option<u64>,
}

impl Rate {
    /// Takes a start of a tenant. False: none is left now.
    pub(super) fn take(&self, tenant: &Tenant, now: u64) -> bool {
        let mut tenants = self.0.lock();
        // A tenant with all of its starts is like one that has made none.
        tenants.retain(|_, left| left.now(now).starts < f64::from(CHAINED_AT_ONCE));
        let full = Left { starts: f64::from(CHAINED_AT_ONCE), at: now, warned: None };
        let left = tenants.entry(tenant.clone()).or_insert(full);
        *left = left.now(now);
        let may = left.starts >= 1.0;
        if may {
            left.starts -= 1.0;
        }
        may
    }

    /// Whether to warn about a tenant now: once a minute.
    pub(super) fn warns(&self, tenant: &Tenant, now: u64) -> bool {
        let mut tenants = self.0.lock();
        let Some(left) = tenants.get_mut(tenant) else { return true };
        let warns = left.warned.is_none_or(|warned| now.abs_diff(warned) >= WARNS_MS);
        if warns {
            left.warned = Some(now);
        }
        warns
    }
}

impl Left {
    /// The same at a time. A clock that goes back gives nothing.
    fn now(self, now: u64) -> Left {
        let more = now.saturating_sub(self.at) as f64 / 1e3 * f64::from(CHAINED_A_SECOND);
        Left { starts: (self.starts + more).min(f64::from(CHAINED_AT_ONCE)), at: now, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(rate: &Rate, tenant: &str, now: u64) -> u32 {
        (0..).take_while(|_| rate.take(&tenant.into(), now)).count() as u32
    }

    #[test]
    fn a_tenant_starts_many_at_once_and_then_some_a_second() {
        let rate = Rate::default();
        let now = 1_000_000;
        assert_eq!(taken(&rate, "a", now), CHAINED_AT_ONCE);
        assert_eq!(taken(&rate, "b", now), CHAINED_AT_ONCE, "another tenant has its own");
        assert_eq!(taken(&rate, "a", now + 500), CHAINED_A_SECOND / 2);
        assert_eq!(taken(&rate, "a", now - 10_000), 0, "the clock was set back");
        assert_eq!(taken(&rate, "a", now + 3_600_000), CHAINED_AT_ONCE);
    }

    #[test]
    fn a_tenant_is_warned_about_once_a_minute() {
        let rate = Rate::default();
        let (tenant, now) = ("a".into(), 1_000_000);
        taken(&rate, "a", now);
        assert!(rate.warns(&tenant, now) && !rate.warns(&tenant, now + 1));
        taken(&rate, "a", now + 60_000);
        assert!(rate.warns(&tenant, now + 60_000));
    }
}
