//! Tests of the engine with guests that were built for it, both honest and hostile ones.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod cache;
mod catalog;
mod deterministic;
mod guests;
mod honest;
mod hostile;
mod packs;
#[cfg(target_os = "linux")]
mod resident;
mod support;
mod tenants;
