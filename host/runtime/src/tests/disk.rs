//! A disk that loses power: data that was not forced may be lost.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll, Waker},
};

use flowcell_contract::{RunId, Tenant, Value};

use super::{
    crashes::run_story,
    graphs::{Plan, Planned, PlannedBody},
    readiness::Counter,
};
use crate::{
    decide::Entropy,
    fact::Write,
    ports::{Entry, Journal, Record, StageError, Staged, StateStore, StoreError, Unit},
};

/// Journal and state that outlive a process, as far as they were durable when the process ended.
pub(super) struct Disk(Mutex<Platters>);

type States = HashMap<(String, String), (Value, u64)>;

struct Platters {
    runs: HashMap<RunId, (Option<Record>, Vec<Arc<Unit>>)>,
    durable_state: States,
    /// The data that the living process sees.
    state: States,
    /// Entries that were appended and are not durable.
    pending: VecDeque<Entry>,
    /// Number of entries that a caller waits for.
    forced: usize,
    appends: u64,
    /// The power fails after this number of appends.
    fails_at: u64,
    dice: Counter,
    waker: Option<Waker>,
    /// True for a disk that loses forced data, to check that the tests detect it.
    pub(super) lies: bool,
}

impl Disk {
    pub(super) fn new(seed: u64, lies: bool) -> Disk {
        Disk(Mutex::new(Platters {
            runs: HashMap::new(),
            durable_state: HashMap::new(),
            state: HashMap::new(),
            pending: VecDeque::new(),
            forced: 0,
            appends: 0,
            fails_at: u64::MAX,
            dice: Counter(seed),
            waker: None,
            lies,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Platters> {
        self.0.lock().unwrap()
    }

    /// Restores the power, which fails again after this number of appends.
    pub(super) fn power(&self, fails_after: u64) {
        let mut disk = self.lock();
        disk.fails_at = disk.appends.saturating_add(fails_after);
    }

    /// Writes the entries that a caller waits for, sooner or later. Becomes ready when the power fails. Of the entries
    /// that are not written by then, only the first few may survive.
    pub(super) fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut disk = self.lock();
        disk.waker = Some(context.waker().clone());
        if disk.appends >= disk.fails_at {
            disk.fail();
            return Poll::Ready(());
        }
        while disk.forced > 0 {
            if disk.dice.draw().is_multiple_of(4) {
                context.waker().wake_by_ref();
                break;
            }
            disk.commit();
        }
        Poll::Pending
    }

    pub(super) fn runs(&self) -> Vec<(RunId, Vec<Arc<Unit>>)> {
        self.lock().runs.iter().map(|(run, (_, units))| (run.clone(), units.clone())).collect()
    }

    pub(super) fn state_of(&self, flow: &str, key: &str) -> Option<u64> {
        let disk = self.lock();
        disk.durable_state.get(&(flow.to_owned(), key.to_owned())).and_then(|(value, _)| value.json().as_u64())
    }
}

impl Platters {
    fn commit(&mut self) {
        let Some(entry) = self.pending.pop_front() else { return };
        self.forced = self.forced.saturating_sub(1);
        entry.durable.advance(entry.unit.next_seq());
        self.keep(entry);
    }

    fn keep(&mut self, entry: Entry) {
        for (write, version) in entry.writes.iter().flat_map(|staged| &staged.writes) {
            let flow = entry.writes.as_ref().unwrap().flow.to_string();
            self.durable_state.insert((flow, write.key.clone()), (write.value.clone(), *version));
        }
        let (record, units) = self.runs.entry(entry.run).or_default();
        if entry.record.is_some() {
            *record = entry.record;
        }
        units.push(entry.unit);
    }

    fn fail(&mut self) {
        let written = self.dice.draw() as usize % (self.pending.len() + 1);
        let pending = std::mem::take(&mut self.pending);
        for entry in pending.into_iter().take(written) {
            self.keep(entry);
        }
        if self.lies {
            self.runs.values_mut().for_each(|(_, units)| _ = units.pop());
            self.runs.retain(|_, (_, units)| !units.is_empty());
        }
        self.forced = 0;
        self.fails_at = u64::MAX;
        self.state = self.durable_state.clone();
    }
}

impl Journal for Disk {
    fn append(&self, entry: Entry) {
        let mut disk = self.lock();
        disk.appends += 1;
        let force = entry.force;
        disk.pending.push_back(entry);
        if force {
            disk.forced = disk.pending.len();
        }
        disk.waker.iter().for_each(Waker::wake_by_ref);
    }

    fn force(&self) {
        let mut disk = self.lock();
        disk.forced = disk.pending.len();
        disk.waker.iter().for_each(Waker::wake_by_ref);
    }

    fn children_of(&self, _: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        let disk = self.lock();
        let is_below =
            |record: &Option<Record>| record.as_ref().is_some_and(|record| record.parent.as_ref() == Some(run));
        Ok(disk.runs.iter().filter(|(_, (record, _))| is_below(record)).map(|(id, _)| id.clone()).collect())
    }

    fn repeats_of(&self, _: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        let disk = self.lock();
        let repeats =
            |record: &Option<Record>| record.as_ref().is_some_and(|record| record.repeats.as_ref() == Some(run));
        Ok(disk.runs.iter().filter(|(_, (record, _))| repeats(record)).map(|(id, _)| id.clone()).collect())
    }

    fn find(&self, _tenant: &Tenant, run: &RunId) -> Result<Option<Record>, StoreError> {
        Ok(self.lock().runs.get(run).and_then(|(record, _)| record.clone()))
    }

    fn read(&self, _: &Tenant, run: &RunId, from: u64, limit: usize) -> Result<Vec<Arc<Unit>>, StoreError> {
        let disk = self.lock();
        let units = disk.runs.get(run).map(|(_, units)| units.as_slice()).unwrap_or_default();
        Ok(units.iter().skip_while(|unit| unit.next_seq() <= from).take(limit).cloned().collect())
    }
}

impl StateStore for Disk {
    fn get(&self, _: &Tenant, flow: &str, key: &str) -> Result<Option<(Value, u64)>, StoreError> {
        Ok(self.lock().state.get(&(flow.to_owned(), key.to_owned())).cloned())
    }

    fn stage(&self, _: &Tenant, flow: &Arc<str>, writes: Vec<Write>) -> Result<Staged, StageError> {
        let mut disk = self.lock();
        let place = |key: &str| (flow.to_string(), key.to_owned());
        let staged = Staged::assign_versions(flow, writes, |key| {
            Ok(disk.state.get(&place(key)).map_or(0, |(_, version)| *version))
        })?;
        for (write, version) in &staged.writes {
            disk.state.insert(place(&write.key), (write.value.clone(), *version));
        }
        Ok(staged)
    }
}

/// Units in the form that another process reads: written as text, and read again.
pub(super) struct AsText(pub(super) Vec<Arc<Unit>>);

impl Journal for AsText {
    fn append(&self, _: Entry) {
        panic!("nothing is written here");
    }

    fn force(&self) {}

    fn children_of(&self, _: &Tenant, _: &RunId) -> Result<Vec<RunId>, StoreError> {
        Ok(Vec::new())
    }

    fn repeats_of(&self, _: &Tenant, _: &RunId) -> Result<Vec<RunId>, StoreError> {
        Ok(Vec::new())
    }

    fn find(&self, _: &Tenant, _: &RunId) -> Result<Option<Record>, StoreError> {
        Ok(None)
    }

    fn read(&self, _: &Tenant, _: &RunId, from: u64, limit: usize) -> Result<Vec<Arc<Unit>>, StoreError> {
        let first = self.0.partition_point(|unit| unit.next_seq() <= from);
        let read = |unit: &Arc<Unit>| {
            let facts = serde_json::from_str(&serde_json::to_string(&unit.facts).unwrap()).unwrap();
            Arc::new(Unit { facts, ..Unit::clone(unit) })
        };
        Ok(self.0[first..].iter().take(limit).map(read).collect())
    }
}

/// The checks detect a disk that loses forced data.
#[test]
fn r4_a_disk_that_lies_is_noticed() {
    let noticed = (0..200).filter(|seed| {
        let flow = PlannedBody {
            nodes: [Plan::Ask, Plan::Ask, Plan::Ask, Plan::Count, Plan::Count].map(Planned::new).into(),
            edges: vec![],
            ..PlannedBody::default()
        };
        std::panic::catch_unwind(|| run_story(&flow, *seed, 2, true)).is_err()
    });
    assert!(noticed.count() > 0);
}
