//! Tests of the HTTP server over real connections.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
#![cfg(unix)]

mod access;
mod admin;
mod agents;
mod approvals;
mod assist;
mod audit;
mod authoring;
mod beside;
mod breakers;
mod cases;
mod client;
mod credentials;
mod details;
mod document;
mod doors;
mod encrypted;
mod eval;
#[path = "../../../cli/tests/services/fake.rs"]
#[allow(dead_code, reason = "not every test looks at all of it")]
mod fake;
mod files;
mod forms;
mod homes;
mod hostile;
mod inbox;
mod job_versions;
mod jobs;
mod library;
mod links;
mod live;
mod login;
mod me;
mod messages;
mod metrics;
mod moments;
mod notices;
mod quotas;
mod remote;
mod runs;
mod samples;
mod scripts;
mod search;
mod secrets;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../../runtime/tests/stores/servers.rs"]
mod servers;
mod shares;
mod steps_api;
#[allow(dead_code, reason = "the tests of the program use the rest")]
mod stream;
mod tenants;
mod tls;
mod versions;
