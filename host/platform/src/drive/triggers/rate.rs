//! Limits, per tenant, the rate at which the ends of triggered runs start further runs.
//!
//! The end of one run may start several runs, and the end of each of these may start more. So the number of runs
//! multiplies with each link of the chain, and [`MAX_CHAIN_DEPTH`](super::ends::MAX_CHAIN_DEPTH) alone does not limit
//! it. A start counts against the tenant's rate if it follows the end of a run that was itself started by the end of
//! another run. All other starts are not limited here. A start that exceeds the rate is made later. Each process has
//! its own rate.

use std::collections::HashMap;

use flowcell_contract::Tenant;
use parking_lot::Mutex;

/// Maximum number of chained starts that a tenant may make at the same moment. A start is chained if it follows the end
/// of a run that the end of another run has started.
pub const CHAINED_AT_ONCE: u32 = 100;
/// Number of chained starts that a tenant regains per second, up to [`CHAINED_AT_ONCE`].
pub const CHAINED_A_SECOND: u32 = 10;
/// Minimum time between two warnings about a tenant, in milliseconds.
const MIN_WARNING_INTERVAL_MS: u64 = 60_000;

/// The chained starts that each tenant may make now. Times are milliseconds since 1970.
#[derive(Default)]
pub(super) struct Rate(Mutex<HashMap<Tenant, Allowance>>);

#[derive(Clone, Copy)]
struct Allowance {
    starts: f64,
    at: u64,
    warned: Option<u64>,
}

impl Rate {
    /// Counts one start of a tenant. Returns `false` if the tenant may not make another start now.
    pub(super) fn try_take(&self, tenant: &Tenant, now: u64) -> bool {
        let mut tenants = self.0.lock();
        // A tenant with all of its starts needs no entry.
        tenants.retain(|_, left| left.refilled_at(now).starts < f64::from(CHAINED_AT_ONCE));
        let full = Allowance { starts: f64::from(CHAINED_AT_ONCE), at: now, warned: None };
        let left = tenants.entry(tenant.clone()).or_insert(full);
        *left = left.refilled_at(now);
        let may = left.starts >= 1.0;
        if may {
            left.starts -= 1.0;
        }
        may
    }

    /// Returns true if a warning about a tenant is due, at most once a minute, and records that it was given.
    pub(super) fn take_warning(&self, tenant: &Tenant, now: u64) -> bool {
        let mut tenants = self.0.lock();
        let Some(left) = tenants.get_mut(tenant) else { return true };
        let warns = left.warned.is_none_or(|warned| now.abs_diff(warned) >= MIN_WARNING_INTERVAL_MS);
        if warns {
            left.warned = Some(now);
        }
        warns
    }
}

impl Allowance {
    /// Returns the allowance at the time `now`: its starts, and those that the tenant has regained since the allowance
    /// was last computed. If the clock has gone back, the tenant has regained none.
    fn refilled_at(self, now: u64) -> Allowance {
        let more = now.saturating_sub(self.at) as f64 / 1e3 * f64::from(CHAINED_A_SECOND);
        Allowance { starts: (self.starts + more).min(f64::from(CHAINED_AT_ONCE)), at: now, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(rate: &Rate, tenant: &str, now: u64) -> u32 {
        (0..).take_while(|_| rate.try_take(&tenant.into(), now)).count() as u32
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
        assert!(rate.take_warning(&tenant, now) && !rate.take_warning(&tenant, now + 1));
        taken(&rate, "a", now + 60_000);
        assert!(rate.take_warning(&tenant, now + 60_000));
    }
}
