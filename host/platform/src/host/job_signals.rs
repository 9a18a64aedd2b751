//! The signals between the parts of a process that handle jobs.

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

/// The signals between the parts of a process that handle jobs.
#[derive(Default)]
pub(crate) struct JobSignals {
    changed: Notify,
    creating: Mutex<()>,
}

impl JobSignals {
    /// Returns the signal that jobs were created or changed. It wakes the worker of jobs.
    pub(crate) fn changed(&self) -> &Notify {
        &self.changed
    }

    /// Waits until no other thread of this process creates a job, and locks the creation until the guard is dropped. A
    /// creation counts the jobs of the tenant first.
    pub(crate) fn lock_creation(&self) -> MutexGuard<'_, ()> {
        self.creating.lock()
    }
}
