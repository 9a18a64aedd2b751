//! Tests scripts in the real program: the commands for authors, the examples, and hostile scripts.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod commands;
mod examples;
mod facts;
#[path = "../services/fake.rs"]
#[allow(dead_code, reason = "not every test looks at all of it")]
mod fake;
mod flow_services_v1;
mod hostile;
#[path = "../kit/mod.rs"]
mod kit;
mod replayed;
