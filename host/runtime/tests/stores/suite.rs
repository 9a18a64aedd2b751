//! Tests that every kind of store passes.

use std::{collections::BTreeMap, sync::Arc};

use flowcell_contract::{Json, Tenant, Value};
use flowcell_flow::graph::NodeIx;
use flowcell_runtime::{
    FlowRunner, OpenError, Pinned, QuotaHold, RunOptions, RunResult, RunStatus,
    fact::{Fact, ParkReason, Write},
    limits::{MAX_INLINE_BYTES, MAX_READ_BYTES},
    ports::{Changed, Entry, Filter, Move, Pin, Record, Removable, RunGroup, StageError, StoredStatus},
};

use super::{
    backend::{Backend, Store},
    units::{entry, everything, outputs, record, text, unit, with_status},
};
use crate::flows::{ASKS, COUNTS, answered, graph, options, tenant};

pub(crate) fn prepare(store: &Store, nodes: &str, options: RunOptions) -> Result<FlowRunner, OpenError> {
    FlowRunner::new(Pinned { graph: graph(nodes), pin: Pin("f".into()) }, store.world(nodes), options)
}

pub(crate) fn run(store: &Store, nodes: &str, options: RunOptions) -> RunResult {
    let runner = prepare(store, nodes, options).unwrap();
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(runner.run())
}

/// Closes the store and opens it again, as the next process would. A store in memory is returned unchanged, because it
/// ends with its process.
pub(crate) fn reopen(backend: &Backend, store: Store) -> Store {
    if !backend.lasts() {
        return store;
    }
    store.let_go();
    drop(store);
    backend.open()
}

pub(crate) fn a_parked_run_goes_on_in_another_process_and_a_finished_one_is_not_repeated(backend: &Backend) {
    let store = backend.open();
    let parked = run(&store, ASKS, options("r"));
    assert_eq!(parked.status, RunStatus::Parked);
    let store = reopen(backend, store);
    let ended = run(&store, ASKS, answered("r"));
    assert_eq!(ended.status, RunStatus::Succeeded);
    let kinds: Vec<_> =
        ended.events.iter().map(|event| event.kind).filter(|kind| kind.starts_with("harness")).collect();
    assert_eq!(kinds, ["harness:start", "harness:parked", "harness:resumed", "harness:complete"]);
    let store = reopen(backend, store);
    let again = run(&store, ASKS, answered("r"));
    assert_eq!((again.status, &again.outputs, again.events.len()), (ended.status, &ended.outputs, ended.events.len()));
    let state = store.state.get(&tenant(), "f", "count").unwrap();
    assert_eq!(state.map(|(value, version)| (value.text().to_owned(), version)), Some(("1".to_owned(), 1)));
}

pub(crate) fn files_are_read_in_parts(backend: &Backend) {
    let mut store = backend.open();
    let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(3_000).collect();
    let [file, empty] = [&*bytes, &[]].map(|bytes| store.blobs.put(&tenant(), bytes.into(), "a/b"));
    for is_durable in [false, true] {
        if is_durable {
            store.settle();
            store = reopen(backend, store);
        }
        let read = |tenant: &Tenant, blob, offset, length| store.blobs.read_part(tenant, blob, offset, length).unwrap();
        for (offset, length) in [(0, 0), (0, 7), (1_000, 1_001), (2_990, 99), (3_000, 1), (u64::MAX, usize::MAX)] {
            let rest = bytes.get(usize::try_from(offset).unwrap()..).unwrap_or_default();
            let expected = &rest[..rest.len().min(length)];
            assert_eq!(read(&tenant(), &file, offset, length).unwrap(), expected, "{offset} {length}");
            assert_eq!(read(&tenant(), &empty, offset, length).unwrap(), b"");
        }
        assert_eq!(read(&Tenant::from("other"), &file, 0, 1), None);
        let sizes = [&file, &empty].map(|blob| store.blobs.size(&tenant(), blob).unwrap());
        assert_eq!(sizes, [Some(3_000), Some(0)]);
        assert_eq!(store.blobs.size(&Tenant::from("other"), &file).unwrap(), None);
    }
}

