//! The six doors through which a driver sees the world: journal, timers, messages, leases, blobs, runner.
//!
//! Nothing above them assumes one process, or a transaction over two runs. The sixth, the runner, is
//! [`flowcell_contract::NodeRunner`].

mod registry;
mod sessions;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Waker,
};

pub use flowcell_contract::Blobs;
use flowcell_contract::{Failure, Json, NodeId, RunId, Tenant, Value, code};
use flowcell_flow::graph::FlowPolicy;
use futures_util::{future::BoxFuture, task::AtomicWaker};
pub use registry::{MARK, Registered, Registry};
use serde::{Deserialize, Serialize};
pub use sessions::{Change, NoProjections, Projection, Projections, Session, Sessions, StepState, StepStatus};

use crate::{
    fact::{Fact, Write},
    result::RunStatus,
};

/// All facts of one decision: appended together or not at all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unit {
    /// The number of the first fact; the others follow without a gap.
    pub first_seq: u64,
    /// When it was decided, in milliseconds since 1970.
    pub ts: u64,
    /// What happened.
    pub facts: Vec<Fact>,
}

impl Unit {
    /// The number of the fact that comes after this unit.
    pub fn next_seq(&self) -> u64 {
        self.first_seq + self.facts.len() as u64
    }

    /// The bytes, about, of its JSON text.
    pub fn size(&self) -> u64 {
        self.facts.iter().map(Fact::size).fold(0, u64::saturating_add)
    }
}

/// What a library finds a flow by again, exactly as it was: its digest, or a name where flows do not change. Opaque to
/// everybody else.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pin(pub Arc<str>);

/// Of which run, and from which node on, a run does again what was done. The other nodes have the outputs that they had
/// then.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Again {
    /// Which run.
    pub run: RunId,
    /// A node of the flow itself.
    pub from: NodeId,
    /// Whether people are asked again what the repeated nodes depend on. Runs of older versions keep the answers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asks_again: bool,
}

/// What is known of a run beside its facts, written with its first unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The flow's name.
    pub flow: Arc<str>,
    /// What the library finds the very same flow by.
    pub pin: Pin,
    /// The flow's policy as the caller changed it.
    pub policy: FlowPolicy,
    /// How many runs are above this one.
    pub depth: u32,
    /// The run that called this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<RunId>,
    /// What the idempotency keys of its calls begin with: the id of the run that a person began, and the tasks that
    /// called one another from there, without their attempts.
    #[serde(default = "no_root", skip_serializing_if = "str::is_empty")]
    pub root: Arc<str>,
    /// What it does again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<Again>,
    /// The name by which the calling run asked for the flow. Runs that older versions began have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub called: Option<Arc<str>>,
    /// The run that it repeats, as a whole or in part: it calls the flows that this one called at the same places.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<RunId>,
    /// Answers to questions that were still to be asked when it was accepted, by the address of the node that asks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub answers: BTreeMap<String, Json>,
    /// The digest of the request that began it, by which the same one is recognised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Box<str>>,
}

fn no_root() -> Arc<str> {
    "".into()
}

/// One thing to append to a run's journal.
pub struct Entry {
    /// Whose run.
    pub tenant: Tenant,
    /// Which run.
    pub run: RunId,
    /// What happened.
    pub unit: Arc<Unit>,
    /// Written with the first unit.
    pub record: Option<Record>,
    /// State that becomes durable with the unit.
    pub writes: Option<Staged>,
    /// Rows beside the journal that are changed with the unit, in order.
    pub rows: Vec<Change>,
    /// How the run stands now, if the unit changes it.
    pub standing: Option<Standing>,
    /// Somebody waits until the unit is durable, and is about to force the journal.
    pub force: bool,
    /// Told when the unit is durable.
    pub durable: Arc<Durable>,
    /// The number of the message in the store's inbox that the unit takes in: it is taken in with the unit, or not at all.
    pub delivered: Option<u64>,
}

/// How a run stands, for lists of runs and for whoever looks for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Somebody drives it, or should.
    Active,
    /// Nothing moves it on before this time, or at all by itself.
    Parked {
        /// When its next timer is due.
        due: Option<u64>,
        /// Somebody has to decide something.
        needs_attention: bool,
    },
    /// It is over.
    Ended(RunStatus),
}

/// How far the journal of one run is on stable storage. Its driver waits for it.
#[derive(Default)]
pub struct Durable {
    next_seq: AtomicU64,
    refused: AtomicBool,
    waker: AtomicWaker,
}

impl Durable {
    /// What comes before this number is durable.
    pub fn next_seq(&self) -> u64 {
        self.next_seq.load(Ordering::Acquire)
    }

    /// What comes before this number has become durable.
    pub fn advance(&self, next_seq: u64) {
        self.next_seq.fetch_max(next_seq, Ordering::AcqRel);
        self.waker.wake();
    }

