//! The packs that runs can pin.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use flowcell_contract::Tenant;
use flowcell_runtime::limits::SPARED_MS;

/// Time after which a pack is stored again, so that its age in the store is renewed. A sweep of another process keeps it
/// for [`SPARED_MS`] after that, although no run has pinned it.
const KEPT: Duration = Duration::from_millis(SPARED_MS / 24);

/// A pack that runs can pin.
pub(super) struct KnownPack {
    pub(super) bytes: Arc<[u8]>,
    /// The tenants whose part of the store already has this pack, with the times when it was stored.
    kept: HashMap<Tenant, Instant>,
}

impl KnownPack {
    /// Returns a pack that no tenant's part of the store has yet.
    pub(super) fn new(bytes: Arc<[u8]>) -> KnownPack {
        KnownPack { bytes, kept: HashMap::new() }
    }

    /// Returns whether the pack has to be stored for a tenant, and records that this is done now.
    pub(super) fn is_due(&mut self, tenant: &Tenant, now: Instant) -> bool {
        let is_due = self.kept.get(tenant).is_none_or(|kept| now.saturating_duration_since(*kept) >= KEPT);
        if is_due {
            self.kept.insert(tenant.clone(), now);
        }
        is_due
    }

    /// Records that a tenant's part of the store may lack the pack.
    pub(super) fn forget(&mut self, tenant: &Tenant) {
        self.kept.remove(tenant);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pack_is_stored_again_long_before_a_sweep_of_another_process_may_remove_it() {
        let (a, b, now) = (Tenant::from("a"), Tenant::from("b"), Instant::now());
        let mut pack = KnownPack::new(Arc::from(*b"pack"));
        assert!(pack.is_due(&a, now) && !pack.is_due(&a, now + KEPT / 2));
        assert!(pack.is_due(&b, now + KEPT / 2));
        assert!(pack.is_due(&a, now + KEPT) && !pack.is_due(&a, now + KEPT));
        pack.forget(&a);
        assert!(pack.is_due(&a, now + KEPT) && !pack.is_due(&b, now + KEPT));
        assert!(KEPT * 2 <= Duration::from_millis(SPARED_MS));
    }
}
