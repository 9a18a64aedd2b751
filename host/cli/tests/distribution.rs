//! Tests packs from files, URLs and registries: they are pinned in a lock, signed, and run from the lock alone. The
//! tests start `docker-registry`, a real registry. If it is missing, its tests print a note and are skipped.

#![cfg(unix)]

mod hostile;
mod index;
mod locks;
pub(crate) mod pack;
mod project;
mod registries;
mod registry;
mod signatures;
