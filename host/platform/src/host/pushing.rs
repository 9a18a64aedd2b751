//! The packs of the shared store: pushed, removed, and looked for.

use flowcell_runtime::ports::StoreError;

use super::{Host, loading::remember_packs};
use crate::{
    host::pack_changes::{HostPack, PackChanges, SkippedPack},
    packs::{
        Arrival, PackId, PackVersions, Trust,
        pushed::{PushError, PushedPack},
    },
};

/// Performs [`Host::packs`].
pub(crate) fn packs(host: &Host) -> Vec<HostPack> {
    host.shared.node_types.current().packs.clone()
}

/// Performs [`Host::skipped_packs`].
pub(crate) fn skipped(host: &Host) -> Vec<SkippedPack> {
    host.shared.node_types.current().skipped.clone()
}

/// Performs [`Host::look_for_packs`].
pub(crate) fn look(host: &Host) -> Result<PackChanges, StoreError> {
    let changes = host.shared.node_types.look(|packs| remember_packs(host, packs))?;
    if !changes.is_empty() {
        host.shared.checked.forget_all();
    }
    Ok(changes)
}

/// Performs [`Host::push_pack`].
pub(crate) fn push(host: &Host, arrival: Arrival, trust: &Trust) -> Result<(PackId, PushedPack), PushError> {
    let pushed = host.shared.node_types.pushed().ok_or(PushError::NotShared)?;
    pushed.push(arrival, trust, host.now())
}

/// Performs [`Host::remove_packs`].
pub(crate) fn remove(host: &Host, packs: &PackVersions) -> Result<Vec<PackId>, PushError> {
    host.shared.node_types.pushed().ok_or(PushError::NotShared)?.remove(packs)
}
