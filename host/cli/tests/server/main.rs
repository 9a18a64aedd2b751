//! Tests `flowcell serve`: the program as a server.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
#![cfg(unix)]

#[path = "../../../server/tests/http/client.rs"]
#[allow(dead_code, reason = "not every test does everything")]
mod client;
#[path = "../kit/mod.rs"]
mod kit;
#[allow(dead_code, reason = "the runtime's tests cut more")]
#[path = "../../../runtime/tests/shared/proxy.rs"]
mod proxy;
#[path = "../../../server/tests/http/samples.rs"]
mod samples;
#[allow(dead_code, reason = "the runtime's tests ask servers for more")]
#[path = "../../../runtime/tests/stores/servers.rs"]
mod servers;
#[path = "../../../server/tests/http/stream.rs"]
#[allow(dead_code, reason = "not every test does everything")]
mod stream;

mod config;
mod console;
mod hostile;
mod incidents;
mod process;
mod proxies;
mod schemathesis;
mod session;
mod telemetry;