    /// The store takes nothing more from this driver: somebody else may drive the run.
    pub fn refuse(&self) {
        self.refused.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Whether the store takes nothing more from this driver.
    pub fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Acquire)
    }

    /// Wakes this waker at the next advance, and when the store refuses.
    pub fn register(&self, waker: &Waker) {
        self.waker.register(waker);
    }
}

/// The ordered facts of runs. What is appended becomes durable in the order of the calls, so that what is durable is
/// always a prefix: of each run, and of all of them together.
pub trait Journal: Send + Sync {
    /// Appends to a run, and returns at once.
    fn append(&self, entry: Entry);

    /// Makes durable, as soon as possible, everything that was appended before.
    fn force(&self);

    /// The same, for a caller that has nothing to do before it is done, and knows that nobody else has: it may be done on
    /// the caller's thread.
    fn force_here(&self) {
        self.force();
    }

    /// The runs that were made for a run, or called by it, and are not over: what a process that died has left. In memory
    /// nothing is.
    fn left_below(&self, _tenant: &Tenant, _run: &RunId) -> Result<Vec<RunId>, StoreError> {
        Ok(Vec::new())
    }

    /// Returns the runs that were made for a run, or called by it, also those that are over.
    fn children_of(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<RunId>, StoreError>;

    /// Returns what is known of a run beside its facts.
    fn find(&self, tenant: &Tenant, run: &RunId) -> Result<Option<Record>, StoreError>;

    /// Reads durable units of a run, in order: from the one that holds the fact `from`, and at most `limit`;
    /// fewer if they are large, and none only at the end.
    fn read(&self, tenant: &Tenant, run: &RunId, from: u64, limit: usize) -> Result<Vec<Arc<Unit>>, StoreError>;
}

/// Why a store could not answer.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct StoreError(pub Arc<str>);

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        Failure::retryable(code::STORE_FAILED, error.to_string())
    }
}

/// The clock, and waiting for it.
pub trait Timers: Send + Sync {
    /// Milliseconds since 1970.
    fn now(&self) -> u64;

    /// Waits until the clock shows `due`, or later.
    fn wait(&self, due: u64) -> BoxFuture<'static, ()>;
}

/// A message from one run to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Made from what it is about, so that a repeated delivery is recognised.
    pub id: String,
    /// What it says.
    pub body: MessageBody,
}

/// What runs tell each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum MessageBody {
    /// A child ended.
    ChildEnded {
        /// The address of the task that called it.
        task: String,
        /// In which attempt.
        attempt: u32,
        /// Its outputs.
        result: Result<Value, flowcell_contract::Failure>,
    },
}

/// Delivery between runs.
pub trait Messages: Send + Sync {
    /// Delivers a message at least once, if the run is still there to take it.
    fn deliver(&self, tenant: &Tenant, to: &RunId, message: Message);
}

/// Who drives a run.
pub trait Leases: Send + Sync {
    /// Claims a run; none if somebody else drives it. The claim ends when it is dropped.
    fn claim(&self, tenant: &Tenant, run: &RunId) -> Option<Lease>;
}

/// A claim on a run.
pub struct Lease(pub(crate) Option<Box<dyn FnOnce() + Send>>);

impl Lease {
    /// A claim that does something when it ends.
    pub fn new(release: impl FnOnce() + Send + 'static) -> Lease {
        Lease(Some(Box::new(release)))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(release) = self.0.take() {
            release();
        }
    }
}

/// The writes of one attempt, accepted by the state's store.
#[derive(Clone, Debug, PartialEq)]
pub struct Staged {
    /// Of which flow.
    pub flow: Arc<str>,
    /// Each with its new version.
    pub writes: Vec<(Write, u64)>,
}

/// Durable values that outlive runs, per tenant and flow.
pub trait StateStore: Send + Sync {
    /// Returns the value and its version.
    fn get(&self, tenant: &Tenant, flow: &str, key: &str) -> Result<Option<(Value, u64)>, StoreError>;

    /// Makes writes visible, all or none; they become durable with the entry that they are handed on with. On a conflict
    /// it answers the key whose version is another than expected.
    fn stage(&self, tenant: &Tenant, flow: &Arc<str>, writes: Vec<Write>) -> Result<Staged, StageError>;
}

/// Why writes were not accepted.
#[derive(Clone, Debug)]
pub enum StageError {
    /// The version of this key is another than expected.
    Conflict(String),
    /// The store could not answer.
    Store(StoreError),
}

/// Values that may be forgotten at any time, per tenant.
pub trait CacheStore: Send + Sync {
    /// Returns a value that has not expired at `now`.
    fn get(&self, tenant: &Tenant, key: &str, now: u64) -> Option<Value>;

    /// Keeps a value, until `expires` if that is given.
    fn set(&self, tenant: &Tenant, key: &str, value: Value, expires: Option<u64>);
}
