//! Who is watched by whom: a process that ends tells those first who watch from another one.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use flowcell_contract::RunId;

/// The runs that others watch, each as often as it is watched.
#[derive(Default)]
pub(crate) struct Watched {
    runs: Mutex<Vec<RunId>>,
    told: Condvar,
}

impl Watched {
    fn runs(&self) -> MutexGuard<'_, Vec<RunId>> {
        // A panic while the lock was held cannot have left the list half changed.
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody watches a run from now on.
    pub(crate) fn begin<'a>(&'a self, run: &'a RunId) -> Watching<'a> {
        self.runs().push(run.clone());
        Watching(self, run)
    }

    /// Waits until those who watch a run that has ended were told so, or the time is up.
    pub(crate) fn wait(&self, run: &RunId, most: Duration) {
        let watched = |runs: &mut Vec<RunId>| runs.contains(run);
        drop(self.told.wait_timeout_while(self.runs(), most, watched));
    }
}

/// One who watches, until this is dropped.
pub(crate) struct Watching<'a>(&'a Watched, &'a RunId);

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        let mut runs = self.0.runs();
        if let Some(at) = runs.iter().position(|run| run == self.1) {
            runs.swap_remove(at);
        }
        self.0.told.notify_all();
    }
}
