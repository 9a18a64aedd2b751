//! The ports of a driver: the traits through which it uses a store and the clock.
//!
//! | module | content |
//! |---|---|
//! | `units` | the units of runs, and the metadata of runs |
//! | `runs`, `filter` | lists of runs, and the selection of runs for them |
//! | `labels` | changes of the labels of runs |
//! | `state` | values of flows that outlive runs |
//! | `blobs` | bytes, stored under the digest of their content |
//! | `inbox` | messages to runs that another process drives |
//! | `documents` | records of operators |
//! | `sessions` | sessions and step states |
//! | `store_error` | errors, and their kinds |
//! | `sweep` | the removal of runs and blobs |
//! | `erase` | the removal of a tenant |
//! | `journal`, `status` | the journal of units, and the stored status of a run |
//! | `cache`, `leases`, `timers` | values that may be forgotten, claims of runs, the clock |
//!
//! The stores in [`memory`](crate::memory), [`sqlite`](crate::sqlite) and [`sql`](crate::sql) have the same outline. No
//! port assumes one process, or a transaction over two runs. The port of nodes is [`flowcell_contract::NodeRunner`].

mod blobs;
mod cache;
mod documents;
mod erase;
mod filter;
mod inbox;
mod journal;
mod labels;
mod leases;
mod parked;
mod runs;
mod sessions;
mod state;
mod status;
mod store_error;
mod sweep;
mod timers;
mod units;

pub use blobs::Blobs;
pub(crate) use blobs::blob_ref;
pub use cache::CacheStore;
pub use documents::{Document, DocumentStore, MARK};
pub use erase::Erase;
pub use filter::{Counts, Filter, Group, ListPlace};
pub use inbox::{Inbox, Message};
pub use journal::{Durable, Entry, Journal};
pub use labels::{LabelChange, RelabelError};
pub use leases::{Lease, Leases};
pub use parked::{ParkedGroup, ParkedRuns};
pub use runs::{Changed, Removable, RunGroup, RunRow, Runs, SearchPage};
pub use sessions::{Change, NoProjections, Projection, Projections, Session, Sessions, StepState, StepStatus};
pub use state::{StageError, Staged, StateStore};
pub use status::StoredStatus;
pub use store_error::{MaybeStoreError, StoreError, StoreErrorKind, StoreErrorReason};
pub(crate) use sweep::hashes;
pub use sweep::{Removed, Removing, Sweep, Swept, Undeletable};
pub use timers::Timers;
pub use units::{Again, InVersion, Move, Pin, Record, Unit};
