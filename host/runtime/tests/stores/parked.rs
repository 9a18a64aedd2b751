//! Numbers of parked runs by flow and reason, for metrics.

use flowcell_contract::Tenant;
use flowcell_runtime::{
    QuotaHold,
    fact::{Fact, ParkReason, WaitReason, WaitsFor},
    ports::{Entry, ParkedGroup, ParkedRuns, Record, StoredStatus, Unit},
};

use super::{
    backend::{Backend, Store},
    suite::reopen,
    units::{entry, record, with_status},
};
use crate::flows::tenant;

/// Parks a run of a flow at a time.
fn park(store: &Store, (run, flow, at): (&str, &str, u64), fact: Fact) {
    let needs_attention = match &fact {
        Fact::RunParked { reason, .. } => !matches!(reason, ParkReason::Waiting | ParkReason::QuotaExceeded),
        other => panic!("{other:?}"),
    };
    let first = Unit { first_seq: 0, ts: 1, facts: vec![Fact::PhaseStarted] };
    store.append(Entry { record: Some(Record { flow: flow.into(), ..record(run) }), ..entry(run, first) });
    let status = StoredStatus::Parked { due: None, needs_attention };
    store.append(with_status(run, Unit { first_seq: 1, ts: at, facts: vec![fact] }, status));
}

fn waits(reason: ParkReason, first: Option<(WaitReason, &str)>) -> Fact {
    let waits_for = first.map(|(reason, task)| Box::new(WaitsFor { reason, task: Some(task.into()), others: 3 }));
    Fact::RunParked { due: None, reason, waits_for, quota: None }
}

fn group((flow, reason): (&str, &str), runs: u64, since: u64) -> ParkedGroup {
    ParkedGroup { flow: flow.to_owned(), reason: reason.to_owned(), runs, since }
}

pub(crate) fn parked_runs_are_counted_by_flow_and_reason(backend: &Backend) {
    if !backend.lasts() {
        return;
    }
    let store = backend.open();
    let gate = || waits(ParkReason::Waiting, Some((WaitReason::Gate, "ok")));
    // A task cannot look like the reason of its wait.
    let hostile = r#"x","reason":"crash_loop"#;
    park(&store, ("a", "pay", 30), gate());
    park(&store, ("b", "pay", 20), gate());
    park(&store, ("c", "Pay", 40), waits(ParkReason::Waiting, Some((WaitReason::Event, hostile))));
    park(&store, ("d", "pay", 50), waits(ParkReason::Waiting, None));
    park(&store, ("e", "pay", 60), waits(ParkReason::CrashLoop, None));
    park(&store, ("f", "pay", 70), waits(ParkReason::NeedsAttention, Some((WaitReason::Ambiguous, "send"))));
    park(&store, ("g", "pay", 80), waits(ParkReason::NeedsAttention, None));
    let quota = Some(Box::new(QuotaHold { quota: "perDay.events".into(), until: 90, usd: None }));
    let reason = ParkReason::QuotaExceeded;
    park(&store, ("h", "pay", 90), Fact::RunParked { due: Some(95), reason, waits_for: None, quota });
    // Runs that went on, and child runs, are not parked top runs.
    park(&store, ("i", "pay", 5), gate());
    let resumed = Unit { first_seq: 2, ts: 6, facts: vec![Fact::RunResumed { by_hand: false, alone: false }] };
    store.append(with_status("i", resumed, StoredStatus::Active));
    let below = Record { flow: "pay".into(), parent: Some("a".into()), depth: 1, ..record("a") };
    let first = Unit { first_seq: 0, ts: 2, facts: vec![gate()] };
    let status = Some(StoredStatus::Parked { due: None, needs_attention: false });
    store.append(Entry { record: Some(below), status, ..entry("a.child", first) });
    let store = reopen(backend, store);
    let groups = vec![
        group(("Pay", "event"), 1, 40),
        group(("pay", "ambiguous"), 1, 70),
        group(("pay", "crash_loop"), 1, 60),
        group(("pay", "gate"), 2, 20),
        group(("pay", "quota_exceeded"), 1, 90),
        group(("pay", "timer"), 1, 50),
        group(("pay", "unknown"), 1, 80),
    ];
    assert_eq!(store.runs().parked(&tenant(), 100).unwrap(), ParkedRuns { groups, others: 0 });
    // Two of five and two of three are looked at; none is forgotten.
    let cut = store.runs().parked(&tenant(), 2).unwrap();
    assert_eq!((cut.groups.iter().map(|group| group.runs).sum::<u64>(), cut.others), (4, 4), "{cut:?}");
    assert_eq!(store.runs().parked(&Tenant::from("other"), 100).unwrap(), ParkedRuns::default());
}
