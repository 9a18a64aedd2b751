//! Quotas that pause the runs of a tenant (`onExhausted: pause`).

use flowcell_contract::Tenant;
use flowcell_runtime::{QuotaHold, Quotas, quota::window_end};

use super::Usage;
use crate::operate::policy::{OnExhausted, PerDay};

/// A tenant's quotas at one time, to notice that they allow more than before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Room {
    /// True if a quota is used up, and pauses all runs of the tenant.
    pub(crate) is_closed: bool,
    pub(super) quotas: PerDay,
    pub(super) day: u64,
    pub(super) model_usd: f64,
}

impl Room {
    /// Returns whether a quota that is used up pauses runs.
    pub(crate) fn pauses(&self) -> bool {
        self.quotas.on_exhausted == OnExhausted::Pause
    }

    /// Returns whether the operator has changed the quotas since `before`, or another day has begun.
    pub(crate) fn has_changed_since(&self, before: &Room) -> bool {
        self.quotas != before.quotas || self.day != before.day
    }

    /// Returns whether a reserved cost was returned since `before`.
    pub(crate) fn costs_less_than(&self, before: &Room) -> bool {
        self.model_usd < before.model_usd
    }
}

impl Quotas for Usage {
    fn hold(&self, tenant: &Tenant, usd: Option<f64>) -> Option<QuotaHold> {
        if !self.counts() {
            return None;
        }
        let (today, _) = self.today();
        let (hold, is_first) = {
            let mut tenants = self.0.tenants.lock();
            let counted = tenants.get_mut(tenant).filter(|counted| counted.day == today)?;
            let what = counted.most.pauses(&counted.used(), usd)?;
            let until = window_end(self.0.timers.now());
            let is_first = counted.held_on.replace(today) != Some(today);
            (QuotaHold { quota: format!("perDay.{what}").into(), until, usd }, is_first)
        };
        if is_first {
            let (quota, until) = (&*hold.quota, hold.until);
            tracing::warn!(
                tenant = tenant.as_str(),
                quota,
                until,
                "quota used up: the tenant's runs pause until it renews"
            );
        }
        Some(hold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operate::usage::Used;

    fn used(model_usd: f64) -> Used {
        Used { model_usd, events: 5, ..Used::default() }
    }

    #[test]
    fn a_quota_pauses_only_if_the_policy_says_so() {
        let quotas = PerDay { model_usd: Some(8.0), on_exhausted: OnExhausted::Pause, ..PerDay::default() };
        for (used_usd, usd, pauses) in [
            (7.9, None, false),
            (8.0, None, true),
            (6.0, Some(2.0), false),
            (6.0, Some(2.5), true),
            (0.0, Some(8.5), false),
        ] {
            assert_eq!(quotas.pauses(&used(used_usd), usd), pauses.then_some("modelUsd"), "{used_usd} {usd:?}");
        }
        let fails = PerDay { on_exhausted: OnExhausted::Fail, ..quotas };
        assert_eq!(fails.pauses(&used(9.0), None), None);
        let events = PerDay { events: Some(5), ..quotas };
        assert_eq!(events.pauses(&used(0.0), None), Some("events"));
    }

    #[test]
    fn another_quota_another_day_and_a_returned_cost_are_noticed() {
        let quotas = PerDay { model_usd: Some(8.0), on_exhausted: OnExhausted::Pause, ..PerDay::default() };
        let before = Room { is_closed: false, quotas, day: 7, model_usd: 6.0 };
        let noticed = |room: Room| (room.has_changed_since(&before), room.costs_less_than(&before));
        assert_eq!(noticed(before), (false, false));
        assert_eq!(noticed(Room { model_usd: 7.0, ..before }), (false, false));
        assert_eq!(noticed(Room { model_usd: 5.0, ..before }), (false, true));
        assert_eq!(noticed(Room { day: 8, ..before }), (true, false));
        let raised = PerDay { model_usd: Some(9.0), ..quotas };
        assert_eq!(noticed(Room { quotas: raised, ..before }), (true, false));
    }
}
