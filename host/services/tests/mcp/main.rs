//! Servers of tools: a strict fake, and servers that nobody here wrote. What waits, waits for a process or a connection.
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
