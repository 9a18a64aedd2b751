//! Units: the journal records that one decision appends together, and the journal that keeps them.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Waker,
};

use flowcell_contract::{Json, NodeId, RunId, Tenant};
use flowcell_flow::graph::FlowPolicy;
use futures_util::task::AtomicWaker;
use serde::{Deserialize, Serialize};

use super::{Change, Staged, StoreError, StoredStatus};
use crate::fact::Fact;

/// All facts of one decision. A journal appends all of them or none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unit {
    /// The number of the first fact. The others follow without a gap.
    pub first_seq: u64,
    /// The time of the decision, in milliseconds since 1970.
    pub ts: u64,
    /// The facts, in order.
    pub facts: Vec<Fact>,
}

impl Unit {
    /// The number of the fact after this unit.
    pub fn next_seq(&self) -> u64 {
        self.first_seq + self.facts.len() as u64
    }

    /// The approximate size of the JSON text, in bytes.
    pub fn size(&self) -> u64 {
        self.facts.iter().map(Fact::size).fold(0, u64::saturating_add)
    }
}

/// The key by which a library finds the same version of a flow again: a digest, or a name where flows do not change.
/// Only the library interprets it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pin(pub Arc<str>);

/// The part of an earlier run that a run repeats. The other nodes keep the outputs of the earlier run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Again {
    /// The earlier run.
    pub run: RunId,
    /// The node of the flow itself from which the run repeats.
    pub from: NodeId,
    /// Whether the repeated nodes ask people their questions again. Runs of older versions keep the answers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asks_again: bool,
}

/// The metadata of a run, written with its first unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The flow's name.
    pub flow: Arc<str>,
    /// The key of the flow in the library.
    pub pin: Pin,
    /// The flow's policy with the changes of the caller.
    pub policy: FlowPolicy,
    /// The number of runs above this one.
    pub depth: u32,
    /// The run that called this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<RunId>,
    /// The prefix of the idempotency keys of its calls: the id of the top run, and the tasks that called one another
    /// from there, without their attempts.
    #[serde(default = "no_root", skip_serializing_if = "str::is_empty")]
    pub root: Arc<str>,
    /// The part of an earlier run that it repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<Again>,
    /// The name by which the calling run asked for the flow. Runs of older versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub called: Option<Arc<str>>,
    /// The run that it repeats, as a whole or in part. Its calls start the same flows as those of that run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<RunId>,
    /// Answers to questions that the earlier run had not asked, by the address of the node that asks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub answers: BTreeMap<String, Json>,
    /// The digest of the request that started the run. It identifies a repeated request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Box<str>>,
}

fn no_root() -> Arc<str> {
    "".into()
}

/// A unit to append to a run's journal, with the writes that become durable together with it.
pub struct Entry {
    /// The tenant of the run.
    pub tenant: Tenant,
    /// The run.
    pub run: RunId,
    /// The facts.
    pub unit: Arc<Unit>,
    /// The metadata of the run; only the first unit has it.
    pub record: Option<Record>,
    /// Writes of state.
    pub writes: Option<Staged>,
    /// Changes of sessions and steps, in order.
    pub rows: Vec<Change>,
    /// The new status of the run, if the unit changes it.
    pub standing: Option<StoredStatus>,
    /// Whether the driver waits for this unit, and is about to force the journal.
    pub force: bool,
    /// The progress that the store reports to once the unit is durable.
    pub durable: Arc<Durable>,
    /// The number of the message in the store's inbox that the unit takes in. Both become durable together.
    pub delivered: Option<u64>,
}

/// The progress of one run's journal on stable storage. The run's driver waits for it.
#[derive(Default)]
pub struct Durable {
    next_seq: AtomicU64,
    refused: AtomicBool,
    waker: AtomicWaker,
}

impl Durable {
    /// The number of the first fact that is not durable.
    pub fn next_seq(&self) -> u64 {
        self.next_seq.load(Ordering::Acquire)
    }

    /// Reports that all facts before this number are durable.
    pub fn advance(&self, next_seq: u64) {
        self.next_seq.fetch_max(next_seq, Ordering::AcqRel);
        self.waker.wake();
    }

    /// Reports that the store accepts nothing more from this driver, as another process may drive the run.
    pub fn refuse(&self) {
        self.refused.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Returns whether the store accepts nothing more from this driver.
    pub fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Acquire)
    }

    /// Registers the waker for the next report.
    pub fn register(&self, waker: &Waker) {
        self.waker.register(waker);
    }
}

/// The ordered units of runs. They become durable in the order of the calls, so that the durable part is always a
/// prefix: of each run, and of all runs together.
pub trait Journal: Send + Sync {
    /// Appends to a run, and returns at once.
    fn append(&self, entry: Entry);

    /// Makes all appended entries durable as soon as possible.
    fn force(&self);

    /// Does the same for a caller that has nothing else to do until then. The store may write on the caller's thread.
    fn force_here(&self) {
        self.force();
    }

    /// Returns the live runs that a run called, or that were made for it. They remain when a process dies, so a store
    /// in memory has none.
    fn left_below(&self, _tenant: &Tenant, _run: &RunId) -> Result<Vec<RunId>, StoreError> {
        Ok(Vec::new())
    }

    /// Returns the runs that a run called, or that were made for it, with those that have ended.
    fn children_of(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError>;

    /// Returns the metadata of a run.
    fn find(&self, tenant: &Tenant, run: &RunId) -> Result<Option<Record>, StoreError>;

    /// Reads at most `limit` durable units of a run, in order, from the one that holds the fact `from`. Returns fewer if
    /// they are large, and none only at the end.
    fn read(&self, tenant: &Tenant, run: &RunId, from: u64, limit: usize) -> Result<Vec<Arc<Unit>>, StoreError>;
}
