//! Runs on a real Restate server, which these tests start from its npm package, with a PostgreSQL server for the tables. If
//! one of them is not installed, the tests print their names and are skipped. They fail instead if `FLOWCELL_TEST_NEEDS`
//! names `restate-server`, or with `FLOWCELL_TEST_SERVERS=1`.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod cluster;
mod connections;
mod driving;
#[path = "../../runtime/tests/flows/mod.rs"]
mod flows;
mod measures;
mod messages;
mod network;
mod nodes;
mod processes;
mod proxy;
mod server;
#[path = "../../runtime/tests/stores/servers.rs"]
#[allow(dead_code, reason = "the tests of the runtime ask servers for more")]
mod servers;
mod stores;
mod supervisor;
mod together;
