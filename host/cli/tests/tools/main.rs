//! Tests the tools of agents in the real program: those of the operator's servers, and models that request forbidden
//! calls.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
#![cfg(unix)]

mod hostile;
#[path = "../kit/mod.rs"]
mod kit;
mod mcp;
mod project;
