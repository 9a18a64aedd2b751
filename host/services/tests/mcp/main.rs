//! Tool servers: a strict fake, and servers of other projects. Waits are for a process or a connection.
#![allow(clippy::unwrap_used, reason = "tests")]

mod addresses;
mod answers;
mod configuration;
mod everything;
mod filesystem;
mod kit;
mod lists;
mod programs;
mod secrets;
