//! Tests the program `flowcell`.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod agents;
mod authors;
mod blobs;
mod called;
mod channels;
mod chat;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../server/tests/http/client.rs"]
mod client;
mod cluster;
mod distribution;
mod durable;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../server/tests/http/encrypted.rs"]
mod encrypted;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../engine/tests/engine/guests.rs"]
mod engine_guests;
mod faults;
mod files;
mod flow_service;
mod flows;
mod follow;
mod fuzz;
mod guests;
mod import;
mod inputs;
mod jobs;
mod kit;
mod lsp;
mod manual;
mod mcp;
#[path = "../../runtime/tests/objects/server.rs"]
mod moto;
mod node_limits;
mod outside;
mod packaging;
mod posted;
mod process;
#[path = "../../runtime/tests/shared/proxy.rs"]
mod proxy;
mod reload;
mod retention;
#[path = "../../server/tests/http/samples.rs"]
mod samples;
mod script;
mod secrets;
mod server;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../runtime/tests/stores/servers.rs"]
mod servers;
mod services;
mod sessions;
mod stores;
mod strangers;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../server/tests/http/stream.rs"]
mod stream;
mod tenants;
mod terminal;
mod third_party;
mod tools;
mod transcripts;
mod triggers;