pub(crate) fn the_same_id_with_another_input_is_refused(backend: &Backend) {
    let store = backend.open();
    run(&store, COUNTS, options("r"));
    let other = RunOptions { input: Json::object([("a", Json::from(2_u64))]), ..options("r") };
    let refused = prepare(&store, COUNTS, other).err().unwrap();
    assert_eq!(refused.to_string(), "the run `r` exists, and its input is another");
}

pub(crate) fn a_run_has_at_most_one_driver(backend: &Backend) {
    let store = backend.open();
    let lease = store.leases.claim(&tenant(), &"r".into()).unwrap().unwrap();
    assert!(matches!(prepare(&store, COUNTS, options("r")), Err(OpenError::Driven(_))));
    assert!(prepare(&store, COUNTS, options("other")).is_ok());
    drop(lease);
    assert_eq!(run(&store, COUNTS, options("r")).status, RunStatus::Succeeded);
    assert!(store.leases.claim(&tenant(), &"r".into()).unwrap().is_some());
}

pub(crate) fn units_are_read_from_anywhere(backend: &Backend) {
    let store = backend.open();
    let units = outputs((0..300_u64).map(Json::from));
    units.iter().for_each(|unit| store.append(entry("r", unit.clone())));
    let store = reopen(backend, store);
    for (from, limit) in [(0, 1_000), (0, 7), (150, 1_000), (150, 120), (299, 5), (300, 5), (u64::MAX >> 1, 1)] {
        let read = store.journal.read(&tenant(), &"r".into(), from, limit).unwrap();
        let expected: Vec<_> = units.iter().skip(from.min(1_000) as usize).take(limit).cloned().map(Arc::new).collect();
        assert_eq!(read, expected, "from {from}, {limit}");
    }
    assert!(store.journal.read(&tenant(), &"none".into(), 0, 1).unwrap().is_empty());
    assert!(store.journal.read(&Tenant::from("other"), &"r".into(), 0, 1).unwrap().is_empty());
    assert_eq!(store.journal.find(&tenant(), &"r".into()).unwrap(), Some(record("r")));
    assert_eq!(store.journal.find(&tenant(), &"none".into()).unwrap(), None);
}

pub(crate) fn a_unit_may_change_the_record_of_its_run(backend: &Backend) {
    let store = backend.open();
    let labels = BTreeMap::from([("team".to_owned(), "billing".to_owned())]);
    let first = Record { version: Some(1), labels, ..record("r") };
    let moves = vec![Move {
        from: first.pin.clone(),
        dropped: Box::new([NodeIx(3)]),
        names: [("a".into(), "b".into())].into(),
    }];
    let moved = Record { pin: Pin("g".into()), version: Some(2), moves, ..first.clone() };
    store.append(Entry { record: Some(first.clone()), ..entry("r", unit(0)) });
    store.append(Entry { record: Some(Record { version: Some(1), ..record("s") }), ..entry("s", unit(0)) });
    let store = reopen(backend, store);
    store.append(Entry { record: Some(moved.clone()), status: Some(due(7)), ..entry("r", unit(1)) });
    let store = reopen(backend, store);
    assert_eq!(store.journal.find(&tenant(), &"r".into()).unwrap(), Some(moved));
    if !backend.lasts() {
        return;
    }
    let lists = store.runs();
    let row = |run: &str| lists.run(&tenant(), &run.into()).unwrap().unwrap().0;
    assert_eq!((row("r").version, row("r").due, &*row("r").status), (Some(2), Some(7), "parked"));
    assert_eq!(row("s").version, Some(1), "the record of another run stays");
    let listed =
        |filter: Filter| lists.runs(&tenant(), &filter).unwrap().into_iter().map(|row| row.run_id).collect::<Vec<_>>();
    assert_eq!(listed(Filter { version: Some(2), limit: 9, ..Filter::default() }), ["r".into()]);
    let team = vec![("team".to_owned(), "billing".to_owned())];
    assert_eq!(listed(Filter { labels: team, limit: 9, ..Filter::default() }), ["r".into()], "once, by its label");
}

