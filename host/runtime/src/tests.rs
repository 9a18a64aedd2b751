//! Random graphs against a naive reference, the driver under virtual time, and both with crashes.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod bounds;
mod children;
mod clocks;
mod commands;
mod crashes;
mod disk;
pub(crate) mod driving;
pub(crate) mod graphs;
mod looping;
mod loops;
mod outside;
mod pausing;
mod questions;
mod readiness;
mod reference;
mod reference_loops;
mod resuming;
mod scopes;
mod stopping;
mod undos;

/// The allocator of the program. Simulated runs spend a fifth of their time in that of the system.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
