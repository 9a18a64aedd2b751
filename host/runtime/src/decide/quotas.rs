//! Quotas of the tenant that are used up, and the attempts and calls that wait for their renewal.

use super::Decider;
use crate::{fact::Fact, quota::QuotaHold};

/// Returns true if a quota is used up, so that no attempt may begin. Records that the quota was reached, or has renewed.
pub(super) fn is_held(decider: &mut Decider<'_>) -> bool {
    match decider.state.quota_now.clone() {
        Some(hold) => {
            reach(decider, hold);
            true
        }
        None => {
            renew(decider);
            false
        }
    }
}

/// Holds the run until the quota renews. The rest of this decision begins no attempt.
pub(super) fn reach(decider: &mut Decider<'_>, hold: QuotaHold) {
    if decider.state.held_by.as_ref() != Some(&hold) {
        decider.emit(Fact::QuotaReached(Box::new(hold.clone())));
    }
    decider.state.quota_now = Some(hold);
}

/// Records that the run no longer waits for a quota.
pub(super) fn renew(decider: &mut Decider<'_>) {
    if decider.state.held_by.is_some() {
        decider.emit(Fact::QuotaRenewed);
    }
}
