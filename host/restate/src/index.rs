//! The index of runs in the store beside the cluster: one row for each run, for lists and searches.
//!
//! The cluster has the truth. A row is written after the commit that changes it. If a process dies in between, the next
//! invocation of the tree writes the row again.

use std::{collections::HashMap, sync::Arc};

use flowcell_contract::{Json, RunId, Tenant};
use flowcell_runtime::{
    fact::{Fact, RunEnd},
    ports::{Durable, Entry, Journal, Runs, StoreError, StoredStatus, Unit},
};
use parking_lot::Mutex;

use crate::{
    beside::Beside,
    fold::Fold,
    wire::{self, Status},
};

/// The number of runs whose last written row the index remembers.
const MAX_REMEMBERED: usize = 50_000;

/// The index of runs.
pub(crate) struct Index {
    beside: Arc<dyn Beside>,
    /// The number of the first fact after the last indexed unit, for runs that this process has indexed.
    indexed: Mutex<HashMap<(Tenant, RunId), u64>>,
}

impl Index {
    pub(crate) fn new(beside: Arc<dyn Beside>) -> Index {
        Index { beside, indexed: Mutex::default() }
    }

    pub(crate) fn settle(&self) -> Result<(), StoreError> {
        self.beside.settle()
    }

    pub(crate) fn runs(&self) -> &dyn Runs {
        self.beside.runs()
    }

    pub(crate) fn journal(&self) -> &dyn Journal {
        self.beside.journal()
    }

    /// Notes that this process sends the first units of a run. So the index has no row of the run.
    pub(crate) fn expect(&self, tenant: &Tenant, run: &RunId) {
        self.indexed.lock().entry((tenant.clone(), run.clone())).or_default();
    }

    /// Forgets a run that another process has accepted.
    pub(crate) fn forget(&self, tenant: &Tenant, run: &RunId) {
        self.indexed.lock().remove(&(tenant.clone(), run.clone()));
    }

    /// Adds what an entry changes in the row of its run.
    pub(crate) fn add(&self, entry: &Entry) {
        if entry.record.is_none() && entry.status.is_none() {
            return;
        }
        let next = entry.unit.next_seq();
        {
            let mut indexed = self.indexed.lock();
            if indexed.len() >= MAX_REMEMBERED {
                indexed.clear();
            }
            let known = indexed.entry((entry.tenant.clone(), entry.run.clone())).or_default();
            if *known >= next {
                return;
            }
            *known = next;
        }
        let (record, status) = (entry.record.clone(), entry.status);
        let unit = Arc::new(shortened(&entry.unit));
        self.journal().append(Entry { record, status, ..bare(&entry.tenant, &entry.run, unit) });
    }

    /// Writes the rows that the index lacks, of the runs that an invocation has touched.
    pub(crate) fn catch_up(&self, tenant: &Tenant, fold: &Fold) -> Result<(), StoreError> {
        for (run, head) in &fold.heads {
            let is_remembered = self.indexed.lock().contains_key(&(tenant.clone(), run.clone()));
            let units = || fold.units.iter().filter(|stored| stored.run == *run);
            let is_new = units().next().is_some_and(|stored| stored.first == 0);
            let mut row = None;
            if !is_remembered {
                self.settle()?;
                row = self.runs().run(tenant, run)?.map(|(_, next)| next);
                if row.is_none() && !is_new {
                    // The index lost the row, and the units are in the state of the object.
                    let unit = Arc::new(Unit { first_seq: 0, ts: 0, facts: vec![filler()] });
                    let status = (head.status != Status::Active).then(|| StoredStatus::from(&head.status));
                    let record = Some(wire::record(run, &head.record)?);
                    self.add(&Entry { record, status, ..bare(tenant, run, unit) });
                    row = Some(head.next);
                }
            }
            for stored in units() {
                if row.is_some_and(|next| stored.next <= next || stored.first == 0) {
                    continue;
                }
                let record = stored.record.as_ref().map(|record| wire::record(run, record)).transpose()?;
                let status = stored.status.as_ref().map(StoredStatus::from);
                self.add(&Entry { record, status, ..bare(tenant, run, wire::unit(run, &stored.unit)?) });
            }
        }
        Ok(())
    }
}

/// Returns an entry that changes nothing but the journal.
fn bare(tenant: &Tenant, run: &RunId, unit: Arc<Unit>) -> Entry {
    Entry {
        tenant: tenant.clone(),
        run: run.clone(),
        unit,
        record: None,
        writes: None,
        rows: Vec::new(),
        status: None,
        force: false,
        durable: Arc::<Durable>::default(),
        delivered: None,
    }
}

/// A fact that a row does not show.
fn filler() -> Fact {
    Fact::RunResumed { by_hand: false, alone: false }
}

/// Returns a unit with the facts that a row shows, without values. The unit ends with the same number as the whole one.
fn shortened(unit: &Unit) -> Unit {
    let mut facts: Vec<Fact> = unit.facts.iter().filter_map(row_fact).collect();
    if facts.is_empty() {
        facts.push(filler());
    }
    let first_seq = match unit.first_seq {
        0 => 0,
        _ => unit.next_seq() - facts.len() as u64,
    };
    Unit { first_seq, ts: unit.ts, facts }
}

fn row_fact(fact: &Fact) -> Option<Fact> {
    Some(match fact {
        Fact::RunStarted { seed, deadline, about, loops, nested, .. } => Fact::RunStarted {
            input: Json::Null,
            seed: *seed,
            deadline: *deadline,
            about: about.clone(),
            loops: *loops,
            nested: *nested,
        },
        Fact::RunResumed { .. } | Fact::RunParked { .. } => fact.clone(),
        Fact::RunEnded { end } => Fact::RunEnded { end: Box::new(without_outputs(end)) },
        _ => return None,
    })
}

fn without_outputs(end: &RunEnd) -> RunEnd {
    let mut end = end.clone();
    match &mut end {
        RunEnd::Succeeded { outputs } | RunEnd::Cancelled { outputs } | RunEnd::Failed { outputs, .. } => {
            *outputs = Default::default();
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortened_unit_ends_where_the_whole_one_ends() {
        let resumed = || Fact::RunResumed { by_hand: true, alone: false };
        for (first_seq, facts) in
            [(0, vec![Fact::PhaseStarted]), (7, vec![Fact::PhaseStarted, resumed()]), (9, vec![resumed()])]
        {
            let whole = Unit { first_seq, ts: 1, facts };
            let short = shortened(&whole);
            assert!(!short.facts.is_empty() && short.first_seq >= whole.first_seq);
            assert_eq!(short.next_seq(), whole.next_seq());
        }
    }
}
