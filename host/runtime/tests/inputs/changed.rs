//! A journal whose facts were changed by a test.

use std::sync::Arc;

use flowcell_contract::{RunId, Tenant};
use flowcell_runtime::{
    fact::Fact,
    ports::{Entry, Journal, Record, StoreError, Unit},
};

/// A copy of the journal of a run. The text of its facts was changed and parsed again. The journal is read only.
pub(crate) struct Changed(Vec<Arc<Unit>>);

impl Changed {
    pub(crate) fn of(journal: &dyn Journal, run: &str, change: impl Fn(String) -> String) -> Changed {
        let units = journal.read(&Tenant::local(), &run.into(), 0, usize::MAX).unwrap();
        let changed = units.iter().map(|unit| {
            let facts: Vec<Fact> = serde_json::from_str(&change(serde_json::to_string(&unit.facts).unwrap())).unwrap();
            Arc::new(Unit { facts, ..Unit::clone(unit) })
        });
        Changed(changed.collect())
    }

    /// Returns a copy that ends before the fact with the number `end`.
    pub(crate) fn before(journal: &dyn Journal, run: &str, end: u64) -> Changed {
        let units = journal.read(&Tenant::local(), &run.into(), 0, usize::MAX).unwrap();
        let counted = units.iter().filter(|unit| unit.first_seq < end).map(|unit| {
            let facts = unit.facts.iter().take((end - unit.first_seq) as usize).cloned().collect();
            Arc::new(Unit { facts, ..Unit::clone(unit) })
        });
        Changed(counted.collect())
    }
}

impl Journal for Changed {
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
        Ok(self.0[first..].iter().take(limit.min(2)).cloned().collect())
    }
}
