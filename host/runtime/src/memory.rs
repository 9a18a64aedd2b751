//! The store in memory. Its content ends with the process.
//!
//! | module | content |
//! |---|---|
//! | `units` | the journal |
//! | `runs` | the metadata and the units of runs |
//! | `state` | state of flows |
//! | `blobs` | blobs |
//! | `inbox` | none: one process drives all runs |
//! | `documents` | the documents of operators |
//! | `sessions` | sessions and step states |
//! | `sweep` | the removal of runs |
//! | `erase` | no removal of tenants |
//! | `cache`, `leases`, `timers` | the cache, claims of runs, the clock |

mod blobs;
mod cache;
mod documents;
mod erase;
mod inbox;
mod leases;
mod runs;
mod sessions;
mod state;
mod sweep;
mod timers;
mod units;

use parking_lot::Mutex;

pub use blobs::MemoryBlobs;
pub use cache::MemoryCache;
pub use documents::MemoryDocuments;
pub use leases::LocalLeases;
use runs::RunTable;
use sessions::Tables;
pub use state::MemoryState;
pub use timers::SystemTimers;

/// A journal in memory, with the rows beside it. Entries count as durable at once, and end with the process.
#[derive(Default)]
pub struct MemoryJournal {
    runs: Mutex<RunTable>,
    tables: Mutex<Tables>,
}