pub(crate) fn large_values_are_put_back_to_the_byte(backend: &Backend) {
    let store = backend.open();
    let items: Vec<_> = (0..4).map(|item| text(MAX_INLINE_BYTES + item)).collect();
    let list = Json::array(items.iter().cloned().chain((0..20_000_u64).map(Json::from)));
    let deep = Json::parse(&format!("{}{}", "[".repeat(127), "]".repeat(127))).unwrap();
    let odd = Json::from("\u{0}\u{1}\\\"🦀ü".repeat(MAX_INLINE_BYTES / 4));
    let units = outputs(items.into_iter().chain([list.clone(), list, deep, odd, text(MAX_INLINE_BYTES - 2)]));
    units.iter().for_each(|unit| store.append(entry("r", unit.clone())));
    let store = reopen(backend, store);
    assert_eq!(everything(&*store.journal, "r").iter().map(|unit| (**unit).clone()).collect::<Vec<_>>(), units);
}

pub(crate) fn units_that_are_large_together_are_read_one_after_another(backend: &Backend) {
    let store = backend.open();
    let units = outputs((0..5).map(|_| text(MAX_READ_BYTES / 2)));
    units.iter().for_each(|unit| store.append(entry("r", unit.clone())));
    let store = reopen(backend, store);
    let mut pages = Vec::new();
    flowcell_runtime::each_unit(&*store.journal, &tenant(), &"r".into(), |unit| pages.push((*unit).clone())).unwrap();
    assert_eq!(pages, units);
    assert_eq!(everything(&*store.journal, "r").len(), if backend.lasts() { 2 } else { 5 });
}

fn write(key: &str, value: Json, expected: Option<u64>) -> Write {
    Write { key: key.into(), value: Value::from(value), expected }
}

pub(crate) fn state_has_versions(backend: &Backend) {
    let store = backend.open();
    let stage = |writes| store.state.stage(&tenant(), &"f".into(), writes);
    let staged = stage(vec![
        write("a", Json::from("1"), None),
        write("a", Json::from("2"), Some(1)),
        write("b", Json::Null, Some(0)),
    ]);
    let staged = staged.unwrap();
    assert_eq!(staged.writes.iter().map(|(_, version)| *version).collect::<Vec<_>>(), [1, 2, 1]);
    // Visible at once, and all or nothing.
    assert_eq!(store.state.get(&tenant(), "f", "a").unwrap().unwrap().1, 2);
    let refused = stage(vec![write("b", Json::from("x"), None), write("a", Json::Null, Some(1))]);
    assert!(matches!(refused, Err(StageError::Conflict(key)) if key == "a"));
    assert_eq!(store.state.get(&tenant(), "f", "b").unwrap().unwrap().1, 1);
    store.append(Entry { writes: Some(staged), ..entry("r", unit(0)) });
    let more = stage(vec![write("a", Json::from("3"), Some(2))]).unwrap();
    store.append(Entry { writes: Some(more), ..entry("r", unit(1)) });
    let store = reopen(backend, store);
    let (value, version) = store.state.get(&tenant(), "f", "a").unwrap().unwrap();
    assert_eq!((value.text(), version), ("\"3\"", 3));
    assert_eq!(store.state.get(&tenant(), "g", "a").unwrap(), None);
    assert_eq!(store.state.get(&Tenant::from("other"), "f", "a").unwrap(), None);
}

