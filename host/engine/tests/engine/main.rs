//! Tests of the engine with guests that were built for these tests, both honest and hostile ones. Ids in the names of
//! tests, such as `n4` and `y3`, stand for attacks by packs in the table of `tests/README.md`.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod cache;
mod catalog;
mod deterministic;
mod guests;
mod honest;
mod hostile;
mod large;
mod libraries;
mod packs;
mod queries;
#[cfg(target_os = "linux")]
mod resident;
mod streams;
mod support;
mod tenants;
