//! What leaves the host, over real connections to this machine. Nothing here reaches further.
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
