//! The HTTP server, asked over real connections.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
#![cfg(unix)]

#[path = "../kit/mod.rs"]
mod kit;

mod access;
mod client;
mod document;
mod library;
mod live;
mod process;
mod runs;
mod session;
mod tenants;
