//! MCP servers: a strict fake, and servers of other projects. Tests wait only for processes and connections. Tests with
//! ids such as `h16` and `r22` in their names are attacks and faults in the tables of `tests/README.md`.
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
