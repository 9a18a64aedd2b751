//! The numbers of a whole store: its parked runs, its late triggers, and when its tokens expire. Every process of a shared store has the same
//! numbers.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, atomic::AtomicU64},
};

use flowcell_contract::Tenant;
use flowcell_runtime::ports::ParkedRuns;
use prometheus_client::{
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};

use super::{
    Label,
    names::{Names, OTHER},
    number,
};

/// Maximum number of flows of a tenant with a label value of their own: those with the most parked runs.
pub(crate) const MAX_FLOW_LABELS: usize = 20;

/// The due times of a tenant's triggers that have passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LateTriggers {
    /// The number of enabled triggers with due times.
    pub timed: u64,
    /// The number of those that are late.
    pub late: u64,
    /// The time since the due time of the one that is late for longest, in milliseconds. 0 if none is late.
    pub longest: u64,
}

/// The numbers of one tenant.
#[derive(Clone, Debug, Default)]
pub struct TenantFleet {
    /// The tenant's parked runs.
    pub parked: ParkedRuns,
    /// The tenant's triggers with due times.
    pub triggers: LateTriggers,
}

/// The numbers of all tenants of a store, as they were read at one time.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    /// The time of the reading, in milliseconds since 1970.
    pub read: u64,
    /// The numbers of each tenant.
    pub tenants: HashMap<Tenant, TenantFleet>,
    /// The time at which the first of a tenant's tokens in use expires, in milliseconds since 1970. The tenant of the
    /// operators' tokens has an empty name.
    pub token_ends: HashMap<Tenant, u64>,
}

/// A group of parked runs as metrics show it.
#[derive(Default)]
struct Group {
    runs: u64,
    /// The time at which the first run was parked. `None`: unknown.
    since: Option<u64>,
}

/// The groups of the parked runs of tenants, by tenant, flow and reason.
type Groups<'a> = BTreeMap<(Arc<str>, &'a str, &'a str), Group>;

/// Registers the numbers of all tenants. `now` is in milliseconds since 1970. Tenants that share a label value are counted
/// together, and their flows are not named.
pub(super) fn register_all(registry: &mut Registry, fleet: &Fleet, names: &Names, now: u64) {
    let (mut groups, mut triggers) = (Groups::new(), BTreeMap::<Arc<str>, LateTriggers>::new());
    for (tenant, own) in &fleet.tenants {
        // A tenant without parked runs and triggers needs no label value.
        if own.parked.groups.is_empty() && own.triggers.timed == 0 {
            continue;
        }
        let label = names.label(tenant.as_str());
        add_groups(&mut groups, &label, &own.parked);
        let sum = triggers.entry(label).or_default();
        sum.timed += own.triggers.timed;
        sum.late += own.triggers.late;
        sum.longest = sum.longest.max(own.triggers.longest);
    }
    register(registry, &groups, &triggers, now);
    let mut ends = BTreeMap::<Arc<str>, u64>::new();
    // A token that has expired must not hide those of tenants with the same label value.
    for (tenant, end) in fleet.token_ends.iter().filter(|(_, end)| **end > now) {
        // No tenant has an empty name, so the operators need no label value of the tenants.
        let is_operators = tenant.as_str().is_empty();
        let label = if is_operators { Arc::from("") } else { names.label(tenant.as_str()) };
        let first = ends.entry(label).or_insert(*end);
        *first = end.min(first).to_owned();
    }
    register_token_ends(registry, &ends, now);
    let age = Gauge::<f64, AtomicU64>::default();
    age.set(seconds(now.saturating_sub(fleet.read)));
    let help = "Time since the numbers of parked runs and late triggers were read from the store";
    registry.register("fleet_age_seconds", help, age);
}

/// Registers the numbers of one tenant, which has a label value of its own.
pub(super) fn register_one(registry: &mut Registry, fleet: &Fleet, tenant: &str, now: u64) {
    let (mut groups, mut triggers) = (Groups::new(), BTreeMap::new());
    if let Some(own) = fleet.tenants.get(&Tenant::from(tenant)) {
        let label: Arc<str> = tenant.into();
        add_groups(&mut groups, &label, &own.parked);
        triggers.insert(label, own.triggers);
    }
    register(registry, &groups, &triggers, now);
    let end = fleet.token_ends.get(&Tenant::from(tenant)).map(|end| (tenant.into(), *end));
    register_token_ends(registry, &end.into_iter().collect(), now);
}

