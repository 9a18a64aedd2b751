//! Removes old runs and unreferenced blobs, and exports runs as documents.

use std::{io::Write, time::Duration};

use flowcell_contract::RunId;
use flowcell_runtime::{
    OpenError,
    export::{ExportError, export},
    ports::{Runs, Swept},
};

use super::{Host, called::CallableFlows, homes};
use crate::host::error::StartError;

/// Performs [`Host::collect`].
pub(crate) fn collect(host: &Host, age: Option<Duration>, keep: Option<u64>) -> Result<Vec<RunId>, StartError> {
    let tenant = &host.tenant;
    let Some(lists) = host.runs() else { return Ok(Vec::new()) };
    let before = age.map(|age| host.now().saturating_sub(age.as_millis() as u64));
    let runs = lists.removable(tenant, before, keep).map_err(OpenError::Store)?;
    for run in &runs {
        host.shared.sweep.forget(tenant, run);
    }
    Ok(runs)
}

/// Performs [`Host::sweep`].
pub(crate) fn sweep(host: &Host) -> Result<Swept, StartError> {
    let swept = host.shared.sweep.sweep(&host.tenant).map_err(OpenError::Store)?;
    // The sweep may have removed packs that no run had pinned.
    let mut packs = host.shared.packs.lock();
    packs.values_mut().for_each(|pack| _ = pack.kept.remove(&host.tenant));
    Ok(swept)
}

/// Performs [`Host::export`].
pub(crate) fn export_run(host: &Host, reader: &dyn Runs, run: &RunId, out: &mut dyn Write) -> Result<(), ExportError> {
    let library = CallableFlows::new(host.clone(), homes::unpinned(host));
    export(reader, &library, &host.tenant, run, out)
}
