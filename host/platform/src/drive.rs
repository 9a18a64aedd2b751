//! Starts runs and drives them.
//!
//! | module | contents |
//! |---|---|
//! | [`supervisor`] | drives every run that is ready |
//! | [`triggers`] | starts flows at scheduled times, on incoming posts, and after other runs |
//! | [`sessions`] | keeps the state of agentic flows between runs |
//! | jobs | act on all runs that a filter selects |
//! | [`channels`] | front ends: files, webhooks and programs |
//! | [`run_locks`] | let one request at a time start a run |
//! | [`fleet`] | reads the numbers of the whole store for the metrics |
//! | [`reload`] | reads packs, flows and triggers again |

pub mod channels;
pub mod fleet;
#[cfg(unix)]
pub mod jobs;
pub mod reload;
pub mod run_locks;
pub mod sessions;
pub mod supervisor;
pub mod triggers;
