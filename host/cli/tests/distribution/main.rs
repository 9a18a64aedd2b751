//! Packs of others: installed from files, URLs and registries, pinned in a lock, signed, and run from the lock alone. The
//! registry is a real one, `docker-registry`, which the tests start; without it those that need it are skipped, and say so.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
#![cfg(unix)]

#[path = "../guests/mod.rs"]
mod guests;
mod hostile;
#[path = "../kit/mod.rs"]
mod kit;
mod locks;
mod pack;
mod place;
mod registries;
mod registry;
#[path = "../outside/server.rs"]
#[allow(dead_code, reason = "the requests themselves are another test's")]
mod server;
mod signatures;
