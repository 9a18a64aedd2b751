//! The ports of a driver: the traits through which it uses a store and the clock.
//!
//! | module | content |
//! |---|---|
//! | `units` | the journal |
//! | `runs` | the status of runs, and lists of them |
//! | `state` | values of flows that outlive runs |
//! | `blobs` | bytes by their content |
//! | `inbox` | messages to runs that another process drives |
//! | `documents` | records of operators |
//! | `sessions` | sessions and the states of steps |
//! | `sweep` | the removal of runs and blobs |
//! | `cache`, `leases`, `timers` | values that may be forgotten, claims of runs, the clock |
//!
//! The stores in [`memory`](crate::memory), [`sqlite`](crate::sqlite) and [`sql`](crate::sql) have the same outline. No
//! port assumes one process, or a transaction over two runs. The port of nodes is [`flowcell_contract::NodeRunner`].

mod blobs;
mod cache;
mod documents;
mod inbox;
mod leases;
mod runs;
mod sessions;
mod state;
mod sweep;
mod timers;
mod units;

use std::sync::Arc;

use flowcell_contract::{Failure, code};

pub use blobs::Blobs;
pub(crate) use blobs::blob_ref;
pub use cache::CacheStore;
pub use documents::{Document, DocumentStore, MARK};
pub use inbox::{Inbox, Message};
pub use leases::{Lease, Leases};
pub use runs::{Filter, RunRow, Runs, StoredStatus};
pub use sessions::{Change, NoProjections, Projection, Projections, Session, Sessions, StepState, StepStatus};
pub use state::{StageError, Staged, StateStore};
pub(crate) use sweep::hashes;
pub use sweep::{Sweep, Swept};
pub use timers::Timers;
pub use units::{Again, Durable, Entry, Journal, Pin, Record, Unit};

/// Why a store could not answer.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct StoreError(pub Arc<str>);

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        Failure::retryable(code::STORE_FAILED, error.to_string())
    }
}
