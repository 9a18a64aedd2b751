//! Runs in memory: their metadata and their units.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use flowcell_contract::{RunId, Tenant};

use crate::{
    ports::{Entry, Record, StoreError, Unit},
    rows::removed,
};

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
}

impl RunTable {
    pub(super) fn append(&mut self, entry: Entry) {
        let run = self.runs.entry((entry.tenant, entry.run)).or_default();
        run.units.push(entry.unit);
        if entry.record.is_some() {
            run.record = entry.record;
        }
    }

    /// Returns the metadata of a run.
    pub(super) fn record(&self, tenant: &Tenant, run: &RunId) -> Result<Option<Record>, StoreError> {
        let key = (tenant.clone(), run.clone());
        if self.removed.contains(&key) {
            return Err(removed(run));
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

    /// Removes a run and the runs below it, and reserves its id.
    pub(super) fn forget(&mut self, tenant: &Tenant, run: &RunId) {
        let mut open = vec![run.clone()];
        while let Some(next) = open.pop() {
            open.extend(self.children(tenant, &next));
            self.runs.remove(&(tenant.clone(), next));
        }
        self.removed.insert((tenant.clone(), run.clone()));
    }
}
