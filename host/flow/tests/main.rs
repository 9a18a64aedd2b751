//! Tests the checks and the lowering of flows.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod agentic;
mod credentials;
mod diagnostics;
mod explain;
mod fragments;
mod golden;
mod layout;
mod rewriting;
mod scripts;
mod short_forms;
mod steps;
