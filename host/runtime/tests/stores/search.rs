//! Lists of runs by filter: each store selects the runs that a naive filter selects.

use std::collections::BTreeMap;

use flowcell_contract::{Failure, Json, RunId};
use flowcell_runtime::{
    RunStatus,
    fact::{Fact, ParkReason, RunEnd, WaitReason, WaitsFor},
    limits::{MAX_COLUMN_BYTES, MAX_SEARCHED_BYTES},
    ports::{Counts, Entry, Filter, Group, Record, RunRow, StoredStatus, Unit},
};
use proptest::{
    collection::{btree_map, vec},
    prelude::*,
    test_runner::{Config, TestRunner},
};

use super::{
    backend::{Backend, Store},
    suite::reopen,
    units::{entry, record},
};
use crate::flows::tenant;

const FLOWS: [&str; 3] = ["pay", "Pay", "ship"];
const ERRORS: [&str; 3] = ["http_timeout", "denied", "%_'\\"];
const NODES: [&str; 3] = ["each[0].fetch", "each[12].fetch", "pay"];
const MESSAGES: [&str; 4] = ["Card DECLINED, no. 17", "the server did not answer", "", "Ärger 100% _x_ \u{0}'"];
const TEXTS: [&str; 7] = ["declined", "DECL card", "clined", "ä", "100 x", "17 server", "%%"];
const NAMES: [&str; 2] = ["team", "tier"];
const VALUES: [&str; 3] = ["billing", "Billing", "2 "];

/// A run as the test appends it.
#[derive(Clone, Debug)]
struct Model {
    flow: usize,
    version: Option<u32>,
    created: u64,
    duration: u64,
    status: usize,
    error: (usize, Option<usize>, usize),
    labels: BTreeMap<usize, usize>,
    trigger: Option<usize>,
    retry_of: Option<usize>,
    below: bool,
}

fn model() -> impl Strategy<Value = Model> {
    let error = (0..ERRORS.len(), prop::option::of(0..NODES.len()), 0..MESSAGES.len());
    let labels = btree_map(0..NAMES.len(), 0..VALUES.len(), 0..3);
    let first = (0..FLOWS.len(), prop::option::of(1_u32..3), 0_u64..20, 0_u64..5, 0_usize..6, error);
    let last = (labels, prop::option::of(0_usize..2), prop::option::of(0_usize..2), prop::bool::weighted(0.1));
    (first, last).prop_map(|((flow, version, created, duration, status, error), (labels, trigger, retry_of, below))| {
        Model { flow, version, created, duration, status, error, labels, trigger, retry_of, below }
    })
}

fn named(index: usize) -> RunId {
    format!("run-{index}").into()
}

fn trigger(index: usize) -> String {
    format!("trigger-{index}")
}

const STATUSES: [(&str, Option<StoredStatus>); 6] = [
    ("active", None),
    ("parked", Some(StoredStatus::Parked { due: None, needs_attention: false })),
    ("needs_attention", Some(StoredStatus::Parked { due: Some(7), needs_attention: true })),
    ("succeeded", Some(StoredStatus::Ended(RunStatus::Succeeded))),
    ("failed", Some(StoredStatus::Ended(RunStatus::Failed))),
    ("cancelled", Some(StoredStatus::Ended(RunStatus::Cancelled))),
];

impl Model {
    fn is_failed(&self) -> bool {
        STATUSES[self.status].0 == "failed"
    }

    fn record(&self, index: usize) -> Record {
        let label = |(name, value): (&usize, &usize)| (NAMES[*name].to_owned(), VALUES[*value].to_owned());
        Record {
            flow: FLOWS[self.flow].into(),
            version: self.version,
            labels: self.labels.iter().map(label).collect(),
            trigger: self.trigger.map(|index| trigger(index).into()),
            repeats: self.retry_of.map(named),
            depth: u32::from(self.below),
            parent: self.below.then(|| named(0)),
            ..record(named(index).as_str())
        }
    }

    fn end(&self) -> Fact {
        let (code, node, message) = self.error;
        let outputs = Json::Null;
        let end = match STATUSES[self.status].0 {
            "failed" => RunEnd::Failed {
                outputs,
                failure: Failure::new(ERRORS[code], MESSAGES[message]),
                task: node.map(|node| NODES[node].to_owned()),
            },
            "cancelled" => RunEnd::Cancelled { outputs },
            _ => RunEnd::Succeeded { outputs },
        };
        Fact::RunEnded { end: Box::new(end) }
    }

