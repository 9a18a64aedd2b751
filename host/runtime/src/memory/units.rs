//! The journal in memory.

use std::sync::Arc;

use flowcell_contract::{RunId, Tenant};

use super::MemoryJournal;
use crate::ports::{Entry, Journal, Record, StoreError, Unit};

impl Journal for MemoryJournal {
    fn append(&self, entry: Entry) {
        let (durable, next_seq) = (entry.durable.clone(), entry.unit.next_seq());
        let mut runs = self.runs.lock();
        if runs.refuses(&entry) {
            return durable.refuse();
        }
        self.tables.lock().apply(&entry);
        runs.append(entry);
        drop(runs);
        durable.advance(next_seq);
    }

    fn force(&self) {}

    fn children_of(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        Ok(self.runs.lock().children(tenant, run))
    }

    fn repeats_of(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError> {
        Ok(self.runs.lock().repeats(tenant, run))
    }

    fn find(&self, tenant: &Tenant, run: &RunId) -> Result<Option<Record>, StoreError> {
        self.runs.lock().record(tenant, run)
    }

    fn read(&self, tenant: &Tenant, run: &RunId, from: u64, limit: usize) -> Result<Vec<Arc<Unit>>, StoreError> {
        let runs = self.runs.lock();
        let units = runs.units(tenant, run);
        let first = units.partition_point(|unit| unit.next_seq() <= from);
        Ok(units[first..].iter().take(limit).cloned().collect())
    }
}
