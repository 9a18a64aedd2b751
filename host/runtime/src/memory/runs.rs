//! Runs in memory: their metadata and their units.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use flowcell_contract::{RunId, Tenant};

use crate::ports::{Entry, Record, Removed, Removing, StoreError, StoredStatus, Undeletable, Unit};

type Key = (Tenant, RunId);

/// The runs of a process.
#[derive(Default)]
pub(super) struct RunTable {
    runs: HashMap<Key, StoredRun>,
    /// The ids of removed runs. No other run can have one of these ids.
    removed: HashSet<Key>,
}

#[derive(Default)]
struct StoredRun {
    record: Option<Record>,
    units: Vec<Arc<Unit>>,
    status: Option<StoredStatus>,
}

impl StoredRun {
    /// Returns the columns of the status of a run that has not ended: its name, and whether a person has to decide
    /// something.
    fn live(&self) -> Option<(&'static str, bool)> {
        let (standing, _, needs_attention) = self.status.unwrap_or(StoredStatus::Active).columns();
        matches!(standing, "active" | "parked").then_some((standing, needs_attention))
    }
}

impl RunTable {
    /// Returns whether an entry must be refused: its run was removed, or is new and repeats a removed run.
    pub(super) fn refuses(&self, entry: &Entry) -> bool {
        let is_removed = |run: &RunId| self.removed.contains(&(entry.tenant.clone(), run.clone()));
        match entry.new_record() {
            Some(record) => record.repeats.as_ref().is_some_and(is_removed),
            None => !self.runs.contains_key(&(entry.tenant.clone(), entry.run.clone())),
        }
    }

    pub(super) fn append(&mut self, entry: Entry) {
        let run = self.runs.entry((entry.tenant, entry.run)).or_default();
        run.units.push(entry.unit);
        run.status = entry.status.or(run.status);
        if entry.record.is_some() {
            run.record = entry.record;
        }
    }

    /// Returns the metadata of a run.
    pub(super) fn record(&self, tenant: &Tenant, run: &RunId) -> Result<Option<Record>, StoreError> {
        let key = (tenant.clone(), run.clone());
        if self.removed.contains(&key) {
            return Err(StoreError::removed(run));
        }
        Ok(self.runs.get(&key).and_then(|run| run.record.clone()))
    }

    /// Returns the units of a run, in order.
    pub(super) fn units(&self, tenant: &Tenant, run: &RunId) -> &[Arc<Unit>] {
        self.runs.get(&(tenant.clone(), run.clone())).map(|run| run.units.as_slice()).unwrap_or_default()
    }

    /// Returns the runs that a run has called.
    pub(super) fn children(&self, tenant: &Tenant, run: &RunId) -> Vec<RunId> {
        self.with_record(tenant, |record| record.parent.as_ref() == Some(run))
    }

    /// Returns the runs that repeat a run.
    pub(super) fn repeats(&self, tenant: &Tenant, run: &RunId) -> Vec<RunId> {
        self.with_record(tenant, |record| record.repeats.as_ref() == Some(run))
    }

    fn with_record(&self, tenant: &Tenant, is_wanted: impl Fn(&Record) -> bool) -> Vec<RunId> {
        let wanted = |run: &StoredRun| run.record.as_ref().is_some_and(&is_wanted);
        let found = self.runs.iter().filter(|((owner, _), run)| owner == tenant && wanted(run));
        found.map(|((_, id), _)| id.clone()).collect()
    }

    /// Removes the runs that may be removed. Returns the others with their reasons.
    pub(super) fn remove(&mut self, tenant: &Tenant, runs: &[RunId], removing: Removing) -> Removed {
        let mut removed = Removed::default();
        for run in runs {
            match self.refusal(tenant, run) {
                Some(why) => removed.kept.push(why),
                None => removed.runs.push(run.clone()),
            }
        }
        if removing == Removing::AllOrNone && !removed.kept.is_empty() {
            removed.runs.clear();
        }
        removed.runs.iter().for_each(|run| self.forget(tenant, run));
        removed
    }

    /// Returns the reason why a run stays, if there is one.
    fn refusal(&self, tenant: &Tenant, run: &RunId) -> Option<Undeletable> {
        let of = |run: &RunId| self.runs.get(&(tenant.clone(), run.clone()));
        let Some(stored) = of(run) else { return Some(Undeletable::Unknown(run.clone())) };
        if let Some(parent) = stored.record.as_ref().and_then(|record| record.parent.clone()) {
            return Some(Undeletable::Called { run: run.clone(), parent });
        }
        if let Some((standing, needs_attention)) = stored.live() {
            return Some(Undeletable::not_ended(run, standing, needs_attention));
        }
        let is_live = |run: &RunId| of(run).is_some_and(|stored| stored.live().is_some());
        let mut open = self.children(tenant, run);
        while let Some(below) = open.pop() {
            if is_live(&below) {
                return Some(Undeletable::EndsBelow(run.clone()));
            }
            open.extend(self.children(tenant, &below));
        }
        let (mut open, mut seen) = (vec![run.clone()], HashSet::new());
        while let Some(repeated) = open.pop() {
            for by in self.repeating(tenant, &repeated) {
                if is_live(&by) {
                    return Some(Undeletable::Repeated { run: run.clone(), by });
                }
                if seen.insert(by.clone()) {
                    open.push(by);
                }
            }
        }
        None
    }

    /// Returns the top runs that repeat a run.
    fn repeating(&self, tenant: &Tenant, run: &RunId) -> Vec<RunId> {
        let repeats = |record: &Record| record.depth == 0 && record.repeats.as_ref() == Some(run);
        let all = self.runs.iter();
        let all = all.filter(|((owner, _), other)| owner == tenant && other.record.as_ref().is_some_and(repeats));
        all.map(|((_, id), _)| id.clone()).collect()
    }

    /// Removes a run and the runs below it, and reserves its id.
    fn forget(&mut self, tenant: &Tenant, run: &RunId) {
        let mut open = vec![run.clone()];
        while let Some(next) = open.pop() {
            open.extend(self.children(tenant, &next));
            self.runs.remove(&(tenant.clone(), next));
        }
        self.removed.insert((tenant.clone(), run.clone()));
    }
}
