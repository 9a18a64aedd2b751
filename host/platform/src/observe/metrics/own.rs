//! The metrics that one tenant may see.
//!
//! They are copied from the tenant's own series into a registry of their own. So a family that is not named here, such as
//! one that a later version adds, is absent.

use std::sync::Arc;

use prometheus_client::{
    encoding::text,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};

use super::{
    BREAKERS, COMPUTE, Counts, Families, Fleet, MODEL_COST, PREFIX, PostOutcome, REFUSAL_CODES, REFUSALS, RUNS_ENDED,
    RUNS_PAUSED, RUNS_REMOVED, RUNS_STARTED, Sums, WEBHOOK_POSTS, fleet,
};

/// The statuses of ended runs.
const ENDS: [&str; 3] = ["succeeded", "failed", "cancelled"];

/// Returns the metrics of a tenant in the text format of Prometheus. If the tenant shares the label value of the tenants
/// beyond the limit, it has no series except `flowcell_tenant_counted`, which is 0.
pub(super) fn render(families: &Families, tenant: &str, fleet: Option<&Fleet>, now: u64) -> String {
    let is_apart = families.tenants.is_apart(tenant);
    let mut registry = Registry::with_prefix(PREFIX);
    let own = registry.sub_registry_with_label(("tenant".into(), tenant.to_owned().into()));
    let counted = Gauge::<i64>::default();
    counted.set(i64::from(is_apart));
    own.register("tenant_counted", "1 if the server counts this tenant apart from others, else 0", counted);
    if is_apart {
        let name: Arc<str> = tenant.into();
        let count = |family: &Counts<1>| family.get(&[("tenant", name.clone())]).map(|counter| counter.clone());
        let sum = |family: &Sums<1>| family.get(&[("tenant", name.clone())]).map(|counter| counter.clone());
        let counts = [
            (&families.runs_started, RUNS_STARTED),
            (&families.runs_paused, RUNS_PAUSED),
            (&families.runs_removed, RUNS_REMOVED),
        ];
        for (family, [metric, help]) in counts {
            count(family).into_iter().for_each(|counter| own.register(metric, help, counter));
        }
        let ended = Family::<[(&str, &str); 1], Counter>::default();
        for status in ENDS {
            if let Some(counter) = families.runs_ended.get(&[("tenant", name.clone()), ("status", status.into())]) {
                ended.get_or_create(&[("status", status)]).inc_by(counter.get());
            }
        }
        own.register(RUNS_ENDED[0], RUNS_ENDED[1], ended);
        let posts = Family::<[(&str, &str); 1], Counter>::default();
        for outcome in PostOutcome::ALL.map(PostOutcome::name) {
            if let Some(counter) = families.posts.get(&[("tenant", name.clone()), ("outcome", outcome.into())]) {
                posts.get_or_create(&[("outcome", outcome)]).inc_by(counter.get());
            }
        }
        own.register(WEBHOOK_POSTS[0], WEBHOOK_POSTS[1], posts);
        let refused = Family::<[(&str, &str); 1], Counter>::default();
        for code in REFUSAL_CODES {
            if let Some(counter) = families.refusals.get(&[("tenant", name.clone()), ("code", code.into())]) {
                refused.get_or_create(&[("code", code)]).inc_by(counter.get());
            }
        }
        own.register(REFUSALS[0], REFUSALS[1], refused);
        if let Some(open) = families.open_breakers().get(&[("tenant", name.clone())]) {
            own.register(BREAKERS[0], BREAKERS[1], open.clone());
        }
        let sums =
            [(&families.computed, COMPUTE, Unit::Seconds), (&families.cost, MODEL_COST, Unit::Other("usd".into()))];
        for (family, [metric, help], unit) in sums {
            sum(family).into_iter().for_each(|counter| own.register_with_unit(metric, help, unit.clone(), counter));
        }
    }
    if let Some(fleet) = fleet.filter(|_| is_apart) {
        // Its families have the label of the tenant already.
        fleet::register_one(&mut registry, fleet, tenant, now);
    }
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = text::encode(&mut text, &registry);
    text
}

/// Removes the series of a tenant, and gives its label to another tenant.
pub(super) fn forget(families: &Families, tenant: &str) {
    if !families.tenants.forget(tenant) {
        return;
    }
    let name: Arc<str> = tenant.into();
    let own = || ("tenant", name.clone());
    for family in [&families.runs_started, &families.runs_paused, &families.runs_removed] {
        family.remove(&[own()]);
    }
    for family in [&families.computed, &families.cost] {
        family.remove(&[own()]);
    }
    ENDS.iter().for_each(|status| _ = families.runs_ended.remove(&[own(), ("status", (*status).into())]));
    for outcome in PostOutcome::ALL.map(PostOutcome::name) {
        families.posts.remove(&[own(), ("outcome", outcome.into())]);
    }
    REFUSAL_CODES.iter().for_each(|code| _ = families.refusals.remove(&[own(), ("code", (*code).into())]));
}
