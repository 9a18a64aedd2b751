//! Tracks the runs that other processes watch, so that this process exits only after it has sent the watchers the end
//! of a run.

use std::time::Duration;

use flowcell_contract::RunId;
use parking_lot::{Condvar, Mutex};

/// The watched runs, with one entry per watcher.
#[derive(Default)]
pub(crate) struct Watched {
    runs: Mutex<Vec<RunId>>,
    told: Condvar,
}

impl Watched {
    /// Registers a watcher of a run.
    pub(crate) fn register<'a>(&'a self, run: &'a RunId) -> WatcherRegistration<'a> {
        self.runs.lock().push(run.clone());
        WatcherRegistration(self, run)
    }

    /// Waits until the watchers of an ended run have received its end, at most for the time `most`.
    pub(crate) fn wait_for_watchers(&self, run: &RunId, most: Duration) {
        let watched = |runs: &mut Vec<RunId>| runs.contains(run);
        self.told.wait_while_for(&mut self.runs.lock(), watched, most);
    }
}

/// A registered watcher. Dropping it removes the registration.
pub(crate) struct WatcherRegistration<'a>(&'a Watched, &'a RunId);

impl Drop for WatcherRegistration<'_> {
    fn drop(&mut self) {
        let mut runs = self.0.runs.lock();
        if let Some(at) = runs.iter().position(|run| run == self.1) {
            runs.swap_remove(at);
        }
        self.0.told.notify_all();
    }
}
