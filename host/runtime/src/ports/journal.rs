//! The journal of units, and the progress of its writes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Waker,
};

use flowcell_contract::{RunId, Tenant};
use futures_util::task::AtomicWaker;

use super::{Change, Record, Staged, StoreError, StoredStatus, Unit};

/// A unit to append to a run's journal, with the writes that become durable together with it.
pub struct Entry {
    /// The tenant of the run.
    pub tenant: Tenant,
    /// The id of the run.
    pub run: RunId,
    /// The unit with the facts.
    pub unit: Arc<Unit>,
    /// The metadata of the run. Only the first unit has it, and each unit that changes it.
    pub record: Option<Record>,
    /// The state writes of the flow.
    pub writes: Option<Staged>,
    /// Changes of sessions and step states, in order.
    pub rows: Vec<Change>,
    /// The new status of the run, if the unit changes it.
    pub status: Option<StoredStatus>,
    /// True if the driver waits for this unit and is about to force the journal.
    pub force: bool,
    /// The progress that the store reports to once the unit is durable.
    pub durable: Arc<Durable>,
    /// The number of the message in the store's inbox that the unit records as delivered. Both become durable
    /// together.
    pub delivered: Option<u64>,
}

impl Entry {
    /// Returns the metadata of a new run.
    pub fn new_record(&self) -> Option<&Record> {
        self.record.as_ref().filter(|_| self.unit.first_seq == 0)
    }

    /// Returns the changed metadata of a run that the store has.
    pub fn changed_record(&self) -> Option<&Record> {
        self.record.as_ref().filter(|_| self.unit.first_seq > 0)
    }
}

/// The progress of one run's journal on stable storage. The run's driver waits for it.
#[derive(Default)]
pub struct Durable {
    next_seq: AtomicU64,
    refused: AtomicBool,
    waker: AtomicWaker,
}

impl Durable {
    /// Returns the number of the first fact that is not durable.
    pub fn next_seq(&self) -> u64 {
        self.next_seq.load(Ordering::Acquire)
    }

    /// Reports that all facts before this number are durable.
    pub fn advance(&self, next_seq: u64) {
        self.next_seq.fetch_max(next_seq, Ordering::AcqRel);
        self.waker.wake();
    }

    /// Reports that the store refuses all further units of this driver, because another process may drive the run.
    pub fn refuse(&self) {
        self.refused.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Returns whether the store refuses all further units of this driver.
    pub fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Acquire)
    }

    /// Registers the waker for the next report.
    pub fn register(&self, waker: &Waker) {
        self.waker.register(waker);
    }
}

/// The ordered units of runs. They become durable in the order of the appends, so the durable part is always a
/// prefix: of each run, and of all runs together.
pub trait Journal: Send + Sync {
    /// Appends a unit to a run, and returns at once.
    fn append(&self, entry: Entry);

    /// Makes all appended entries durable as soon as possible.
    fn force(&self);

    /// Makes all appended entries durable for a caller that has no other work until then. The store may write on the
    /// caller's thread.
    fn force_here(&self) {
        self.force();
    }

    /// Returns the runs that have not ended and that this run has called, or that were made for this run. The default,
    /// for a store in memory, returns none: there, such runs end with the process.
    fn left_below(&self, _tenant: &Tenant, _run: &RunId) -> Result<Vec<RunId>, StoreError> {
        Ok(Vec::new())
    }

    /// Returns the runs that this run has called, or that were made for this run, including those that have ended.
    fn children_of(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError>;

    /// Returns the runs that repeat this run or a part of it. A store outside of memory returns the latest
    /// [`crate::limits::MAX_READ_REPEATS`] of them.
    fn repeats_of(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError>;

    /// Returns the metadata of a run.
    fn find(&self, tenant: &Tenant, run: &RunId) -> Result<Option<Record>, StoreError>;

    /// Reads at most `limit` durable units of a run, in order, from the unit that contains the fact `from`. Returns
    /// fewer units if they are large, and none only at the end.
    fn read(&self, tenant: &Tenant, run: &RunId, from: u64, limit: usize) -> Result<Vec<Arc<Unit>>, StoreError>;
}
