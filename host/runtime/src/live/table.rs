//! Counts driven runs by tenant and tree, and decides which waiting run gets a free permit.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
};

use flowcell_contract::{Failure, RunId, Tenant, code};
use tokio::sync::oneshot;

use crate::limits::{MAX_DEPTH, MAX_LIVE_CHILDREN, MAX_TREE_CHILDREN, MAX_TREE_RUNS};

/// Identifies a driven run.
pub(super) type Key = u64;
/// The order of waiting runs: the deepest first, then the one that came first.
pub(super) type Order = (Reverse<u32>, u64);

const SPARE_PERMITS: u64 = MAX_DEPTH as u64;

/// All driven and waiting runs of a process.
#[derive(Default)]
pub(super) struct Table {
    runs: HashMap<Key, Live>,
    ids: HashMap<(Tenant, RunId), Key>,
    tenants: HashMap<Tenant, Share>,
    children: u64,
    waiting: u64,
    next: u64,
}

/// A driven run, with its counts.
struct Live {
    tenant: Tenant,
    run: RunId,
    /// The root of the run's tree.
    tree: Key,
    parent: Option<Key>,
    depth: u32,
    /// Number of driven runs that the run called.
    below: u32,
    /// Number of runs that the run called and that wait for a permit.
    waiting: u32,
    idle: bool,
    spare: bool,
}

impl Live {
    /// Returns true if the run can end without a further permit: it is not idle, and no run below it is driven or
    /// waits.
    fn may_end(&self) -> bool {
        self.below == 0 && self.waiting == 0 && !self.idle
    }
}

/// The runs of a tenant, and their counts.
#[derive(Default)]
struct Share {
    most: Option<u64>,
    runs: u64,
    children: u64,
    spare: u64,
    /// Number of runs that can end without a further permit.
    free: u64,
    trees: HashMap<Key, Tree>,
}

/// The runs of a tree, and their counts.
#[derive(Default)]
struct Tree {
    runs: u64,
    children: u64,
    /// Number of children that got a permit since the root began or was resumed.
    begun: u64,
    /// Number of runs that can end without a further permit.
    free: u64,
    waiting: BTreeMap<Order, Waiter>,
}

struct Waiter {
    parent: Key,
    run: RunId,
    give: oneshot::Sender<Result<Key, Failure>>,
}

impl Share {
    /// Returns true if the tenant's limit leaves a permit. Unless the caller may use the spare permits, some stay
    /// reserved: [`SPARE_PERMITS`], but at most half of the limit.
    fn has_free_permit(&self, may_use_spare: bool) -> bool {
        let kept = |most: u64| if may_use_spare { 0 } else { SPARE_PERMITS.min(most / 2) };
        self.most.is_none_or(|most| self.runs < most - kept(most))
    }

    fn may_take(&self, tree: &Tree, all: u64) -> bool {
        // A tenant gets a permit only if afterwards more permits are free than it held. The first few are always
        // allowed.
        let is_fair = self.children < SPARE_PERMITS || self.children < MAX_LIVE_CHILDREN.saturating_sub(all + 1);
        tree.children < MAX_TREE_CHILDREN && is_fair && self.has_free_permit(false)
    }

    fn may_take_spare(&self) -> bool {
        self.spare < SPARE_PERMITS && self.has_free_permit(true)
    }

    fn deepest(&self) -> Option<(Key, Order)> {
        let first = |(key, tree): (&Key, &Tree)| tree.waiting.keys().next().map(|order| (*key, *order));
        self.trees.iter().filter_map(first).min_by_key(|(_, order)| *order)
    }

    /// Returns the waiting run that can only get a spare permit, if the tenant is stuck. A tenant is stuck if none of
    /// its runs can end, because each waits for runs below it or is idle. A tree with the maximum number of children is
    /// stuck under the same condition.
    fn stuck(&self) -> Option<(Key, Order)> {
        if self.free == 0 {
            return self.deepest();
        }
        let stuck = |tree: &&Tree| tree.free == 0 && tree.children >= MAX_TREE_CHILDREN;
        let mut trees = self.trees.iter().filter(|(_, tree)| stuck(tree));
        trees.find_map(|(key, tree)| tree.waiting.keys().next().map(|order| (*key, *order)))
    }
}

impl Table {
    pub(super) fn set_limit(&mut self, tenant: &Tenant, most: Option<u64>) {
        if most.is_some() || self.tenants.contains_key(tenant) {
            self.tenants.entry(tenant.clone()).or_default().most = most;
            self.forget(tenant);
        }
    }

