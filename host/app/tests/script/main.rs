//! Scripts in the real program: what authors see of them, the examples, and scripts that mean harm.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod commands;
mod examples;
mod hostile;
#[path = "../kit/mod.rs"]
mod kit;
