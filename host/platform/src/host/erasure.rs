//! The parts of a host that the removal of a tenant uses.

use std::path::Path;

use flowcell_contract::Tenant;
use flowcell_runtime::ports::Erase;

use super::Host;

/// Returns the removal of tenants of the host's store.
pub(crate) fn eraser(host: &Host) -> &dyn Erase {
    &*host.shared.erase
}

/// Returns the operator's folder with the files of nodes, if this process has one.
pub(crate) fn files_folder(host: &Host) -> Option<&Path> {
    host.shared.files.as_deref()
}

/// Forgets the counts and cached values of a removed tenant that only the memory of this process has.
pub(crate) fn forget_in_memory(host: &Host, tenant: &Tenant) {
    host.shared.usage.forget(tenant);
    host.shared.metrics.forget(tenant);
    host.shared.cache.forget(tenant);
    host.shared.packs.lock().values_mut().for_each(|pack| pack.forget(tenant));
}
