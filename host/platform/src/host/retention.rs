//! Removes old runs and unreferenced blobs, and exports runs as documents.

use std::{io::Write, time::Duration};

use flowcell_contract::RunId;
use flowcell_runtime::{
    OpenError,
    export::{ExportError, export},
    ports::{Runs, Swept},
};

use super::{Host, called::CallableFlows};
use crate::host::error::StartError;

impl Host {
    /// Removes the runs that ended longer ago than `age`, and those that are not among the `keep` runs that ended
    /// last. Returns the ids of the removed runs. The removal is complete when the host is dropped. [`Host::sweep`]
    /// then removes their blobs.
    pub fn collect(&self, age: Option<Duration>, keep: Option<u64>) -> Result<Vec<RunId>, StartError> {
        let tenant = &self.tenant;
        let Some(lists) = self.runs() else { return Ok(Vec::new()) };
        let before = age.map(|age| self.now().saturating_sub(age.as_millis() as u64));
        let runs = lists.removable(tenant, before, keep).map_err(OpenError::Store)?;
        for run in &runs {
            self.shared.sweep.forget(tenant, run);
        }
        Ok(runs)
    }

    /// Removes unreferenced blobs: large values, and packs that runs have pinned. Returns when the sweep and all
    /// earlier removals of [`Host::collect`] are done.
    pub fn sweep(&self) -> Result<Swept, StartError> {
        let swept = self.shared.sweep.sweep(&self.tenant).map_err(OpenError::Store)?;
        // The sweep may have removed packs that no run had pinned.
        let mut packs = self.shared.packs.lock();
        packs.values_mut().for_each(|pack| _ = pack.kept.remove(&self.tenant));
        Ok(swept)
    }

    /// Writes a run and its child runs as one JSON document.
    pub fn export(&self, reader: &dyn Runs, run: &RunId, out: &mut dyn Write) -> Result<(), ExportError> {
        let library = CallableFlows::new(self.clone(), self.unpinned_home());
        export(reader, &library, &self.tenant, run, out)
    }
}
