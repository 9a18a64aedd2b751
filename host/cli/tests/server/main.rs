//! Tests `flowcell serve`: the program as a server.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
#![cfg(unix)]

#[path = "../../../server/tests/http/client.rs"]
#[allow(dead_code, reason = "not every test does everything")]
mod client;
#[path = "../kit/mod.rs"]
mod kit;
#[path = "../../../server/tests/http/samples.rs"]
mod samples;
#[path = "../../../server/tests/http/stream.rs"]
#[allow(dead_code, reason = "not every test does everything")]
mod stream;

mod config;
mod hostile;
mod process;
mod proxies;
mod schemathesis;
mod session;
mod telemetry;
