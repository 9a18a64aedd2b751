//! The interface of stores that several processes share.

use std::sync::Arc;

use flowcell_contract::{RunId, Tenant};
use tokio::sync::broadcast;

use crate::{
    ports::{LabelChange, Lease, RelabelError, Runs, StoreError},
    world::World,
};

/// A run without a driver that this process has claimed. The claim ends when the offer and all leases of the run are
/// dropped.
pub struct Offer {
    /// The tenant of the run.
    pub tenant: Tenant,
    /// The id of the run.
    pub run: RunId,
    /// The claim of the run.
    pub lease: Lease,
}

/// A process that uses a shared store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreProcess {
    /// The name of the process.
    pub name: String,
    /// The time that its lease still lasts by the clock of the server, in milliseconds. 0: the lease has ended, and other
    /// processes may take its runs.
    pub lease_ms: u64,
    /// The number of runs that it holds, without those that they have called.
    pub runs: u64,
}

/// Carries messages between the processes of a store, such as live events. A message may be lost, and none is kept.
pub trait Relay: Send + Sync {
    /// Queues a message, one line of text, for the other processes. Returns at once. Returns false if the message is
    /// dropped: it is larger than [`MAX_RELAYED_BYTES`](crate::limits::MAX_RELAYED_BYTES), or too many messages wait.
    fn send(&self, message: String) -> bool;

    /// Returns a receiver of the messages of the other processes from now on. A slow receiver loses the oldest ones. The
    /// first call connects to the server.
    fn receive(&self) -> broadcast::Receiver<Arc<str>>;
}

/// A store that several processes share.
pub trait SharedRuns: Runs {
    /// Claims at most `limit` top runs without a driver, the longest waiting first. These are active runs, and parked
    /// ones with a timer that is due at `now`.
    ///
    /// A run that made no progress after earlier claims is offered again. Its driver parks it only after processes have
    /// died while they drove only this run.
    fn work(&self, tenant: &Tenant, now: u64, limit: usize) -> Result<Vec<Offer>, StoreError>;

    /// Returns the error of the present outage, if the server does not answer or accepts no writes.
    fn outage(&self) -> Option<StoreError>;

    /// Returns the number of commits of this process.
    fn commits(&self) -> u64;

    /// Returns at most `limit` processes of the store, the latest started first. One whose lease has ended is kept for a
    /// day.
    fn processes(&self, limit: usize) -> Result<Vec<StoreProcess>, StoreError>;

    /// Waits until all earlier writes are durable or refused.
    fn settle(&self) -> Result<(), StoreError>;

    /// Changes the labels of runs in one transaction. Returns when it is on stable storage, with the result of each run.
    fn relabel(
        &self,
        tenant: &Tenant,
        runs: &[RunId],
        change: &LabelChange,
    ) -> Result<Vec<Result<(), RelabelError>>, StoreError>;

    /// Stores a blob. `hash` is the SHA-256 of the bytes, in hexadecimal.
    fn keep(&self, tenant: &Tenant, hash: &Arc<str>, bytes: Arc<[u8]>, mime: &str);

    /// Writes all queued items, and releases all runs of this process. A process calls this when it ends without
    /// dropping the store.
    fn retire(&self);

    /// Returns the relay of messages between the processes of the store. `None`: the server has no notifications.
    fn relay(&self) -> Option<Arc<dyn Relay>>;

    /// Delivers messages of other processes to the runs of this one. Records messages to runs without a driver in their
    /// journals. Continues until `world` is dropped.
    fn serve(&self, world: &Arc<World>) -> Result<(), StoreError>;
}
