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
//! | `sessions` | sessions and the states of steps |
//! | `sweep` | the removal of runs |
//! | `cache`, `leases`, `timers` | the cache, claims of runs, the clock |

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

pub use blobs::MemoryBlobs;
pub use cache::MemoryCache;
pub use documents::MemoryDocuments;
pub use leases::LocalLeases;
pub use state::MemoryState;
pub use timers::SystemTimers;
pub use units::MemoryJournal;