    pub(super) fn children(&self, tenant: &Tenant) -> u64 {
        self.tenants.get(tenant).map_or(0, |share| share.children)
    }

    pub(super) fn all_children(&self) -> u64 {
        self.children
    }

    pub(super) fn find(&self, tenant: &Tenant, run: &RunId) -> Option<Key> {
        self.ids.get(&(tenant.clone(), run.clone())).copied()
    }

    /// Adds the root of a tree.
    pub(super) fn enter(&mut self, tenant: &Tenant, run: &RunId) -> Key {
        let tree = self.next;
        self.add(Live {
            tenant: tenant.clone(),
            run: run.clone(),
            tree,
            parent: None,
            depth: 0,
            below: 0,
            waiting: 0,
            idle: false,
            spare: false,
        })
    }

    fn add(&mut self, live: Live) -> Key {
        let key = self.next;
        self.next += 1;
        let share = self.tenants.entry(live.tenant.clone()).or_default();
        let tree = share.trees.entry(live.tree).or_default();
        (share.runs, tree.runs) = (share.runs + 1, tree.runs + 1);
        (share.free, tree.free) = (share.free + 1, tree.free + 1);
        if live.parent.is_some() {
            self.children += 1;
            share.children += 1;
            tree.children += 1;
            tree.begun += 1;
        }
        share.spare += u64::from(live.spare);
        self.ids.insert((live.tenant.clone(), live.run.clone()), key);
        self.runs.insert(key, live);
        key
    }

    /// Adds a run that waits for a permit below a parent. Returns its position in the queue, or `None` if it will get
    /// no permit.
    pub(super) fn enqueue(
        &mut self,
        parent: Key,
        run: &RunId,
        give: oneshot::Sender<Result<Key, Failure>>,
    ) -> Option<(Key, Order)> {
        let (tenant, tree, depth) = self.runs.get(&parent).map(|live| (live.tenant.clone(), live.tree, live.depth))?;
        let order = (Reverse(depth + 1), self.next);
        self.next += 1;
        let waits = self.tenants.get_mut(&tenant)?.trees.get_mut(&tree)?;
        if waits.begun + waits.waiting.len() as u64 >= MAX_TREE_RUNS {
            _ = give.send(Err(too_many_runs_failure(run)));
            return None;
        }
        waits.waiting.insert(order, Waiter { parent, run: run.clone(), give });
        self.waiting += 1;
        self.update(parent, |live| live.waiting += 1);
        Some((parent, order))
    }

    /// Removes a waiting run.
    pub(super) fn remove_waiter(&mut self, parent: Key, order: Order) {
        let Some(live) = self.runs.get(&parent) else { return };
        let (tenant, tree) = (live.tenant.clone(), live.tree);
        self.take_waiter(&tenant, tree, order);
    }

    pub(super) fn set_idle(&mut self, key: Key, idle: bool) {
        self.update(key, |live| live.idle = idle);
    }

    /// Removes a driven run, which frees its permit.
    pub(super) fn remove_run(&mut self, key: Key) {
        self.update(key, |live| live.idle = true);
        let Some(live) = self.runs.remove(&key) else { return };
        let id = (live.tenant.clone(), live.run.clone());
        if self.ids.get(&id) == Some(&key) {
            self.ids.remove(&id);
        }
        if let Some(share) = self.tenants.get_mut(&live.tenant) {
            share.runs -= 1;
            share.spare -= u64::from(live.spare);
            let child = u64::from(live.parent.is_some());
            self.children -= child;
            share.children -= child;
            if let Some(tree) = share.trees.get_mut(&live.tree) {
                (tree.runs, tree.children) = (tree.runs - 1, tree.children - child);
                // The child runs of a removed run no longer need permits.
                let gone: Vec<_> =
                    tree.waiting.iter().filter(|(_, waiter)| waiter.parent == key).map(|(order, _)| *order).collect();
                self.waiting -= gone.len() as u64;
                gone.iter().for_each(|order| _ = tree.waiting.remove(order));
                if tree.runs == 0 {
                    share.trees.remove(&live.tree);
                }
            }
        }
        if let Some(parent) = live.parent {
            self.update(parent, |live| live.below -= 1);
        }
        self.forget(&live.tenant);
    }

    /// Changes a run. Then updates `free` of its tenant and its tree, if the change decides whether the run can end
    /// without a further permit.
    fn update(&mut self, key: Key, change: impl FnOnce(&mut Live)) {
        let Some(live) = self.runs.get_mut(&key) else { return };
        let before = live.may_end();
        change(live);
        let after = live.may_end();
        if before == after {
            return;
        }
        let Some(share) = self.tenants.get_mut(&live.tenant) else { return };
        let tree = share.trees.get_mut(&live.tree).map(|tree| &mut tree.free);
        for free in [Some(&mut share.free), tree].into_iter().flatten() {
            *free = if after { *free + 1 } else { *free - 1 };
        }
    }

