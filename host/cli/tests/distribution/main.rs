//! Tests packs from files, URLs and registries: they are pinned in a lock, signed, and run from the lock alone. The
//! tests start `docker-registry`, a real registry. If it is missing, its tests print a note and are skipped.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
#![cfg(unix)]

#[path = "../guests/mod.rs"]
mod guests;
mod hostile;
#[path = "../kit/mod.rs"]
mod kit;
mod locks;
mod pack;
mod project;
mod registries;
mod registry;
#[path = "../outside/server.rs"]
#[allow(dead_code, reason = "the requests themselves are another test's")]
mod server;
mod signatures;
