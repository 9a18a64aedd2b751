//! The path of somebody who writes nodes, as the README has it: a project is begun, built, tested and run. Packs in JavaScript and
//! Python need their toolchains; without them their tests are skipped, and say so.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod conformance;
mod dev;
mod examples;
#[path = "../kit/mod.rs"]
mod kit;
mod language;
mod roles;
mod scaffold;
