//! The HTTP server, asked over real connections.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
#![cfg(unix)]

#[path = "../kit/mod.rs"]
mod kit;

mod access;
mod approvals;
mod client;
mod config;
mod document;
#[path = "../services/fake.rs"]
#[allow(dead_code, reason = "not every test looks at all of it")]
mod fake;
mod files;
mod homes;
mod hostile;
mod library;
mod live;
mod metrics;
mod process;
mod quotas;
mod runs;
mod scripts;
mod secrets;
mod session;
mod shares;
mod spec6;
mod telemetry;
mod tenants;
