//! The path of somebody who writes nodes, as the page `node` of the manual has it: a project is begun, built, tested and run. Packs in other languages
//! than Rust need their toolchains; without them their tests are skipped, and say so. `FLOWCELL_TEST_TOOLCHAINS=1` makes a missing one
//! a failure.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod conformance;
mod dev;
mod examples;
#[path = "../kit/mod.rs"]
mod kit;
mod language;
mod recipe;
mod roles;
mod scaffold;
