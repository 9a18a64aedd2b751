//! The engine against guests that were built for it: what an honest one may do, and what comes of a hostile one.

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
