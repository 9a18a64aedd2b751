//! Resources that tenants share fairly, such as instances and bytes of memory.
//!
//! A tenant that holds nothing may take all that is free. A tenant that holds some units may take more only if it then
//! holds no more units than are still free. So a single tenant that takes unit by unit gets a half, and two get a
//! third each. A new tenant can start at once.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use flowcell_contract::Tenant;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// A pool of a resource that tenants share. A clone is another handle to the same pool.
#[derive(Clone)]
pub struct FairSemaphore(Arc<Mutex<Taken>>);

struct Taken {
    free: u64,
    /// The number of amounts that were taken.
    turns: u64,
    by: HashMap<Tenant, Share>,
}

#[derive(Default)]
struct Share {
    held: u64,
    /// The number of the turn in which the tenant took its last amount.
    last_turn: u64,
    /// The maximum that the tenant may hold, even if more is free. `None`: only the fair share applies. A tenant that
    /// holds nothing may exceed this maximum with its first amount.
    bound: Option<u64>,
    waiting: VecDeque<(u64, oneshot::Sender<Permit>)>,
}

/// A part of a pool that one tenant holds. Dropping it returns the part to the pool.
pub struct Permit {
    semaphore: FairSemaphore,
    tenant: Tenant,
    amount: u64,
}

impl FairSemaphore {
    /// Creates a pool of this size.
    pub fn new(size: u64) -> FairSemaphore {
        FairSemaphore(Arc::new(Mutex::new(Taken { free: size, turns: 0, by: HashMap::new() })))
    }

    /// Sets the maximum that a tenant may hold. `None` leaves only the fair share.
    pub fn set_bound(&self, tenant: &Tenant, most: Option<u64>) {
        let mut taken = self.0.lock();
        if most.is_some() || taken.by.contains_key(tenant) {
            taken.by.entry(tenant.clone()).or_default().bound = most;
        }
        taken.forget(tenant);
    }

    /// Takes `amount` units now. Returns `None` if the tenant may not take them.
    pub fn try_take(&self, tenant: &Tenant, amount: u64) -> Option<Permit> {
        self.0.lock().take(tenant, amount, fits).then(|| self.permit(tenant, amount))
    }

    /// Returns the amount that all tenants hold together.
    pub fn taken(&self) -> u64 {
        self.0.lock().by.values().map(|share| share.held).sum()
    }

    /// Returns how many further units the tenant may take now if it takes them one by one.
    pub fn available(&self, tenant: &Tenant) -> u64 {
        let taken = self.0.lock();
        let (held, bound) = taken.held_and_bound(tenant);
        let fair = taken.free.saturating_sub(held) / 2;
        let left = bound.map_or(fair, |bound| fair.min(bound.saturating_sub(held)));
        if held == 0 { left.max(taken.free.min(1)) } else { left }
    }

    /// Waits until the tenant may have this amount, and takes it. Waiting callers of one tenant are served in order.
    pub async fn take(&self, tenant: &Tenant, amount: u64) -> Permit {
        let waits = {
            let mut taken = self.0.lock();
            let has_waiting = taken.by.get(tenant).is_some_and(|share| !share.waiting.is_empty());
            if !has_waiting && taken.take(tenant, amount, fits_later) {
                return self.permit(tenant, amount);
            }
            let (give, waits) = oneshot::channel();
            taken.by.entry(tenant.clone()).or_default().waiting.push_back((amount, give));
            waits
        };
        match waits.await {
            Ok(held) => held,
            // This cannot happen: the caller holds the pool, and the pool serves every waiting caller.
            Err(_) => std::future::pending().await,
        }
    }

    fn permit(&self, tenant: &Tenant, amount: u64) -> Permit {
        Permit { semaphore: self.clone(), tenant: tenant.clone(), amount }
    }

    /// Serves waiting callers until no waiting caller may take its amount.
    fn serve_waiting(&self) {
        // A caller that stopped waiting returns its part here. That takes the lock again, so it happens after the loop.
        let mut gone = Vec::new();
        {
            let mut taken = self.0.lock();
            while let Some((tenant, amount, give)) = taken.pop_waiting() {
                gone.extend(give.send(self.permit(&tenant, amount)).err());
            }
        }
        drop(gone);
    }
}

