//! The runs that a process drives, and permits for their child runs.
//!
//! Each driven run holds a [`LivePermit`]. A run that no other run called (the root of a tree) always gets one: the
//! code that starts roots limits their number. A run that another run called, as a sub-flow or as a tool, waits for a
//! permit. Waiting takes a few hundred bytes: before the permit is free, the flow is not loaded and nothing is
//! recorded.
//!
//! | limit | scope | failure |
//! |---|---|---|
//! | [`MAX_TREE_CHILDREN`] | runs below one root at a time | [`code::TOO_MANY_CHILDREN`] |
//! | [`MAX_TREE_RUNS`] | all runs below one root since the root began or was last resumed | [`code::TOO_MANY_CHILDREN`] |
//! | [`MAX_LIVE_CHILDREN`] | runs below roots at a time, shared by tenants | [`code::TOO_MANY_CHILDREN`] |
//! | [`LiveRuns::set_limit`] | driven runs of a tenant, roots included | [`code::QUOTA_EXCEEDED`] |
//!
//! **Fairness.** A free permit goes to the tenant with the fewest children. Within the tenant it goes to the tree
//! with the fewest children, then to the deepest run, then to the run that has waited longest.
//!
//! **No deadlock.** A run cannot end before the runs below it have ended. Suppose that every driven run of a tenant
//! (or tree) has a run below it, waits for a permit for one, or is idle. Then no permit becomes free by itself, and
//! the deepest waiting run gets one of [`MAX_DEPTH`] spare permits, so that one branch reaches its end. If a limit
//! leaves no spare permit, that run fails.

mod table;
#[cfg(test)]
mod tests;