    fn append(&self, index: usize, store: &Store) {
        let run = named(index);
        let first = Unit { first_seq: 0, ts: self.created, facts: vec![Fact::PhaseStarted] };
        store.append(Entry { record: Some(self.record(index)), ..entry(run.as_str(), first) });
        let Some(status) = STATUSES[self.status].1 else { return };
        let facts = match status {
            StoredStatus::Ended(_) => vec![self.end()],
            _ => {
                let waits_for = self.waits_for().map(Box::new);
                vec![Fact::RunParked { due: None, reason: ParkReason::Waiting, waits_for, quota: None }]
            }
        };
        let last = Unit { first_seq: 1, ts: self.created + self.duration, facts };
        store.append(Entry { status: Some(status), ..entry(run.as_str(), last) });
    }

    /// Returns the first item that the run waits for, if it is parked. Its texts are those that filters search.
    fn waits_for(&self) -> Option<WaitsFor> {
        let is_parked = ["parked", "needs_attention"].contains(&STATUSES[self.status].0);
        let task = self.error.1.map(|_| MESSAGES[self.error.2].into());
        (is_parked && self.error.0 > 0).then_some(WaitsFor {
            reason: WaitReason::Gate,
            task,
            others: self.error.0 as u32,
        })
    }

    fn updated(&self) -> u64 {
        self.created + if STATUSES[self.status].1.is_some() { self.duration } else { 0 }
    }

    fn node(&self) -> Option<&'static str> {
        let node = self.error.1.filter(|_| self.is_failed())?;
        Some(["each.fetch", "each.fetch", "pay"][node])
    }

    fn has_word(&self, prefix: &str) -> bool {
        let message = MESSAGES[self.error.2].to_lowercase();
        let mut words = message.split(|letter: char| !letter.is_alphanumeric());
        self.is_failed() && words.any(|word| word.starts_with(prefix))
    }

    fn matches(&self, filter: &Filter) -> bool {
        let Filter { flow, version, status, since, before, error, text, node, labels, trigger: by, .. } = filter;
        let duration = self.updated() - self.created;
        let record = self.record(0);
        let words = text
            .as_deref()
            .map(|text| if text == "%%" { "no-such-word" } else { text })
            .unwrap_or_default()
            .to_lowercase();
        filter.parent.is_some() == self.below
            && flow.as_deref().is_none_or(|flow| flow == FLOWS[self.flow])
            && version.is_none_or(|version| self.version == Some(version))
            && status.as_deref().is_none_or(|status| status == STATUSES[self.status].0)
            && since.is_none_or(|since| self.created >= since)
            && before.is_none_or(|before| self.created < before)
            && error.as_deref().is_none_or(|error| self.is_failed() && error == ERRORS[self.error.0])
            && node.as_deref().is_none_or(|node| self.node() == Some(node))
            && labels.iter().all(|(name, value)| record.labels.get(name) == Some(value))
            && by.as_ref().is_none_or(|name| self.trigger.map(trigger).as_ref() == Some(name))
            && filter.retry_of.as_ref().is_none_or(|run| !self.below && record.repeats.as_ref() == Some(run))
            && filter.min_duration_ms.is_none_or(|least| duration >= least)
            && filter.max_duration_ms.is_none_or(|most| duration <= most)
            && words.split_whitespace().all(|word| self.has_word(word))
    }
}

fn rarely<T: std::fmt::Debug + Clone + 'static>(
    value: impl Strategy<Value = T> + 'static,
) -> impl Strategy<Value = Option<T>> {
    prop::option::weighted(0.2, value)
}

fn filter() -> impl Strategy<Value = Filter> {
    let text = |texts: &'static [&'static str]| prop::sample::select(texts).prop_map(str::to_owned);
    let first = (rarely(text(&FLOWS)), rarely(1_u32..3), rarely(0_usize..6), rarely(0_u64..20), rarely(0_u64..20));
    let second = (rarely(text(&ERRORS)), rarely(text(&TEXTS)), rarely(text(&["each.fetch", "pay", "fetch"])));
    let label = (text(&NAMES), text(&VALUES));
    let third = (prop_oneof![2 => Just(vec![]), 1 => vec(label, 1..3)], rarely(0_usize..2), rarely(0_usize..2));
    let last = (prop::bool::weighted(0.1), rarely(0_u64..5), rarely(0_u64..5));
    (first, second, third, last).prop_map(
        |(
            (flow, version, status, since, before),
            (error, text, node),
            (labels, by, retry_of),
            (below, min_duration_ms, max_duration_ms),
        )| Filter {
            flow,
            version,
            status: status.map(|status| STATUSES[status].0.to_owned()),
            since,
            before,
            error,
            text,
            node,
            labels,
            trigger: by.map(trigger),
            parent: below.then(|| named(0)),
            retry_of: retry_of.map(named),
            min_duration_ms,
            max_duration_ms,
            after: None,
            after_place: None,
            limit: 1_000,
        },
    )
}

