//! Runs on a real Restate server, which these tests start from its npm package. If it is not installed, the tests print
//! their names and are skipped; with `FLOWCELL_TEST_SERVERS=1` they fail.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod driving;
#[path = "../../runtime/tests/flows/mod.rs"]
mod flows;
mod measures;
mod messages;
mod nodes;
mod processes;
mod server;
mod stores;
mod supervisor;
