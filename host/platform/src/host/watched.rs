//! Who is watched by whom: a process that ends tells those first who watch from another one.

use std::time::Duration;

use flowcell_contract::RunId;
use parking_lot::{Condvar, Mutex};

/// The runs that others watch, each as often as it is watched.
#[derive(Default)]
pub(crate) struct Watched {
    runs: Mutex<Vec<RunId>>,
    told: Condvar,
}

impl Watched {
    /// Somebody watches a run from now on.
    pub(crate) fn begin<'a>(&'a self, run: &'a RunId) -> Watching<'a> {
        self.runs.lock().push(run.clone());
        Watching(self, run)
    }

    /// Waits until those who watch a run that has ended were told so, or the time is up.
    pub(crate) fn wait(&self, run: &RunId, most: Duration) {
        let watched = |runs: &mut Vec<RunId>| runs.contains(run);
        self.told.wait_while_for(&mut self.runs.lock(), watched, most);
    }
}

/// One who watches, until this is dropped.
pub(crate) struct Watching<'a>(&'a Watched, &'a RunId);

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        let mut runs = self.0.runs.lock();
        if let Some(at) = runs.iter().position(|run| run == self.1) {
            runs.swap_remove(at);
        }
        self.0.told.notify_all();
    }
}