impl Permit {
    /// Takes `by` more units if the tenant may have them. Returns false if it took none.
    pub(crate) fn grow(&mut self, by: u64) -> bool {
        let grown = self.semaphore.0.lock().take(&self.tenant, by, fits);
        self.amount += if grown { by } else { 0 };
        grown
    }

    /// Returns the units beyond the first `to` units to the pool.
    pub fn shrink(&mut self, to: u64) {
        let more = self.amount.saturating_sub(to);
        self.amount -= more;
        self.give_back(more);
    }

    fn give_back(&self, amount: u64) {
        let waits = {
            let mut taken = self.semaphore.0.lock();
            taken.free += amount;
            if let Some(share) = taken.by.get_mut(&self.tenant) {
                share.held -= amount;
            }
            taken.forget(&self.tenant);
            taken.by.values().any(|share| !share.waiting.is_empty())
        };
        if waits {
            self.semaphore.serve_waiting();
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.give_back(self.amount);
    }
}

impl Taken {
    /// Returns the amount that a tenant holds, and its maximum.
    fn held_and_bound(&self, tenant: &Tenant) -> (u64, Option<u64>) {
        self.by.get(tenant).map_or((0, None), |share| (share.held, share.bound))
    }

    fn take(&mut self, tenant: &Tenant, amount: u64, fits: impl Fn(u64, u64, Option<u64>, u64) -> bool) -> bool {
        let (held, bound) = self.held_and_bound(tenant);
        if !fits(self.free, held, bound, amount) {
            return false;
        }
        self.free -= amount;
        self.turns += 1;
        match self.by.get_mut(tenant) {
            Some(share) => (share.held, share.last_turn) = (share.held + amount, self.turns),
            None => {
                let share = Share { held: amount, last_turn: self.turns, ..Share::default() };
                self.by.insert(tenant.clone(), share);
            }
        }
        true
    }

    /// Returns one waiting caller to serve: among callers whose amount is available, the one whose tenant holds least. Of
    /// tenants that hold the same, it is the one whose last turn is longest ago.
    fn pop_waiting(&mut self) -> Option<(Tenant, u64, oneshot::Sender<Permit>)> {
        let free = self.free;
        let may = |share: &Share| {
            share.waiting.front().is_some_and(|(amount, _)| fits_later(free, share.held, share.bound, *amount))
        };
        let (tenant, share) = self
            .by
            .iter_mut()
            .filter(|(_, share)| may(share))
            .min_by_key(|(_, share)| (share.held, share.last_turn))?;
        let (amount, give) = share.waiting.pop_front()?;
        self.turns += 1;
        (share.held, share.last_turn) = (share.held + amount, self.turns);
        self.free -= amount;
        Some((tenant.clone(), amount, give))
    }