/// Keys are different if they differ in one byte, such as the case of a letter, an accent, a space at the end, or a
/// zero byte.
pub(crate) fn keys_are_bytes(backend: &Backend) {
    let store = backend.open();
    let long = "é".repeat(256);
    let keys = ["a", "A", "a ", "á", "a\u{0}", "", "🦀", "a\u{301}", "%", long.as_str()];
    let writes = keys.iter().map(|key| write(key, Json::from(*key), Some(0))).collect();
    let staged = store.state.stage(&tenant(), &"f".into(), writes).unwrap();
    store.append(Entry { writes: Some(staged), ..entry("r", unit(0)) });
    keys.iter().for_each(|key| store.cache.set(&tenant(), key, Value::from(Json::from(*key)), None));
    for run in ["R", "r ", "ŕ", &"r".repeat(3_000)] {
        store.append(entry(run, unit(0)));
    }
    store.settle();
    let store = reopen(backend, store);
    for key in keys {
        let found = store.state.get(&tenant(), "f", key).unwrap().unwrap();
        assert_eq!((found.0.json(), found.1), (&Json::from(key), 1), "{key:?}");
        if store.server.is_some() {
            assert_eq!(store.cache.get(&tenant(), key, 0).unwrap().json(), &Json::from(key), "{key:?}");
        }
    }
    for run in ["r", "R", "r ", "ŕ", &"r".repeat(3_000)] {
        assert_eq!(everything(&*store.journal, run).len(), 1);
    }
}

pub(crate) fn large_state_is_put_back(backend: &Backend) {
    let store = backend.open();
    let large = Json::object([("a", text(2 * MAX_INLINE_BYTES)), ("b", Json::array([Json::from("ü"), Json::Null]))]);
    let staged = store.state.stage(&tenant(), &"f".into(), vec![write("k", large.clone(), None)]).unwrap();
    store.append(Entry { writes: Some(staged), ..entry("r", outputs([large.clone()]).remove(0)) });
    let store = reopen(backend, store);
    let (value, version) = store.state.get(&tenant(), "f", "k").unwrap().unwrap();
    assert_eq!((value.text(), version), (large.to_text().as_str(), 1));
}

pub(crate) fn the_cache_forgets_in_time(backend: &Backend) {
    let store = backend.open();
    let value = |text: &str| Value::from(Json::from(text));
    store.cache.set(&tenant(), "a", value("1"), Some(100));
    store.cache.set(&tenant(), "b", value("2"), None);
    for settled in [false, true] {
        if settled {
            store.settle();
        }
        assert_eq!(store.cache.get(&tenant(), "a", 99), Some(value("1")));
        assert_eq!(store.cache.get(&tenant(), "a", 100), None);
        assert_eq!(store.cache.get(&tenant(), "b", u64::MAX >> 1), Some(value("2")));
        assert_eq!(store.cache.get(&Tenant::from("other"), "b", 0), None);
    }
    store.cache.set(&tenant(), "a", value("3"), None);
    assert_eq!(store.cache.get(&tenant(), "a", 100), Some(value("3")));
}

const WAITS: StoredStatus = StoredStatus::Parked { due: None, needs_attention: false };
const ATTENTION: StoredStatus = StoredStatus::Parked { due: None, needs_attention: true };

fn due(due: u64) -> StoredStatus {
    StoredStatus::Parked { due: Some(due), needs_attention: false }
}

/// Appends one run with each status, and a child run.
fn all_standings(store: &Store) {
    let standings = [
        ("active", StoredStatus::Active),
        ("parked", WAITS),
        ("needs_attention", ATTENTION),
        ("due", due(50)),
        ("succeeded", StoredStatus::Ended(RunStatus::Succeeded)),
        ("failed", StoredStatus::Ended(RunStatus::Failed)),
        ("cancelled", StoredStatus::Ended(RunStatus::Cancelled)),
    ];
    for (at, (run, how)) in (10..).zip(standings) {
        let first = flowcell_runtime::ports::Unit { ts: at, ..unit(0) };
        store.append(with_status(run, first, how));
    }
    let below = Record { parent: Some("active".into()), depth: 1, ..record("active") };
    store.append(Entry { record: Some(below), ..entry("active.child", unit(0)) });
}