    fn take_waiter(&mut self, tenant: &Tenant, tree: Key, order: Order) -> Option<Waiter> {
        let waiter = self.tenants.get_mut(tenant)?.trees.get_mut(&tree)?.waiting.remove(&order)?;
        self.waiting -= 1;
        self.update(waiter.parent, |live| live.waiting -= 1);
        Some(waiter)
    }

    /// Gives free permits to waiting runs, as long as the limits allow it.
    pub(super) fn settle(&mut self) {
        while self.waiting > 0 {
            if let Some((tenant, tree, order)) = self.next_waiter() {
                self.give(&tenant, tree, order, false);
            } else if let Some((tenant, (tree, order))) = self.next_stuck() {
                match self.tenants.get(&tenant).is_some_and(Share::may_take_spare) {
                    true => self.give(&tenant, tree, order, true),
                    false => self.refuse(&tenant, tree, order),
                }
            } else {
                return;
            }
        }
    }

    /// Returns the waiting run that gets the next free permit: in the tenant with the fewest children, in that tenant's
    /// tree with the fewest children, the deepest run, and among runs of one depth the first that came.
    fn next_waiter(&self) -> Option<(Tenant, Key, Order)> {
        let mut best: Option<((u64, u64, Order), &Tenant, Key)> = None;
        for (tenant, share) in &self.tenants {
            for (key, tree) in &share.trees {
                let Some(order) = tree.waiting.keys().next() else { continue };
                let rank = (share.children, tree.children, *order);
                if share.may_take(tree, self.children) && best.as_ref().is_none_or(|(least, ..)| rank < *least) {
                    best = Some((rank, tenant, *key));
                }
            }
        }
        best.map(|((.., order), tenant, key)| (tenant.clone(), key, order))
    }

    fn next_stuck(&self) -> Option<(Tenant, (Key, Order))> {
        self.tenants.iter().find_map(|(tenant, share)| Some((tenant.clone(), share.stuck()?)))
    }

    fn give(&mut self, tenant: &Tenant, tree: Key, order: Order, spare: bool) {
        let Some(Waiter { parent, run, give }) = self.take_waiter(tenant, tree, order) else { return };
        let (tenant, parent_key) = (tenant.clone(), Some(parent));
        let depth = order.0.0;
        let (below, waiting, idle) = (0, 0, false);
        let key = self.add(Live { tenant, run, tree, parent: parent_key, depth, below, waiting, idle, spare });
        self.update(parent, |live| live.below += 1);
        if give.send(Ok(key)).is_err() {
            self.remove_run(key);
        }
    }

    fn refuse(&mut self, tenant: &Tenant, tree: Key, order: Order) {
        let Some(share) = self.tenants.get(tenant) else { return };
        let most = share.most.filter(|_| !share.has_free_permit(true));
        let Some(Waiter { run, give, .. }) = self.take_waiter(tenant, tree, order) else { return };
        // The receiver is dropped if the caller no longer wants the run.
        _ = give.send(Err(no_permit_failure(&run, most)));
    }

    /// Forgets a tenant without runs and without a limit.
    fn forget(&mut self, tenant: &Tenant) {
        if self.tenants.get(tenant).is_some_and(|share| share.trees.is_empty() && share.most.is_none()) {
            self.tenants.remove(tenant);
        }
    }
}

fn no_permit_failure(run: &RunId, most: Option<u64>) -> Failure {
    match most {
        Some(most) => Failure::new(
            code::QUOTA_EXCEEDED,
            format!(
                "the run `{run}` cannot begin: all {most} runs that the tenant may have at a time (`maxLiveRuns`) \
                 wait for runs that they call; ask the operator for more, or call fewer flows"
            ),
        ),
        None => Failure::new(
            code::TOO_MANY_CHILDREN,
            format!(
                "the run `{run}` cannot begin: a run may have {MAX_TREE_CHILDREN} called runs at a time, all tenants \
                 together {MAX_LIVE_CHILDREN}, and all of them wait for runs that they call; call fewer flows at a \
                 time"
            ),
        ),
    }
}

fn too_many_runs_failure(run: &RunId) -> Failure {
    let message = format!(
        "the run `{run}` cannot begin: the same run has already called {MAX_TREE_RUNS} runs; split the work into \
         several runs"
    );
    Failure::new(code::TOO_MANY_CHILDREN, message)
}