/// Returns the ids of the runs that a naive filter selects, the latest first.
fn expected(models: &[Model], filter: &Filter) -> Vec<RunId> {
    let mut found: Vec<(u64, usize)> = Vec::new();
    for (index, model) in models.iter().enumerate() {
        if model.matches(filter) {
            found.push((model.created, index));
        }
    }
    found.sort_by(|a, b| b.cmp(a));
    found.into_iter().map(|(_, index)| named(index)).collect()
}

/// Returns the runs that a chain of searches finds. Each reads a number of runs and continues the last one.
fn searched(store: &Store, filter: &Filter, reads: usize) -> Vec<RunId> {
    let (mut found, mut rest) = (Vec::new(), Filter { limit: 3, ..filter.clone() });
    loop {
        let page = store.runs().search(&tenant(), &rest, reads).unwrap();
        assert!(page.rows.len() <= rest.limit);
        found.extend(ids(&page.rows));
        rest.after_place = page.searched_to;
        match page.rows.last() {
            Some(last) if page.rows.len() == rest.limit => rest.after = Some(last.run_id.clone()),
            _ if rest.after_place.is_none() => return found,
            _ => (),
        }
    }
}

fn ids(rows: &[RunRow]) -> Vec<RunId> {
    rows.iter().map(|row| row.run_id.clone()).collect()
}

fn check(store: &Store, models: &[Model], filters: &[Filter]) {
    for filter in filters {
        let all = store.runs().runs(&tenant(), filter).unwrap();
        let expected = expected(models, filter);
        assert_eq!(ids(&all), expected, "{filter:?}");
        let mut paged = Vec::new();
        let mut page = Filter { limit: 3, ..filter.clone() };
        loop {
            let rows = store.runs().runs(&tenant(), &page).unwrap();
            let Some(last) = rows.last() else { break };
            page.after = Some(last.run_id.clone());
            paged.extend(ids(&rows));
        }
        assert_eq!(paged, expected, "pages of {filter:?}");
        assert_eq!(searched(store, filter, 20), expected, "searches of 20 runs for {filter:?}");
        for row in &all {
            let model = &models[row.run_id.as_str()["run-".len()..].parse::<usize>().unwrap()];
            let record = model.record(0);
            let trigger = record.trigger.as_deref().map(str::to_owned);
            assert_eq!((row.version, &row.labels, &row.trigger), (record.version, &record.labels, &trigger));
            let repeats = record.repeats.filter(|_| !model.below);
            assert_eq!((&row.retry_of, row.node.as_deref()), (&repeats, model.node()));
            assert_eq!(row.error.as_deref(), model.is_failed().then(|| ERRORS[model.error.0]));
            assert_eq!(row.waits_for, model.waits_for(), "{row:?}");
        }
        let Counts { values, more } = store.runs().count(&tenant(), filter, &Group::Label("team".into()), 250).unwrap();
        let billing = expected.len() as u64 - values.iter().map(|(_, count)| *count).sum::<u64>();
        assert_eq!((billing, more), (0, false), "every run is counted once");
    }
}

pub(crate) fn a_filter_selects_what_a_naive_one_selects(backend: &Backend) {
    if !backend.lasts() {
        return;
    }
    let mut runner = TestRunner::new(Config { cases: 1, failure_persistence: None, ..Config::default() });
    let count = 60;
    let sets = (vec(model(), count..count + 1), vec(filter(), 150..151));
    runner
        .run(&sets, |(mut models, filters)| {
            models[0].below = false;
            let store = backend.open();
            models.iter().enumerate().for_each(|(index, model)| model.append(index, &store));
            let store = reopen(backend, store);
            check(&store, &models, &filters);
            // Runs that have not ended keep the runs above them, and those that they repeat.
            let end = "UPDATE runs SET standing = 'succeeded' WHERE standing IN ('active', 'parked')";
            backend.execute(end, &end.replace("runs", "flowcell_runs"));
            store.forget("run-0");
            store.settle();
            let all = store.runs().runs(&tenant(), &Filter { limit: 1_000, ..Filter::default() }).unwrap();
            assert!(all.iter().all(|row| row.run_id != named(0)));
            for name in NAMES {
                for value in VALUES {
                    let labels = vec![(name.to_owned(), value.to_owned())];
                    let rows = store.runs().runs(&tenant(), &Filter { labels, limit: 1_000, ..Filter::default() });
                    assert!(rows.unwrap().iter().all(|row| row.run_id != named(0)));
                }
            }
            Ok(())
        })
        .unwrap();
}

