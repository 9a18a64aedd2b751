//! The claims of this process: the run trees that it may write to.
//!
//! A process claims a run and all runs below it together, by the row of the top run. A claim has an epoch, and writes
//! under it succeed only while the row has that epoch. A tree that another process has claimed since is lost: its
//! drivers stop, and a driver continues only after a new claim.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use flowcell_contract::{RunId, Tenant};
use parking_lot::Mutex;

use crate::ports::{Durable, Record};

/// The tenant and id of a run.
pub(super) type Key = (Tenant, RunId);

/// The claims of this process.
pub(super) struct Claims {
    held: Mutex<Held>,
    /// The leases of the present transaction of claims. They are valid once it is committed.
    unconfirmed: Mutex<Vec<TreeLease>>,
    /// True if this process writes to lost trees. Only for tests, which must detect it.
    unfenced: bool,
}

struct Held {
    /// The id of this process's row in the table of owners.
    owner: i64,
    /// The time at which the last renewal was requested.
    renewed: Instant,
    trees: HashMap<Key, Tree>,
    /// The top run of every known run.
    tops: HashMap<Key, Key>,
    /// The runs with a driver in this process.
    driven: HashSet<Key>,
}

/// A claimed run tree: a top run, and the runs below it.
struct Tree {
    epoch: i64,
    /// The row of the top run. `None`: the run is new.
    row: Option<i64>,
    lost: bool,
    /// Number of leases of the tree.
    leases: usize,
    /// True once a commit releases the tree.
    is_released: bool,
    /// The flows of the tree's runs.
    flows: HashSet<Arc<str>>,
    /// The drivers to stop when the tree is lost.
    drivers: Vec<Weak<Durable>>,
}

/// A lease of a tree.
#[derive(Clone, Debug)]
pub(super) struct TreeLease {
    pub(super) top: Key,
    pub(super) epoch: i64,
}

/// The condition of a write to a tree: the row of its top run still has this epoch.
#[derive(Clone, Debug)]
pub(super) struct Fence {
    pub(super) top: Key,
    pub(super) row: Option<i64>,
    pub(super) epoch: i64,
}

impl Claims {
    pub(super) fn new(owner: i64, renewed: Instant, unfenced: bool) -> Claims {
        let (trees, tops, driven) = (HashMap::new(), HashMap::new(), HashSet::new());
        Claims {
            held: Mutex::new(Held { owner, renewed, trees, tops, driven }),
            unconfirmed: Mutex::default(),
            unfenced,
        }
    }

    /// Returns whether writes to lost trees are refused.
    pub(super) fn fences(&self) -> bool {
        !self.unfenced
    }

    pub(super) fn owner(&self) -> i64 {
        self.held.lock().owner
    }

    /// Records a renewal of the lease that was requested at the time `asked`.
    pub(super) fn record_renewal(&self, owner: i64, asked: Instant) {
        let mut held = self.held.lock();
        held.owner = owner;
        held.renewed = asked;
    }

    /// Returns the time since the last renewal.
    pub(super) fn since_renewal(&self) -> Duration {
        self.held.lock().renewed.elapsed()
    }

    /// Records that a run has a driver. Returns `false` if the run already has one in this process.
    pub(super) fn add_driver(&self, run: &Key) -> bool {
        self.held.lock().driven.insert(run.clone())
    }

    /// Records that the driver of a run has stopped.
    pub(super) fn remove_driver(&self, run: &Key) {
        self.held.lock().driven.remove(run);
    }

    /// Adds a lease of a claimed tree, for one of its runs. Returns `None` if the tree is not claimed, or about to be
    /// released.
    pub(super) fn add_lease(&self, run: &Key, top: &Key) -> Option<TreeLease> {
        let mut held = self.held.lock();
        let tree = held.trees.get_mut(top).filter(|tree| tree.leases > 0 && !tree.lost)?;
        tree.leases += 1;
        let epoch = tree.epoch;
        held.tops.insert(run.clone(), top.clone());
        Some(TreeLease { top: top.clone(), epoch })
    }

    /// Returns the top run of a run, or the run itself if this process does not know its top run.
    pub(super) fn top(&self, run: &Key) -> Key {
        self.held.lock().tops.get(run).unwrap_or(run).clone()
    }

    /// Records the claim of a tree for one of its runs, with one lease.
    pub(super) fn record_claim(&self, run: &Key, top: &Key, row: Option<i64>, epoch: i64, flow: Option<Arc<str>>) {
        let mut held = self.held.lock();
        let (flows, drivers) = (flow.into_iter().collect(), Vec::new());
        held.tops.insert(run.clone(), top.clone());
        let tree = Tree { epoch, row, lost: false, leases: 1, is_released: false, flows, drivers };
        held.trees.insert(top.clone(), tree);
    }

    /// Records a lease of the present transaction of claims.
    pub(super) fn record_unconfirmed(&self, lease: &TreeLease) {
        self.unconfirmed.lock().push(lease.clone());
    }

    /// Returns the leases of the last transaction of claims, whose end is known now.
    pub(super) fn take_unconfirmed(&self) -> Vec<TreeLease> {
        std::mem::take(&mut self.unconfirmed.lock())
    }

