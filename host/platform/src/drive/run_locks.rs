//! Locks of run ids: of several requests that start the same run, one goes on at a time.

use std::{collections::HashMap, sync::Arc};

use flowcell_contract::{RunId, Tenant};
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

type Lock = Arc<tokio::sync::Mutex<()>>;

/// The locks of the runs that are being started. Requests for different runs never wait for each other.
#[derive(Default)]
pub struct RunLocks(Mutex<HashMap<(Tenant, RunId), Lock>>);

/// The lock of a run, which others may take once this is dropped.
pub struct RunLock<'a> {
    locks: &'a RunLocks,
    id: (Tenant, RunId),
    /// `None` once this is dropped.
    lock: Option<Lock>,
    /// `None` while another request holds the lock.
    guard: Option<OwnedMutexGuard<()>>,
}

impl RunLocks {
    /// Waits until no other request holds the lock of this run, and takes it.
    pub async fn lock(&self, tenant: &Tenant, run: &RunId) -> RunLock<'_> {
        let id = (tenant.clone(), run.clone());
        let lock = self.0.lock().entry(id.clone()).or_default().clone();
        // A request that stops to wait drops this, too.
        let mut waiting = RunLock { locks: self, id, lock: Some(lock.clone()), guard: None };
        waiting.guard = Some(lock.lock_owned().await);
        waiting
    }
}

impl Drop for RunLock<'_> {
    fn drop(&mut self) {
        let mut locks = self.locks.0.lock();
        (self.guard, self.lock) = (None, None);
        // Only the map has it, so nobody holds it or waits.
        if locks.get(&self.id).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            locks.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn the_lock_of_a_run_waits_for_that_run_alone_and_leaves_nothing() {
        let locks = RunLocks::default();
        let lock = |tenant: &str, run: &str| {
            let (tenant, run) = (Tenant::from(tenant), RunId::from(run));
            let locks = &locks;
            async move { locks.lock(&tenant, &run).await }
        };
        let first = lock("a", "r").now_or_never();
        assert!(first.is_some());
        let others = [lock("a", "s").now_or_never(), lock("b", "r").now_or_never()];
        assert!(others.iter().all(Option::is_some));
        let mut second = Box::pin(lock("a", "r"));
        assert!(second.as_mut().now_or_never().is_none());
        // This request gives up while it waits.
        assert!(lock("a", "r").now_or_never().is_none());
        drop(first);
        let second = second.now_or_never();
        assert!(second.is_some());
        assert_eq!(locks.0.lock().len(), 3);
        drop((second, others));
        assert!(locks.0.lock().is_empty());
    }
}