/// Registers the time until the first of the tokens in use of each tenant expires. A token that has expired has none.
fn register_token_ends(registry: &mut Registry, ends: &BTreeMap<Arc<str>, u64>, now: u64) {
    let left = Family::<[Label; 1], Gauge<f64, AtomicU64>>::default();
    for (tenant, end) in ends.iter().filter(|(_, end)| **end > now) {
        left.get_or_create(&[("tenant", tenant.clone())]).set(seconds(end - now));
    }
    let help = "Time until the first of the tokens in use expires, by tenant";
    registry.register("token_expiry_seconds", help, left);
}

fn add_groups<'a>(groups: &mut Groups<'a>, tenant: &Arc<str>, parked: &'a ParkedRuns) {
    let mut sums = HashMap::<&str, u64>::new();
    parked.groups.iter().for_each(|group| *sums.entry(&group.flow).or_default() += group.runs);
    let mut flows: Vec<_> = sums.into_iter().collect();
    flows.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    let most = if **tenant == *OTHER { 0 } else { MAX_FLOW_LABELS };
    let named: Vec<&str> = flows.into_iter().take(most).map(|(flow, _)| flow).collect();
    for group in &parked.groups {
        let flow = if named.contains(&group.flow.as_str()) { group.flow.as_str() } else { OTHER };
        let sum = groups.entry((tenant.clone(), flow, group.reason.as_str())).or_default();
        sum.runs += group.runs;
        sum.since = Some(sum.since.map_or(group.since, |since| since.min(group.since)));
    }
    if parked.others > 0 {
        groups.entry((tenant.clone(), OTHER, OTHER)).or_default().runs += parked.others;
    }
}

