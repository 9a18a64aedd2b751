//! Tests flows as tools over MCP: with the real program through pipes, and with a server over real connections.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
#![cfg(unix)]

#[path = "../kit/mod.rs"]
mod kit;

#[allow(dead_code, reason = "the tests of the server ask more")]
#[path = "../../../server/tests/http/client.rs"]
mod client;
mod conformance;
mod http;
mod pipe;
mod tasks;