    /// Records the end of a lease. Returns `true` if it was the last, so that the tree has to be released.
    pub(super) fn end_lease(&self, lease: &TreeLease) -> bool {
        let mut held = self.held.lock();
        let tree = held.trees.get_mut(&lease.top).filter(|tree| tree.epoch == lease.epoch);
        let Some(tree) = tree else { return false };
        tree.leases = tree.leases.saturating_sub(1);
        tree.leases == 0
    }

    /// Records that a commit with the release of a tree is durable. The tree stays if the commit did not release it,
    /// because it had a lease then.
    pub(super) fn record_release(&self, lease: &TreeLease) {
        let mut held = self.held.lock();
        if held.trees.get(&lease.top).is_some_and(|tree| tree.epoch == lease.epoch && tree.is_released) {
            held.trees.remove(&lease.top);
            held.tops.retain(|_, other| *other != lease.top);
        }
    }

    /// Records the flow of a run and the top run of its tree.
    pub(super) fn record_run(&self, run: &Key, record: &Record) {
        let mut held = self.held.lock();
        let top = match &record.parent {
            None => run.clone(),
            Some(parent) => {
                let parent = (run.0.clone(), parent.clone());
                held.tops.get(&parent).unwrap_or(&parent).clone()
            }
        };
        if let Some(tree) = held.trees.get_mut(&top) {
            tree.flows.insert(record.flow.clone());
            held.tops.insert(run.clone(), top);
        }
    }

    /// Returns the condition of a write to a run, and remembers the driver, which stops when the run is lost. `None`:
    /// the run is lost.
    pub(super) fn fence(&self, run: &Key, driver: &Arc<Durable>) -> Option<Fence> {
        let mut held = self.held.lock();
        let top = held.tops.get(run).unwrap_or(run).clone();
        let tree = held.trees.get_mut(&top).filter(|tree| !tree.lost)?;
        if !tree.drivers.iter().any(|known| known.as_ptr() == Arc::as_ptr(driver)) {
            tree.drivers.retain(|known| known.strong_count() > 0);
            tree.drivers.push(Arc::downgrade(driver));
        }
        Some(Fence { top, row: tree.row, epoch: tree.epoch })
    }

    /// Records the row of a new top run.
    pub(super) fn set_row(&self, top: &Key, row: i64) {
        if let Some(tree) = self.held.lock().trees.get_mut(top) {
            tree.row = Some(row);
        }
    }

    /// Begins the release of a tree in a commit. Returns the row of its top run. `None`: the tree was claimed again
    /// meanwhile, or the top run has no row.
    pub(super) fn release(&self, lease: &TreeLease) -> Option<i64> {
        let mut held = self.held.lock();
        let tree = held.trees.get_mut(&lease.top).filter(|tree| tree.epoch == lease.epoch && tree.leases == 0)?;
        tree.is_released = true;
        tree.row
    }

    /// Gives up a tree, and stops its drivers.
    pub(super) fn lose(&self, top: &Key) {
        self.lose_those(|key, _| key == top);
    }

    /// Gives up all trees that this process has claimed.
    pub(super) fn lose_all(&self) {
        self.lose_those(|_, _| true);
    }

    /// Gives up the trees with runs of a flow, because the runs may have read state that was not written. Returns true
    /// if there were such trees.
    pub(super) fn lose_flow(&self, tenant: &Tenant, flow: &str) -> bool {
        self.lose_those(|key, flows| key.0 == *tenant && flows.contains(flow))
    }

    fn lose_those(&self, which: impl Fn(&Key, &HashSet<Arc<str>>) -> bool) -> bool {
        let mut any = false;
        if self.unfenced {
            return false;
        }
        for (key, tree) in &mut self.held.lock().trees {
            if !tree.lost && which(key, &tree.flows) {
                (tree.lost, any) = (true, true);
                tracing::warn!(run = %key.1, "another process may drive the run now: this process stops driving it");
                tree.drivers.drain(..).filter_map(|driver| driver.upgrade()).for_each(|driver| driver.refuse());
            }
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_whose_last_lease_ends_during_a_commit_is_released_by_the_next_one() {
        let run: Key = (Tenant::local(), "r".into());
        let claims = Claims::new(1, Instant::now(), false);
        let lease = TreeLease { top: run.clone(), epoch: 2 };
        // The first claim is rolled back, so the second one has the same epoch.
        claims.record_claim(&run, &run, Some(7), lease.epoch, None);
        assert!(claims.end_lease(&lease));
        claims.record_claim(&run, &run, Some(7), lease.epoch, None);
        // The commit with the release of the first claim begins before the lease ends, and ends after it.
        assert_eq!(claims.release(&lease), None);
        assert!(claims.end_lease(&lease));
        claims.record_release(&lease);
        assert_eq!(claims.release(&lease), Some(7), "the row keeps its owner");
        claims.record_release(&lease);
        assert_eq!((claims.release(&lease), claims.add_lease(&run, &run).is_some()), (None, false));
    }
}
