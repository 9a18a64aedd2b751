//! Tests stores and runs with the public parts of the runtime.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod clock;
mod flows;
mod golden;
mod inputs;
mod newer;
mod objects;
mod shared;
mod store;
mod stores;
