//! The rows of runs in the database beside the cluster: for lists, searches, labels and removals.
//!
//! The cluster has the truth. A row is written after the commit that changes it, and an invocation ends only after all
//! rows of its tree are written. If a process dies in between, the next try of the invocation writes them.

use std::{collections::HashMap, sync::Arc};

use flowcell_contract::{RunId, Tenant};
use flowcell_runtime::{
    ports::{StoreError, StoredStatus},
    sql::{IndexedRun, SharedStore},
};
use parking_lot::Mutex;

use crate::{
    recorded::Recorded,
    wire::{self, Head},
};

/// The number of runs whose last written row the index remembers.
const MAX_REMEMBERED: usize = 50_000;

/// The rows of runs.
pub(crate) struct Index {
    pub(crate) tables: Arc<SharedStore>,
    /// For runs whose rows this process has written, the number of the fact after the last change of the row.
    written: Mutex<HashMap<(Tenant, RunId), u64>>,
}

impl Head {
    /// Returns the row of a run.
    pub(crate) fn indexed(&self, tenant: &Tenant, run: &RunId) -> Result<IndexedRun, StoreError> {
        Ok(IndexedRun {
            tenant: tenant.clone(),
            run: run.clone(),
            record: wire::record(run, &self.record)?,
            record_seq: self.record_seq,
            created: self.created,
            status: StoredStatus::from(&self.status),
            note: self.note.clone(),
            next_seq: self.listed,
        })
    }
}

impl Index {
    pub(crate) fn new(tables: Arc<SharedStore>) -> Index {
        Index { tables, written: Mutex::default() }
    }

    /// Waits until all earlier rows are durable.
    pub(crate) fn settle(&self) -> Result<(), StoreError> {
        self.tables.settle()
    }

    /// Queues the row of a run, unless this process has written it already.
    pub(crate) fn add(&self, tenant: &Tenant, run: &RunId, head: &Head) -> Result<(), StoreError> {
        {
            let mut written = self.written.lock();
            if written.len() >= MAX_REMEMBERED {
                written.clear();
            }
            let known = written.entry((tenant.clone(), run.clone())).or_default();
            if *known >= head.listed {
                return Ok(());
            }
            *known = head.listed;
        }
        self.tables.index(head.indexed(tenant, run)?);
        Ok(())
    }

    /// Queues the rows of all runs that an invocation has touched, those of parents first.
    pub(crate) fn add_all(&self, tenant: &Tenant, recorded: &Recorded) -> Result<(), StoreError> {
        let mut runs = Vec::with_capacity(recorded.heads.len());
        for (run, head) in &recorded.heads {
            runs.push((wire::record(run, &head.record)?.depth, run, head));
        }
        runs.sort_by_key(|(depth, ..)| *depth);
        runs.into_iter().try_for_each(|(_, run, head)| self.add(tenant, run, head))
    }

    /// Forgets a run that another process has accepted under the same id.
    pub(crate) fn forget(&self, tenant: &Tenant, run: &RunId) {
        self.written.lock().remove(&(tenant.clone(), run.clone()));
    }
}
