//! Tests node types of the catalog with external effects, in the real program.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

#[path = "../guests/mod.rs"]
mod guests;
#[path = "../kit/mod.rs"]
mod kit;
mod ported;
mod requests;
mod secrets;
mod server;
