//! Outgoing requests, over real connections to this machine only.
#![allow(clippy::unwrap_used, reason = "tests")]

mod answers;
mod connections;
mod failures;
mod guard;
mod images;
mod kit;
mod policies;
mod registries;
mod requests;
mod server;
mod webhooks;
