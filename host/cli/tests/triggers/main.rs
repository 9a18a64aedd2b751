//! Tests flows that start automatically: at times, by webhooks, and after other runs. The tests control the time.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
#![cfg(unix)]

#[allow(dead_code, reason = "not every test asks for everything")]
#[path = "../../../server/tests/http/client.rs"]
mod client;
#[path = "../kit/mod.rs"]
mod kit;
#[allow(dead_code, reason = "the runtime's tests ask servers for more")]
#[path = "../../../runtime/tests/stores/servers.rs"]
mod servers;

mod commands;
mod ends;
mod hooks;
mod household;
mod times;
