//! What agents may call, in the real program: tools of an operator's servers, and models that ask for what they should not have.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
#![cfg(unix)]

mod hostile;
#[path = "../kit/mod.rs"]
mod kit;
mod mcp;
mod place;
