//! Which runs this process may write to: those whose trees it has claimed.
//!
//! A run and all runs below it are claimed together, by the row of the run that a person began. A claim has an epoch, and
//! whatever is written under it is written only while the row still has that epoch. What has been taken by somebody else is
//! lost for good: its driver stops, and goes on, if at all, from a new claim.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use flowcell_contract::{RunId, Tenant};
use parking_lot::Mutex;

use crate::ports::{Durable, Record};

/// A run.
pub(super) type Key = (Tenant, RunId);

/// What this process has claimed.
pub(super) struct Claims {
    held: Mutex<Held>,
    /// What is lost is written all the same. For tests, which must notice.
    unfenced: bool,
}

struct Held {
    /// The row of this process among the owners.
    owner: i64,
    /// Before the last renewal was asked for.
    renewed: Instant,
    trees: HashMap<Key, Tree>,
    /// The top of every run that is known.
    tops: HashMap<Key, Key>,
    /// Runs that somebody in this process drives.
    driven: HashSet<Key>,
}

/// A run that a person began, and those below it.
struct Tree {
    epoch: i64,
    /// The row of the run; none: there is none yet.
    row: Option<i64>,
    lost: bool,
    /// How many leases there are.
    leases: usize,
    /// Of which flows its runs are.
    flows: HashSet<Arc<str>>,
    /// Who is told when it is lost.
    drivers: Vec<Weak<Durable>>,
}

/// A lease of a tree.
#[derive(Clone, Debug)]
pub(super) struct Grant {
    pub(super) top: Key,
    pub(super) epoch: i64,
}

/// What may be written.
#[derive(Clone, Debug)]
pub(super) struct Fence {
    pub(super) top: Key,
    pub(super) row: Option<i64>,
    pub(super) epoch: i64,
}

impl Claims {
    pub(super) fn new(owner: i64, renewed: Instant, unfenced: bool) -> Claims {
        let (trees, tops, driven) = (HashMap::new(), HashMap::new(), HashSet::new());
        Claims { held: Mutex::new(Held { owner, renewed, trees, tops, driven }), unfenced }
    }

    /// Whether what is lost is not written.
    pub(super) fn fences(&self) -> bool {
        !self.unfenced
    }

    pub(super) fn owner(&self) -> i64 {
        self.held.lock().owner
    }

    /// The lease was renewed, as it was asked for at this time.
    pub(super) fn renewed(&self, owner: i64, asked: Instant) {
        let mut held = self.held.lock();
        held.owner = owner;
        held.renewed = asked;
    }

    /// How long ago the lease was renewed.
    pub(super) fn age(&self) -> Duration {
        self.held.lock().renewed.elapsed()
    }

    /// Begins to drive a run. False: somebody in this process does already.
    pub(super) fn drive(&self, run: &Key) -> bool {
        self.held.lock().driven.insert(run.clone())
    }

    /// Nobody in this process drives the run any more.
    pub(super) fn stop(&self, run: &Key) {
        self.held.lock().driven.remove(run);
    }

    /// Takes one more lease of a tree that is held; none: it is not, or is about to be released.
    pub(super) fn join(&self, run: &Key, top: &Key) -> Option<Grant> {
        let mut held = self.held.lock();
        let tree = held.trees.get_mut(top).filter(|tree| tree.leases > 0 && !tree.lost)?;
        tree.leases += 1;
        let epoch = tree.epoch;
        held.tops.insert(run.clone(), top.clone());
        Some(Grant { top: top.clone(), epoch })
    }

    /// The tree of a run, as far as it is known.
    pub(super) fn top(&self, run: &Key) -> Key {
        self.held.lock().tops.get(run).unwrap_or(run).clone()
    }

    /// A tree was claimed, for a run of it; it has one lease.
    pub(super) fn claimed(&self, run: &Key, top: &Key, row: Option<i64>, epoch: i64, flow: Option<Arc<str>>) {
        let mut held = self.held.lock();
        let flows = flow.into_iter().collect();
        held.tops.insert(run.clone(), top.clone());
        held.trees.insert(top.clone(), Tree { epoch, row, lost: false, leases: 1, flows, drivers: Vec::new() });
    }

    /// A lease ends. True: it was the last, and the tree is to be released.
    pub(super) fn leave(&self, grant: &Grant) -> bool {
        let mut held = self.held.lock();
        let tree = held.trees.get_mut(&grant.top).filter(|tree| tree.epoch == grant.epoch);
        let Some(tree) = tree else { return false };
        tree.leases = tree.leases.saturating_sub(1);
        tree.leases == 0
    }

    /// The tree is released: nothing is written to it any more.
    pub(super) fn released(&self, grant: &Grant) {
        let mut held = self.held.lock();
        if held.trees.get(&grant.top).is_some_and(|tree| tree.epoch == grant.epoch && tree.leases == 0) {
            held.trees.remove(&grant.top);
            held.tops.retain(|_, other| *other != grant.top);
        }
    }

    /// A run is known by its record: of which flow it is, and below which run.
    pub(super) fn note(&self, run: &Key, record: &Record) {
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

    /// What is written to a run is written only if this holds; none: it is not written.
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

    /// The row of a new run.
    pub(super) fn has_row(&self, top: &Key, row: i64) {
        if let Some(tree) = self.held.lock().trees.get_mut(top) {
            tree.row = Some(row);
        }
    }

    /// The row of a tree, while it is held by this lease.
    pub(super) fn row(&self, grant: &Grant) -> Option<i64> {
        let held = self.held.lock();
        held.trees.get(&grant.top).filter(|tree| tree.epoch == grant.epoch)?.row
    }

    /// Gives up a tree.
    pub(super) fn lose(&self, top: &Key) {
        self.lose_those(|key, _| key == top);
    }

    /// Gives up everything.
    pub(super) fn lose_all(&self) {
        self.lose_those(|_, _| true);
    }

    /// Gives up the trees in which there are runs of a flow: they may have seen what was not written. Answers whether
    /// there were any.
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
                tracing::warn!(run = %key.1, "somebody else may drive the run now: this process stops driving it");
                tree.drivers.drain(..).filter_map(|driver| driver.upgrade()).for_each(|driver| driver.refuse());
            }
        }
        any
    }
}