/// A search for what few runs have ends after its number of reads, and says where. One by an index reads few.
pub(crate) fn a_search_ends_after_its_number_of_reads(backend: &Backend) {
    if !backend.lasts() {
        return;
    }
    let store = backend.open();
    let labels = BTreeMap::from([(0, 0)]);
    let error = (1, None, 1);
    let model = Model {
        flow: 0,
        version: Some(1),
        created: 0,
        duration: 4,
        status: 4,
        error,
        labels,
        trigger: Some(0),
        retry_of: None,
        below: false,
    };
    for index in 0..60_u64 {
        // One run is of another flow, has another error and took longer.
        let other = Model { flow: 2, error: (0, None, 0), duration: 9, ..model.clone() };
        let early = Model { error: (2, None, 1), ..model.clone() };
        let one = match index {
            1 => early,
            9 => other,
            _ => model.clone(),
        };
        Model { created: index / 2, ..one }.append(index as usize, &store);
    }
    for index in 60..100 {
        Model { below: true, error: (2, None, 1), ..model.clone() }.append(index, &store);
    }
    let store = reopen(backend, store);
    let text = |text: &str| Some(text.to_owned());
    let team = vec![(NAMES[0].to_owned(), VALUES[0].to_owned())];
    let all = || Filter { limit: 1, ..Filter::default() };
    // True: the search ends after 20 of the 60 runs, of which the last one is read first.
    let cases = [
        (Filter { min_duration_ms: Some(9), ..all() }, true),
        (Filter { text: text("card"), ..all() }, true),
        (Filter { status: text("failed"), min_duration_ms: Some(9), ..all() }, true),
        (Filter { labels: team.clone(), version: Some(2), ..all() }, true),
        (Filter { flow: text("pay"), trigger: text("trigger-0"), version: Some(2), ..all() }, true),
        // The index of the flow and that of the error have one entry.
        (Filter { flow: text("ship"), min_duration_ms: Some(9), ..all() }, false),
        (Filter { error: text("http_timeout"), text: text("card"), labels: team, ..all() }, false),
    ];
    for (filter, ends) in cases {
        let page = store.runs().search(&tenant(), &filter, 20).unwrap();
        assert_eq!(page.searched_to.is_some(), ends, "{filter:?}");
        if let Some(to) = page.searched_to {
            assert_eq!((page.rows, to.created), (Vec::new(), 20), "{filter:?}");
            assert_eq!(to.to_string().parse(), Ok(to));
        }
        let found = store.runs().search_through(&tenant(), &filter, usize::MAX).unwrap();
        assert_eq!((ids(&found.rows), found.searched_to), (expected_of_one(&filter), None), "{filter:?}");
    }
    // The runs below another one are read with the others of their error, and may be removed before the search goes on.
    let failed = Filter { error: text(ERRORS[2]), ..all() };
    let page = store.runs().search(&tenant(), &failed, 20).unwrap();
    assert!(page.rows.is_empty() && page.searched_to.is_some(), "{page:?}");
    // Runs that have not ended keep the runs above them, and those that they repeat.
    let end = "UPDATE runs SET standing = 'succeeded' WHERE standing IN ('active', 'parked')";
    backend.execute(end, &end.replace("runs", "flowcell_runs"));
    store.forget("run-0");
    store.settle();
    let rest = Filter { after_place: page.searched_to, ..failed };
    assert_eq!(ids(&store.runs().search_through(&tenant(), &rest, usize::MAX).unwrap().rows), [named(1)]);
}

/// The only run that differs, if the filter selects it.
fn expected_of_one(filter: &Filter) -> Vec<RunId> {
    if filter.version.is_none() { vec![named(9)] } else { Vec::new() }
}

/// Error codes, messages and node ids have sizes at which a column would overflow on a server that counts bytes.
pub(crate) fn long_codes_and_messages_are_cut_for_the_search(backend: &Backend) {
    if !backend.lasts() {
        return;
    }
    let store = backend.open();
    let code = "é".repeat(MAX_COLUMN_BYTES);
    let message = format!("{} late", "word ".repeat(MAX_SEARCHED_BYTES / 5));
    let failure = Failure::new(&code, message);
    let end = RunEnd::Failed { outputs: Json::Null, failure, task: Some("n".repeat(10_000)) };
    let unit = Unit { first_seq: 0, ts: 5, facts: vec![Fact::RunEnded { end: Box::new(end) }] };
    let status = Some(StoredStatus::Ended(RunStatus::Failed));
    store.append(Entry { status, ..entry("r", unit) });
    let store = reopen(backend, store);
    let find = |filter: Filter| store.runs().runs(&tenant(), &Filter { limit: 9, ..filter }).unwrap().len();
    assert_eq!(find(Filter { error: Some(code), ..Filter::default() }), 1);
    assert_eq!(find(Filter { node: Some("n".repeat(10_000)), ..Filter::default() }), 1);
    assert_eq!(find(Filter { text: Some("word".into()), ..Filter::default() }), 1);
    assert_eq!(find(Filter { text: Some("late".into()), ..Filter::default() }), 0, "only the first part is searched");
}
