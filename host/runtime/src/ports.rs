//! The six doors through which a driver sees the world: journal, timers, messages, leases, blobs, runner.
//!
//! Nothing above them assumes one process, or a transaction over two runs. The sixth, the runner, is
//! [`flowcell_contract::NodeRunner`].

use std::sync::Arc;

use flowcell_contract::{BlobRef, RunId, Tenant, Value};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::fact::Fact;

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

/// The ordered facts of runs.
pub trait Journal: Send + Sync {
    /// Appends a unit to a run. Readers may see it only once it is durable.
    fn append(&self, tenant: &Tenant, run: &RunId, unit: Unit);

    /// Makes everything durable that was appended to the run before.
    fn force(&self, tenant: &Tenant, run: &RunId) -> BoxFuture<'_, ()>;

    /// Reads the durable units of a run, from the one that holds `from`.
    fn read(&self, tenant: &Tenant, run: &RunId, from: u64) -> Vec<Unit>;
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

/// Bytes by content.
pub trait Blobs: Send + Sync {
    /// Keeps bytes, once for each content.
    fn put(&self, tenant: &Tenant, bytes: Arc<[u8]>, mime: &str) -> BlobRef;

    /// Returns the bytes, if this tenant has them.
    fn get(&self, tenant: &Tenant, blob: &BlobRef) -> Option<Arc<[u8]>>;
}

/// One buffered write of an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Write {
    /// Which key.
    pub key: String,
    /// The new value.
    pub value: Value,
    /// The version that the writer has seen and relies on: none if it does not care, 0 if the key must be absent.
    pub expected: Option<u64>,
}

/// Durable values that outlive runs, per tenant and flow. Part of the journal's store, so that an attempt's writes
/// become visible with its outcome.
pub trait StateStore: Send + Sync {
    /// Returns the value and its version.
    fn get(&self, tenant: &Tenant, flow: &str, key: &str) -> Option<(Value, u64)>;

    /// Writes all or nothing. On a conflict it answers the key whose version is another than expected.
    fn commit(&self, tenant: &Tenant, flow: &str, writes: &[Write]) -> Result<(), String>;
}

/// Values that may be forgotten at any time, per tenant.
pub trait CacheStore: Send + Sync {
    /// Returns a value that has not expired at `now`.
    fn get(&self, tenant: &Tenant, key: &str, now: u64) -> Option<Value>;

    /// Keeps a value, until `expires` if that is given.
    fn set(&self, tenant: &Tenant, key: &str, value: Value, expires: Option<u64>);
}
