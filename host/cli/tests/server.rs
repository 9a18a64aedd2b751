//! Tests `flowcell serve`: the program as a server.

#![cfg(unix)]

mod alerts;
mod config;
mod console;
mod hostile;
mod incidents;
mod notify;
pub(crate) mod process;
mod proxies;
mod remote;
mod schemathesis;
mod session;
mod sign_in;
mod telemetry;
mod tls;
