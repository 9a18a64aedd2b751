//! What is kept of runs: for how long, and as a document.

use std::{io::Write, time::Duration};

use flowcell_contract::RunId;
use flowcell_runtime::{
    OpenError,
    export::{ExportError, export},
    rows::{Runs, Swept},
};

use super::{Host, called::Library};
use crate::host::error::StartError;

impl Host {
    /// Removes what is kept of runs that ended longer ago than this, or are not among so many that ended last. Answers
    /// which. They are gone when the host is dropped; what they alone have pinned goes with [`Host::sweep`].
    pub fn collect(&self, age: Option<Duration>, keep: Option<u64>) -> Result<Vec<RunId>, StartError> {
        let tenant = &self.tenant;
        let Some(lists) = self.runs() else { return Ok(Vec::new()) };
        let before = age.map(|age| self.now().saturating_sub(age.as_millis() as u64));
        let runs = lists.removable(tenant, before, keep).map_err(OpenError::Store)?;
        for run in &runs {
            self.shared.store.iter().for_each(|store| store.forget(tenant, run));
            self.shared.shared.iter().for_each(|store| store.forget(tenant, run));
        }
        Ok(runs)
    }

    /// Removes the blobs that nothing in the store names any more: large values, and what runs have pinned. Waits until
    /// that is done, and all that [`Host::collect`] has removed before.
    pub fn sweep(&self) -> Result<Swept, StartError> {
        let swept = match (&self.shared.store, &self.shared.shared) {
            (Some(store), _) => store.sweep(&self.tenant).map_err(OpenError::Store)?,
            (_, Some(store)) => store.sweep(&self.tenant).map_err(OpenError::Store)?,
            _ => return Ok(Swept::default()),
        };
        // A pack that no run had pinned may be gone.
        let mut packs = self.shared.packs.lock();
        packs.values_mut().for_each(|pack| _ = pack.kept.remove(&self.tenant));
        Ok(swept)
    }

    /// Writes all that a store has of a run, and of the runs below it, as one JSON document.
    pub fn export(&self, reader: &dyn Runs, run: &RunId, out: &mut dyn Write) -> Result<(), ExportError> {
        let library = Library::new(self.clone(), self.unpinned_home());
        export(reader, &library, &self.tenant, run, out)
    }
}