    /// Removes a tenant's entry if it holds nothing, waits for nothing and has no maximum.
    fn forget(&mut self, tenant: &Tenant) {
        let empty = |share: &Share| share.held == 0 && share.bound.is_none() && share.waiting.is_empty();
        if self.by.get(tenant).is_some_and(empty) {
            self.by.remove(tenant);
        }
    }
}

/// Returns true if a tenant that holds `held` units may take `amount` of the `free` units at once. Then the tenant
/// must hold at most `bound` units, and no more units than are still free. A tenant that holds nothing may take all
/// free units, so that a large amount is possible at all.
fn fits(free: u64, held: u64, bound: Option<u64>, amount: u64) -> bool {
    let Some(left) = free.checked_sub(amount) else { return false };
    let after = held + amount;
    bound.is_none_or(|bound| after <= bound) && (held == 0 || after <= left)
}

/// Returns true if a caller that can wait may take this amount. Its tenant may take what [`fits`] permits. If the
/// tenant holds nothing, it may also take any free amount above its maximum; otherwise the caller would wait forever.
fn fits_later(free: u64, held: u64, bound: Option<u64>, amount: u64) -> bool {
    fits(free, held, bound, amount) || (held == 0 && amount <= free)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use futures_util::FutureExt;

    use super::*;

    fn all(semaphore: &FairSemaphore, tenant: &str) -> Vec<Permit> {
        std::iter::from_fn(|| semaphore.try_take(&tenant.into(), 1)).collect()
    }

    #[test]
    fn a_new_tenant_always_finds_free_units() {
        let semaphore = FairSemaphore::new(1_000);
        assert_eq!(semaphore.available(&"a".into()), 500);
        let first = all(&semaphore, "a");
        assert_eq!((semaphore.available(&"a".into()), semaphore.available(&"b".into())), (0, 250));
        let second = all(&semaphore, "b");
        let third = all(&semaphore, "c");
        assert_eq!([&first, &second, &third].map(Vec::len), [500, 250, 125]);
        assert_eq!(semaphore.taken(), 875);
        drop(first);
        assert_eq!(all(&semaphore, "c").len(), 250, "with what it has, as much as is left");
        drop((second, third));
        assert!(semaphore.0.lock().by.is_empty() && semaphore.0.lock().free == 1_000);
    }

    #[test]
    fn a_bound_holds_even_if_more_is_free() {
        let semaphore = FairSemaphore::new(100);
        semaphore.set_bound(&"a".into(), Some(3));
        let held = all(&semaphore, "a");
        assert_eq!((held.len(), all(&semaphore, "b").len()), (3, 48));
        drop(held);
        assert!(semaphore.try_take(&"a".into(), 4).is_none(), "more than its maximum at once");
        let mut held = semaphore.try_take(&"a".into(), 2).unwrap();
        assert!(!held.grow(2) && held.grow(1));
        drop(held);
        let alone = semaphore.take(&"a".into(), 4).now_or_never().unwrap();
        assert!(semaphore.take(&"a".into(), 1).now_or_never().is_none(), "an amount above the maximum stays alone");
        drop(alone);
        semaphore.set_bound(&"a".into(), None);
        assert!(semaphore.0.lock().by.is_empty());
    }

    #[test]
    fn returned_units_go_first_to_the_waiting_tenant_that_holds_least() {
        let semaphore = FairSemaphore::new(4);
        let (a, b) = (Tenant::from("a"), Tenant::from("b"));
        let mut held = all(&semaphore, "a");
        let other = all(&semaphore, "b");
        assert_eq!((held.len(), other.len()), (2, 1));
        let mut waits = [Box::pin(semaphore.take(&a, 1)), Box::pin(semaphore.take(&b, 1))];
        assert!(waits.iter_mut().all(|wait| wait.now_or_never().is_none()));
        held.clear();
        let [of_a, of_b] = &mut waits;
        let first = of_a.now_or_never();
        assert!(first.is_some() && of_b.now_or_never().is_none());
        drop((first, other));
        assert!(of_b.now_or_never().is_some_and(|held| held.tenant == b));
    }

    #[test]
    fn tenants_that_wait_for_one_unit_take_turns() {
        let semaphore = FairSemaphore::new(1);
        let mut held = semaphore.try_take(&"a".into(), 1);
        let wait = |tenant: &'static str| {
            let semaphore = semaphore.clone();
            let wait = async move { semaphore.take(&tenant.into(), 1).await }.boxed();
            (tenant, wait)
        };
        let mut waits: Vec<_> = ["a", "a", "a", "b", "b", "c"].into_iter().map(wait).collect();
        waits.iter_mut().for_each(|(_, wait)| assert!(wait.now_or_never().is_none()));
        let mut order = String::new();
        while held.take().is_some() {
            let served = waits.iter_mut().enumerate().find_map(|(at, (_, wait))| Some((at, wait.now_or_never()?)));
            let Some((at, permit)) = served else { break };
            order += waits.remove(at).0;
            held = Some(permit);
        }
        assert!(["bcabaa", "cbabaa"].contains(&&*order), "{order}");
    }

    #[test]
    fn a_caller_that_stops_waiting_holds_nothing() {
        let semaphore = FairSemaphore::new(4);
        let a = Tenant::from("a");
        let held = all(&semaphore, "a");
        let mut gone = Box::pin(semaphore.take(&a, 1));
        let mut stays = Box::pin(semaphore.take(&a, 1));
        assert!((&mut gone).now_or_never().is_none() && (&mut stays).now_or_never().is_none());
        drop(gone);
        drop(held);
        assert!(stays.now_or_never().is_some());
        assert!(semaphore.0.lock().by.is_empty() && semaphore.0.lock().free == 4);
    }

    #[test]
    fn a_permit_grows_by_the_same_rule() {
        let semaphore = FairSemaphore::new(10);
        let mut held = semaphore.try_take(&"a".into(), 2).unwrap();
        assert!(held.grow(3) && !held.grow(1));
        drop(held);
        assert_eq!(semaphore.0.lock().free, 10);
    }
}