fn register(registry: &mut Registry, groups: &Groups<'_>, triggers: &BTreeMap<Arc<str>, LateTriggers>, now: u64) {
    let runs = Family::<[Label; 3], Gauge>::default();
    let oldest = Family::<[Label; 3], Gauge<f64, AtomicU64>>::default();
    for ((tenant, flow, reason), group) in groups {
        let labels = [("tenant", tenant.clone()), ("flow", (*flow).into()), ("reason", (*reason).into())];
        runs.get_or_create(&labels).set(number(group.runs));
        if let Some(since) = group.since {
            oldest.get_or_create(&labels).set(seconds(now.saturating_sub(since)));
        }
    }
    let help = "Parked runs of the store, by tenant, flow and the first item that they wait for";
    registry.register("runs_parked", help, runs);
    let help = "Time since the first of these parked runs was parked";
    registry.register("runs_parked_oldest_seconds", help, oldest);
    let late = Family::<[Label; 1], Gauge>::default();
    let longest = Family::<[Label; 1], Gauge<f64, AtomicU64>>::default();
    for (tenant, triggers) in triggers.iter().filter(|(_, triggers)| triggers.timed > 0) {
        let labels = [("tenant", tenant.clone())];
        late.get_or_create(&labels).set(number(triggers.late));
        longest.get_or_create(&labels).set(seconds(triggers.longest));
    }
    registry.register("triggers_late", "Triggers whose due time has passed without a start, by tenant", late);
    let help = "Time since the due time of the trigger that is late for longest, by tenant";
    registry.register("triggers_late_longest_seconds", help, longest);
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use flowcell_runtime::ports::ParkedGroup;
    use prometheus_client::encoding::text;

    use super::{super::MAX_TENANT_LABELS, *};

    fn parked(groups: &[(&str, &str, u64, u64)], others: u64) -> TenantFleet {
        let group = |(flow, reason, runs, since): &(&str, &str, u64, u64)| ParkedGroup {
            flow: (*flow).to_owned(),
            reason: (*reason).to_owned(),
            runs: *runs,
            since: *since,
        };
        let parked = ParkedRuns { groups: groups.iter().map(group).collect(), others };
        TenantFleet { parked, triggers: LateTriggers::default() }
    }

    fn fleet(tenants: impl IntoIterator<Item = (&'static str, TenantFleet)>) -> Fleet {
        let tenants = tenants.into_iter().map(|(name, own)| (Tenant::from(name), own)).collect();
        Fleet { read: 9_000, tenants, ..Fleet::default() }
    }

    /// Returns the series in a fixed order.
    fn series(register: impl FnOnce(&mut Registry)) -> Vec<String> {
        let mut registry = Registry::with_prefix("flowcell");
        register(&mut registry);
        let mut text = String::new();
        text::encode(&mut text, &registry).unwrap();
        let mut lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
        lines.sort();
        lines
    }

    fn all(fleet: &Fleet, names: &Names) -> Vec<String> {
        series(|registry| register_all(registry, fleet, names, 10_000))
    }

    #[test]
    fn runs_and_ages_have_tenant_flow_and_reason() {
        let triggers = LateTriggers { timed: 3, late: 1, longest: 61_500 };
        let acme = TenantFleet { triggers, ..parked(&[("pay", "gate", 2, 4_000), ("pay", "timer", 1, 20_000)], 7) };
        let fleet = fleet([("acme", acme), ("idle", TenantFleet::default())]);
        let own = [
            r#"flowcell_runs_parked_oldest_seconds{tenant="acme",flow="pay",reason="gate"} 6.0"#,
            // The clock of the process that parked it is ahead.
            r#"flowcell_runs_parked_oldest_seconds{tenant="acme",flow="pay",reason="timer"} 0.0"#,
            r#"flowcell_runs_parked{tenant="acme",flow="other",reason="other"} 7"#,
            r#"flowcell_runs_parked{tenant="acme",flow="pay",reason="gate"} 2"#,
            r#"flowcell_runs_parked{tenant="acme",flow="pay",reason="timer"} 1"#,
            r#"flowcell_triggers_late_longest_seconds{tenant="acme"} 61.5"#,
            r#"flowcell_triggers_late{tenant="acme"} 1"#,
        ];
        assert_eq!(all(&fleet, &Names::new(9)), [&["flowcell_fleet_age_seconds 1.0"], &own[..]].concat());
        let one = |tenant| series(|registry| register_one(registry, &fleet, tenant, 10_000));
        assert_eq!(one("acme"), own);
        assert_eq!(one("idle"), [""; 0]);
        assert_eq!(one("acm"), [""; 0]);
    }

    #[test]
    fn tenants_see_when_the_first_of_their_tokens_expires() {
        let ends = [("", 20_000), ("acme", 70_500), ("calm", 10_000), ("old", 3_000)];
        let token_ends = ends.map(|(name, end)| (Tenant::from(name), end)).into();
        let fleet = Fleet { read: 9_000, token_ends, ..Fleet::default() };
        let of_acme = r#"flowcell_token_expiry_seconds{tenant="acme"} 60.5"#;
        let of_operators = r#"flowcell_token_expiry_seconds{tenant=""} 10.0"#;
        assert_eq!(all(&fleet, &Names::new(9)), ["flowcell_fleet_age_seconds 1.0", of_operators, of_acme]);
        let one = |tenant| series(|registry| register_one(registry, &fleet, tenant, 10_000));
        assert_eq!(one("acme"), [of_acme]);
        assert_eq!(one("calm"), [""; 0], "it has expired");
        // Tenants that share a label value have the first expiry of them all.
        let names = Names::new(0);
        assert!(all(&fleet, &names).contains(&r#"flowcell_token_expiry_seconds{tenant="other"} 60.5"#.to_owned()));
    }

    #[test]
    fn flows_with_few_runs_share_one_label() {
        let flows: Vec<String> = (0..MAX_FLOW_LABELS + 2).map(|number| format!("f{number:02}")).collect();
        // The first two flows have fewer runs than all others.
        let group = |(index, flow): (usize, &String)| ParkedGroup {
            flow: flow.clone(),
            reason: "gate".to_owned(),
            runs: if index < 2 { 1 } else { 5 },
            since: 1_000 * index as u64,
        };
        let groups = flows.iter().enumerate().map(group).collect();
        let own = TenantFleet { parked: ParkedRuns { groups, others: 0 }, ..TenantFleet::default() };
        let shown = all(&fleet([("acme", own)]), &Names::new(9));
        let counts = shown.iter().filter(|line| line.starts_with("flowcell_runs_parked{"));
        assert_eq!(counts.count(), MAX_FLOW_LABELS + 1);
        for line in [
            r#"flowcell_runs_parked{tenant="acme",flow="other",reason="gate"} 2"#,
            r#"flowcell_runs_parked_oldest_seconds{tenant="acme",flow="other",reason="gate"} 10.0"#,
            r#"flowcell_runs_parked{tenant="acme",flow="f02",reason="gate"} 5"#,
        ] {
            assert!(shown.iter().any(|shown| shown == line), "{line}\n{shown:#?}");
        }
    }

    #[test]
    fn flows_of_tenants_that_share_a_label_are_not_named() {
        let names = Names::new(MAX_TENANT_LABELS);
        (0..MAX_TENANT_LABELS).for_each(|number| _ = names.label(&format!("t{number}")));
        let late = || parked(&[("secret-plan", "gate", 1, 5_000)], 0);
        let shown = all(&fleet([("late", late()), ("later", late())]), &names);
        assert!(!shown.concat().contains("secret-plan"), "{shown:?}");
        let line = r#"flowcell_runs_parked{tenant="other",flow="other",reason="gate"} 2"#;
        assert!(shown.iter().any(|shown| shown == line), "{shown:?}");
    }
}