pub(crate) fn lists_show_the_status_of_runs(backend: &Backend) {
    if !backend.lasts() {
        return;
    }
    let store = backend.open();
    all_standings(&store);
    let store = reopen(backend, store);
    let list = |filter: Filter| {
        let rows = store.runs().runs(&tenant(), &filter).unwrap();
        rows.into_iter().map(|row| format!("{} {} {}", row.run_id, row.status, row.created)).collect::<Vec<_>>()
    };
    let all = list(Filter { limit: 10, ..Filter::default() });
    let expected = ["cancelled", "failed", "succeeded", "due", "needs_attention", "parked", "active"];
    let expected = expected.iter().zip((10..17).rev());
    let status = |run: &str| if run == "due" { "parked".to_owned() } else { run.to_owned() };
    assert_eq!(all, expected.map(|(run, at)| format!("{run} {} {at}", status(run))).collect::<Vec<_>>());
    assert_eq!(list(Filter { limit: 2, ..Filter::default() }).len(), 2);
    let after = |run: &str| list(Filter { after: Some(run.into()), limit: 2, ..Filter::default() });
    assert_eq!(after("failed"), all[2..4]);
    assert_eq!((after("active").len(), after("none").len()), (0, 0));
    let of = |status: &str| list(Filter { status: Some(status.into()), limit: 10, ..Filter::default() });
    assert_eq!(of("parked"), ["due parked 13", "parked parked 11"]);
    assert_eq!(of("needs_attention"), ["needs_attention needs_attention 12"]);
    assert_eq!(of("running"), [""; 0]);
    assert_eq!(list(Filter { flow: Some("f".into()), limit: 10, ..Filter::default() }).len(), 7);
    assert_eq!(list(Filter { flow: Some("F".into()), limit: 10, ..Filter::default() }).len(), 0);
    assert_eq!(store.runs().children(&tenant(), &"active".into()).unwrap(), ["active.child".into()]);
    let (row, next_seq) = store.runs().run(&tenant(), &"due".into()).unwrap().unwrap();
    assert_eq!((row.due, row.updated, next_seq), (Some(50), 13, 1));
    assert!(store.runs().run(&tenant(), &"none".into()).unwrap().is_none());
    let removable = |wanted: Removable| {
        let runs = store.runs().removable(&tenant(), &wanted).unwrap();
        runs.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let all = || Removable { keep_latest: Some(0), ..Removable::default() };
    let group = |flow: Option<&str>, status| RunGroup { flow: flow.map(str::to_owned), status };
    assert_eq!(removable(Removable { ended_before: Some(15), ..Removable::default() }), ["succeeded"]);
    let latest = |count| Removable { keep_latest: Some(count), ..Removable::default() };
    assert_eq!(removable(latest(1)), ["succeeded", "failed"]);
    assert_eq!(removable(Removable::default()), [""; 0]);
    assert_eq!(removable(all()), ["succeeded", "failed", "cancelled"]);
    assert_eq!(removable(Removable { limit: Some(2), ..all() }), ["succeeded", "failed"]);
    let failed = group(None, Some(RunStatus::Failed));
    assert_eq!(removable(Removable { of: failed.clone(), ..all() }), ["failed"]);
    assert_eq!(removable(Removable { of: group(Some("f"), Some(RunStatus::Failed)), ..all() }), ["failed"]);
    assert_eq!(removable(Removable { of: group(Some("F"), None), ..all() }), [""; 0]);
    assert_eq!(removable(Removable { of: failed.clone(), ..latest(1) }), [""; 0], "only the group counts");
    assert_eq!(removable(Removable { except: vec![failed.clone()], ..all() }), ["succeeded", "cancelled"]);
    assert_eq!(removable(Removable { except: vec![group(Some("f"), None)], ..all() }), [""; 0]);
    assert_eq!(removable(Removable { except: vec![failed.clone()], ..latest(1) }), ["succeeded"]);
    let spared = vec![(group(None, None), 16), (failed, 15)];
    assert_eq!(removable(Removable { spared: spared.clone(), ..all() }), ["succeeded"]);
    assert_eq!(removable(Removable { spared, ..latest(2) }), ["succeeded"], "spared runs count, too");
    let ended = |since, after: Option<&str>, limit| {
        let after = after.map(flowcell_contract::RunId::from);
        let rows = store.runs().ended(&tenant(), since, after.as_ref(), limit).unwrap();
        rows.into_iter().map(|row| row.run_id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(ended(0, None, 10), ["succeeded", "failed", "cancelled"]);
    assert_eq!(ended(15, None, 10), ["failed", "cancelled"]);
    assert_eq!(ended(0, Some("succeeded"), 1), ["failed"]);
    assert_eq!(ended(0, Some("cancelled"), 10), [""; 0]);
}

pub(crate) fn runs_paused_by_a_quota_have_its_code_until_they_go_on(backend: &Backend) {
    if !backend.lasts() {
        return;
    }
    let store = backend.open();
    let day = flowcell_runtime::limits::QUOTA_WINDOW_MS;
    let unit = |first_seq, ts, fact| flowcell_runtime::ports::Unit { first_seq, ts, facts: vec![fact] };
    let hold = QuotaHold { quota: "perDay.events".into(), until: day, usd: None };
    let park = |needs_attention| {
        let reason = if needs_attention { ParkReason::NeedsAttention } else { ParkReason::QuotaExceeded };
        let status = StoredStatus::Parked { due: Some(50), needs_attention };
        (Fact::RunParked { due: Some(50), reason, waits_for: None, quota: Some(Box::new(hold.clone())) }, status)
    };
    for (run, (fact, status)) in [("paused", park(false)), ("blocked", park(true)), ("resumed", park(false))] {
        store.append(with_status(run, unit(0, day - 1, fact), status));
    }
    let resumed = Fact::RunResumed { by_hand: false, alone: false };
    store.append(with_status("resumed", unit(1, day, resumed), StoredStatus::Active));
    let store = reopen(backend, store);
    let shown = |run: &str| {
        let (row, _) = store.runs().run(&tenant(), &run.into()).unwrap().unwrap();
        (row.status, row.error, row.paused_until)
    };
    let code = || Some("quota_exceeded".to_owned());
    assert_eq!(shown("paused"), ("parked".to_owned(), code(), Some(day)));
    assert_eq!(shown("blocked"), ("needs_attention".to_owned(), code(), Some(day)));
    assert_eq!(shown("resumed"), ("active".to_owned(), None, None));
    let filter = Filter { status: Some("parked".into()), error: code(), limit: 10, ..Filter::default() };
    let found = store.runs().runs(&tenant(), &filter).unwrap();
    assert_eq!(found.iter().map(|row| row.run_id.as_str()).collect::<Vec<_>>(), ["paused"]);
    assert!(store.runs().runs(&Tenant::from("other"), &filter).unwrap().is_empty());
}

pub(crate) fn runs_are_listed_by_the_last_change_of_their_status(backend: &Backend) {
    if !backend.lasts() {
        return;
    }
    let store = backend.open();
    all_standings(&store);
    // The first run goes on, and ends last.
    let end = flowcell_runtime::ports::Unit { first_seq: 1, ts: 30, ..unit(1) };
    store.append(with_status("parked", end, StoredStatus::Ended(RunStatus::Succeeded)));
    let store = reopen(backend, store);
    let list = |wanted: Changed| {
        let rows = store.runs().changed(&tenant(), &wanted).unwrap();
        rows.iter().map(|row| format!("{} {}", row.run_id, row.updated)).collect::<Vec<_>>()
    };
    let all = Changed { limit: 10, ..Changed::default() };
    let expected =
        ["active 10", "needs_attention 12", "due 13", "succeeded 14", "failed 15", "cancelled 16", "parked 30"];
    assert_eq!(list(all.clone()), expected);
    assert_eq!(list(Changed { since: 15, ..all.clone() }), expected[4..]);
    assert_eq!(list(Changed { since: 31, ..all.clone() }), [""; 0]);
    assert_eq!(list(Changed { since: 12, limit: 3, ..all.clone() }), expected[1..4]);
    let live = Changed { live: true, ..all.clone() };
    assert_eq!(list(live.clone()), expected[..3]);
    assert_eq!(list(Changed { since: 13, ..live.clone() }), expected[2..3]);
    let after = |run: &str, since| Changed { since, after: Some(run.into()), ..all.clone() };
    assert_eq!(list(after("needs_attention", 12)), expected[2..]);
    // A run that the store does not have leaves out none.
    assert_eq!(list(after("none", 12)), expected[1..]);
    assert_eq!(store.runs().changed(&Tenant::from("other"), &all).unwrap(), []);
}

pub(crate) fn active_and_due_runs_are_runnable(backend: &Backend) {
    if !backend.lasts() {
        return;
    }
    let store = backend.open();
    all_standings(&store);
    let store = reopen(backend, store);
    let runnable = |now, limit| store.runs().runnable(&tenant(), now, limit).unwrap();
    assert_eq!(runnable(49, 10), ["active".into()] as [flowcell_contract::RunId; 1]);
    assert_eq!(runnable(50, 10), ["active".into(), "due".into()] as [flowcell_contract::RunId; 2]);
    assert_eq!(runnable(50, 1).len(), 1);
    let live = |most| store.runs().live(&tenant(), most).unwrap();
    assert_eq!((live(0), live(3), live(10)), (0, 3, 4), "active, due, parked, and one that needs attention");
    assert_eq!(store.runs().next_due(&tenant()).unwrap(), Some(50));
}

pub(crate) fn a_forgotten_run_leaves_a_tombstone(backend: &Backend) {
    let store = backend.open();
    run(&store, COUNTS, options("r"));
    let below = Record { parent: Some("r".into()), depth: 1, ..record("r") };
    // Not the next process: the run was released when it ended.
    store.append(entry("other", unit(0)));
    let lease = store.leases.claim(&tenant(), &"r".into()).unwrap().unwrap();
    let ended = StoredStatus::Ended(RunStatus::Cancelled);
    store.journal.append(Entry { record: Some(below), ..with_status("r.child", unit(0), ended) });
    drop(lease);
    store.forget("r");
    store.settle();
    let told = store.journal.find(&tenant(), &"r".into()).unwrap_err().to_string();
    assert_eq!(told, "the run `r` was removed, and its id cannot be used again");
    assert!(prepare(&store, COUNTS, options("r")).is_err());
    assert!(everything(&*store.journal, "r").is_empty());
    assert!(everything(&*store.journal, "r.child").is_empty());
    assert_eq!(store.journal.find(&tenant(), &"r.child".into()).unwrap(), None);
    assert_eq!(everything(&*store.journal, "other").len(), 1);
    if backend.lasts() {
        assert_eq!(store.runs().runs(&tenant(), &Filter { limit: 10, ..Filter::default() }).unwrap().len(), 1);
    }
}

pub(crate) fn every_blob_that_a_text_names_stays(backend: &Backend) {
    let store = backend.open();
    let put = |bytes: &[u8]| store.blobs.put(&tenant(), bytes.into(), "text/plain");
    let pack = put(b"a pack");
    let pinned = put(format!("{{\"packs\":{{\"p\":\"{}\"}}}}", pack.file_id).as_bytes());
    let [file, inner, orphan] = [put(b"a file"), put(b"another file"), put(b"an orphan")];
    let large = Json::array([Value::from(inner.clone()).json().clone(), text(MAX_INLINE_BYTES - 20)]);
    let pin = Record { pin: Pin(pinned.file_id.clone()), ..record("r") };
    let first = outputs([Json::array([Value::from(file.clone()).json().clone(), large])]).remove(0);
    store.append(Entry { record: Some(pin), ..entry("r", first) });
    let named = [&pack, &pinned, &file, &inner];
    for blob in named.into_iter().chain([&orphan]) {
        assert!(store.blobs.get(&tenant(), blob).unwrap().is_some());
    }
    assert!(store.blobs.get(&Tenant::from("other"), &pack).unwrap().is_none());
    if !backend.lasts() {
        return;
    }
    let store = reopen(backend, store);
    let swept = store.sweep().unwrap();
    assert_eq!((swept.blobs, swept.bytes), (1, b"an orphan".len() as u64));
    assert!(named.iter().all(|blob| store.blobs.get(&tenant(), blob).unwrap().is_some()));
    assert!(store.blobs.get(&tenant(), &orphan).unwrap().is_none());
    assert_eq!(everything(&*store.journal, "r").len(), 1);
    store.forget("r");
    assert_eq!(store.sweep().unwrap().blobs, 5);
}