use std::{
    collections::HashSet,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use flowcell_contract::{Failure, RunId, Tenant, code};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use self::table::{Key, Order, Table};
#[cfg(doc)]
use crate::limits::{MAX_DEPTH, MAX_LIVE_CHILDREN, MAX_TREE_CHILDREN, MAX_TREE_RUNS};

/// The runs that a process drives.
#[derive(Default)]
pub struct LiveRuns {
    table: Mutex<Table>,
    starting: Mutex<Vec<(u64, Tenant, RunId)>>,
}

impl LiveRuns {
    /// Limits the driven runs of a tenant, children included. `None` removes the limit.
    pub fn set_limit(&self, tenant: &Tenant, most: Option<u32>) {
        self.change(|table| table.set_limit(tenant, most.map(u64::from)));
    }

    /// Returns the number of a tenant's driven runs that other runs called.
    pub fn children(&self, tenant: &Tenant) -> u64 {
        self.table.lock().children(tenant)
    }

    /// Returns the number of driven runs of all tenants that other runs called.
    pub fn all_children(&self) -> u64 {
        self.table.lock().all_children()
    }

    /// Returns a permit for a run without waiting. The run is the root of a tree, or a run below a root that is
    /// driven only to end it.
    pub(crate) fn enter(self: &Arc<LiveRuns>, tenant: &Tenant, run: &RunId) -> LivePermit {
        let key = self.table.lock().enter(tenant, run);
        LivePermit { live: self.clone(), key, idle: false }
    }

    /// Requests a permit for a run below the run `parent`. The returned future waits for it. If this process does not
    /// drive the parent, the run counts as a root and gets its permit at once.
    pub(crate) fn enter_below(self: &Arc<LiveRuns>, tenant: &Tenant, parent: &RunId, run: &RunId) -> Waiting {
        let parent = self.table.lock().find(tenant, parent);
        match parent {
            Some(parent) => self.enqueue(parent, run),
            None => Waiting {
                live: self.clone(),
                queue_position: None,
                answer: Answer::Now(Some(Ok(self.enter(tenant, run)))),
            },
        }
    }

    fn enqueue(self: &Arc<LiveRuns>, parent: Key, run: &RunId) -> Waiting {
        let (give, answer) = oneshot::channel();
        let queue_position = self.change(|table| table.enqueue(parent, run, give));
        Waiting { live: self.clone(), queue_position, answer: Answer::Later(answer) }
    }

    /// Counts a run as started until the caller drops the returned value. The caller keeps the value from the check
    /// of a quota until a store lists the run.
    pub fn start(self: &Arc<LiveRuns>, tenant: &Tenant, run: &RunId) -> Starting {
        let mut starting = self.starting.lock();
        let number = starting.last().map_or(0, |(last, ..)| last + 1);
        starting.push((number, tenant.clone(), run.clone()));
        Starting { live: self.clone(), number }
    }

    /// Changes the table, and grants the permits that this frees.
    fn change<T>(self: &LiveRuns, change: impl FnOnce(&mut Table) -> T) -> T {
        let mut table = self.table.lock();
        let changed = change(&mut table);
        table.settle();
        changed
    }
}

/// The permit of a driven run. Dropping it frees the permit.
pub(crate) struct LivePermit {
    live: Arc<LiveRuns>,
    key: Key,
    idle: bool,
}

impl LivePermit {
    /// Requests a permit for a run that this run calls. The returned future waits for it.
    pub(crate) fn request_below(&self, run: &RunId) -> Waiting {
        self.live.enqueue(self.key, run)
    }

    /// Sets whether the run is idle: only people, events or timers continue it.
    pub(crate) fn set_idle(&mut self, idle: bool) {
        if self.idle != idle {
            self.idle = idle;
            self.live.change(|table| table.set_idle(self.key, idle));
        }
    }
}

impl Drop for LivePermit {
    fn drop(&mut self) {
        self.live.change(|table| table.remove_run(self.key));
    }
}

/// A run that waits for a permit: a future of the permit, or of the failure if there will be none. Dropping it ends
/// the wait.
pub(crate) struct Waiting {
    live: Arc<LiveRuns>,
    /// The run's position in the queue: its parent, and its order among the waiting runs. `None`: the run does not
    /// wait.
    queue_position: Option<(Key, Order)>,
    answer: Answer,
}

enum Answer {
    Now(Option<Result<LivePermit, Failure>>),
    Later(oneshot::Receiver<Result<Key, Failure>>),
}

impl Future for Waiting {
    type Output = Result<LivePermit, Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<LivePermit, Failure>> {
        let lost = || Err(Failure::retryable(code::LOST_WORKER, "the run's parent is no longer driven"));
        let live = self.live.clone();
        match &mut self.answer {
            Answer::Now(permit) => Poll::Ready(permit.take().unwrap_or_else(lost)),
            Answer::Later(answer) => Pin::new(answer).poll(context).map(|answer| {
                self.queue_position = None;
                let permit = |key| LivePermit { live, key, idle: false };
                answer.map_or_else(|_| lost(), |key| key.map(permit))
            }),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Some((tree, order)) = self.queue_position else { return };
        let Answer::Later(answer) = &mut self.answer else { return };
        answer.close();
        let granted = answer.try_recv().ok().and_then(Result::ok);
        self.live.change(|table| {
            table.remove_waiter(tree, order);
            if let Some(key) = granted {
                table.remove_run(key);
            }
        });
    }
}

/// A run that was started and that the store may not list yet.
pub struct Starting {
    live: Arc<LiveRuns>,
    number: u64,
}

impl Starting {
    /// Returns the runs of the same tenant that were started before this one and that the store may not list yet.
    pub fn before(&self) -> HashSet<RunId> {
        let starting = self.live.starting.lock();
        let tenant = starting.iter().find(|(number, ..)| *number == self.number).map(|(_, tenant, _)| tenant);
        let before = starting.iter().filter(|(number, of, _)| *number < self.number && Some(of) == tenant);
        before.map(|(.., run)| run.clone()).collect()
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.live.starting.lock().retain(|(number, ..)| *number != self.number);
    }
}
