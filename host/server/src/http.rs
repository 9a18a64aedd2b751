//! What the routes under `/v1` do.
//!
//! | room | what it is |
//! |---|---|
//! | connection, seats | how many connections, how long each may stay silent; which of them gives way |
//! | proxies, failures | which proxies are believed; tokens that nobody has |
//! | app | what requests share |
//! | intake, fault, page | what requests bring, the one shape of errors, and pages of lists |
//! | health, catalog, flows, library, runs, tasks, secrets, start, steer, events, socket, usage | the routes |
//! | live | events told once to many |
//! | triggers, hooks, owners | flows that start by themselves: seen and changed, posted to, and whose they are |
//! | metrics | numbers about the server, and its log |
//! | limits | how much connections may take |

pub(crate) mod app;
pub(crate) mod catalog;
pub(crate) mod connection;
pub(crate) mod events;
pub(crate) mod failures;
pub(crate) mod fault;
pub(crate) mod files;
pub(crate) mod flows;
pub(crate) mod health;
pub(crate) mod hooks;
pub(crate) mod intake;
pub(crate) mod library;
pub(crate) mod limits;
pub(crate) mod live;
pub(crate) mod metrics;
pub(crate) mod owners;
pub(crate) mod page;
pub(crate) mod proxies;
pub(crate) mod runs;
mod seats;
pub(crate) mod secrets;
pub(crate) mod socket;
pub(crate) mod start;
pub(crate) mod steer;
pub(crate) mod tasks;
pub(crate) mod triggers;
pub(crate) mod usage;

pub(crate) use flowcell_platform::identity;
