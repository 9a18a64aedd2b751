//! Agentic flows in sessions, with the real program: what one run leaves to the next, and what becomes of it whatever becomes
//! of the process.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
#![cfg(unix)]

mod command;
mod examples;
mod guard;
mod killed;
mod matrix;
mod project;
