//! The packs that runs can pin.

use std::{collections::HashSet, sync::Arc};

use flowcell_contract::Tenant;

/// A pack that runs can pin.
pub(super) struct KnownPack {
    pub(super) bytes: Arc<[u8]>,
    /// The tenants whose part of the store already has this pack.
    pub(super) kept: HashSet<Tenant>,
}

impl KnownPack {
    /// Returns a pack that no tenant's part of the store has yet.
    pub(super) fn new(bytes: Arc<[u8]>) -> KnownPack {
        KnownPack { bytes, kept: HashSet::new() }
    }
}
