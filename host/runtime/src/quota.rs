//! Quotas of a tenant that pause its runs instead of failing them.
//!
//! Before each decision the driver asks the [`Quotas`] of its world. While a quota is used up, the deciders begin no
//! attempt. A call that is about to leave is held: it counts as not made, and its attempt is repeated later. All other
//! inputs are taken in. When nothing else is left to do, the run parks until its next timer or the renewal of the quota.

use flowcell_contract::{Failure, Json, Tenant, code};
use serde::{Deserialize, Serialize};

use crate::limits::QUOTA_WINDOW_MS;

/// The member of a failure's details that says that the call may be made when the quota has renewed.
const HOLD: &str = "pausedBy";

/// A quota that is used up, and that pauses runs until it renews.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QuotaHold {
    /// The name of the quota in the tenant's policy, such as `perDay.modelUsd`.
    pub quota: Box<str>,
    /// The time at which the quota renews, in milliseconds since 1970.
    pub until: u64,
    /// The maximum cost of the call that the run waits to make, in USD. `None`: the quota holds every attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd: Option<f64>,
}

/// The quotas of tenants.
pub trait Quotas: Send + Sync {
    /// Returns the quota that pauses a tenant's runs at present. `usd` is the maximum cost of the call that the run waits
    /// to make: the run stays paused while the remaining amount is smaller. The method must return quickly.
    fn hold(&self, tenant: &Tenant, usd: Option<f64>) -> Option<QuotaHold>;
}

impl QuotaHold {
    /// Returns the failure of a call that was not made because of this quota. The driver holds the call instead of
    /// recording the failure.
    pub fn failure(&self, message: impl Into<String>) -> Failure {
        let details = serde_json::to_value(self).map(Json::from).unwrap_or_default();
        Failure { details: Some(Json::object([(HOLD, details)])), ..Failure::new(code::QUOTA_EXCEEDED, message) }
    }

    /// Removes the quota from a failure that a node has made, so that no node can make its call wait.
    pub fn without(failure: Failure) -> Failure {
        let details = failure.details.filter(|details| details.get(HOLD).is_none());
        Failure { details, ..failure }
    }

    /// Returns the quota of a failure that [`QuotaHold::failure`] made. A node can fail with the same details, so a time
    /// that is further away than the longest window does not count.
    pub(crate) fn of(failure: &Failure, now: u64) -> Option<QuotaHold> {
        let details = failure.details.as_ref().filter(|_| failure.code == code::QUOTA_EXCEEDED)?.get(HOLD)?;
        let hold: QuotaHold = serde_json::from_value(details.to_serde()).ok()?;
        let is_credible = hold.until <= now.saturating_add(QUOTA_WINDOW_MS) && hold.usd.is_none_or(f64::is_finite);
        is_credible.then_some(hold)
    }
}

/// Returns the time at which the window of a quota ends that contains `now`, both in milliseconds since 1970. A window is
/// one day of UTC.
pub fn window_end(now: u64) -> u64 {
    (now / QUOTA_WINDOW_MS + 1) * QUOTA_WINDOW_MS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_is_read_from_its_failure_and_from_no_other() {
        let hold = QuotaHold { quota: "perDay.modelUsd".into(), until: QUOTA_WINDOW_MS, usd: Some(0.5) };
        let failure = hold.failure("used up");
        assert_eq!(QuotaHold::of(&failure, 5), Some(hold.clone()));
        let forged = QuotaHold { until: QUOTA_WINDOW_MS + 6, ..hold }.failure("for ever");
        assert_eq!(QuotaHold::of(&forged, 5), None);
        assert_eq!(QuotaHold::of(&Failure { code: "other".into(), ..failure }, 5), None);
        assert_eq!(QuotaHold::of(&Failure::new(code::QUOTA_EXCEEDED, "plain"), 5), None);
    }

    #[test]
    fn a_window_ends_at_midnight_of_utc() {
        assert_eq!(
            [0, QUOTA_WINDOW_MS - 1, QUOTA_WINDOW_MS].map(window_end),
            [1, 1, 2].map(|day| day * QUOTA_WINDOW_MS)
        );
    }
}
