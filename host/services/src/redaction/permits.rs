//! The permits of searches on threads for blocking work, which tenants share.
//!
//! There is one permit more than the machine has cores, and a tenant holds at most one for each core. So the other tenants
//! always find one that comes back within one search. A permit goes to the waiting tenant that holds least.

use std::{
    collections::{HashMap, VecDeque},
    num::NonZero,
    sync::{Arc, LazyLock},
    thread,
};

use flowcell_contract::Tenant;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The permits of this process.
static PERMITS: LazyLock<Permits> =
    LazyLock::new(|| Permits::new(thread::available_parallelism().map_or(1, NonZero::get)));

/// A pool of permits. Clones share it.
#[derive(Clone)]
pub(super) struct Permits(Arc<Mutex<Pool>>);

struct Pool {
    free: usize,
    /// Maximum permits of a tenant.
    most: usize,
    /// The number of permits that were given.
    given: u64,
    tenants: HashMap<Tenant, Share>,
}

#[derive(Default)]
struct Share {
    held: usize,
    /// The number of the last permit that the tenant got.
    last: u64,
    waiting: VecDeque<oneshot::Sender<Permit>>,
}

/// The right to one search. Dropping it returns it to the pool.
pub(super) struct Permit {
    permits: Permits,
    tenant: Tenant,
}

impl Permits {
    /// Returns the permits of this process.
    pub(super) fn of_process() -> Permits {
        PERMITS.clone()
    }

    /// Creates a pool of which a tenant holds at most `most` permits, and that has one more.
    pub(super) fn new(most: usize) -> Permits {
        Permits(Arc::new(Mutex::new(Pool { free: most + 1, most, given: 0, tenants: HashMap::new() })))
    }

    /// Waits for a permit. Callers of one tenant get theirs in the order of their calls.
    pub(super) async fn take(&self, tenant: &Tenant) -> Permit {
        let (give, given) = oneshot::channel();
        self.0.lock().tenants.entry(tenant.clone()).or_default().waiting.push_back(give);
        self.serve();
        match given.await {
            Ok(permit) => permit,
            // This cannot happen: the pool serves every waiting caller, and the caller holds the pool.
            Err(_) => std::future::pending().await,
        }
    }

    /// Gives permits until none is free, or no tenant that waits may have one.
    fn serve(&self) {
        // The permit of a caller that stopped waiting returns to the pool when the lock is free again.
        let mut unclaimed = Vec::new();
        {
            let mut pool = self.0.lock();
            while let Some((tenant, give)) = pool.next() {
                unclaimed.extend(give.send(Permit { permits: self.clone(), tenant }).err());
            }
        }
        drop(unclaimed);
    }
}

impl Pool {
    fn next(&mut self) -> Option<(Tenant, oneshot::Sender<Permit>)> {
        let most = self.most;
        let may = |share: &Share| share.held < most && !share.waiting.is_empty();
        let waiting = self.tenants.iter_mut().filter(|(_, share)| self.free > 0 && may(share));
        let (tenant, share) = waiting.min_by_key(|(_, share)| (share.held, share.last))?;
        let give = share.waiting.pop_front()?;
        self.free -= 1;
        self.given += 1;
        (share.held, share.last) = (share.held + 1, self.given);
        Some((tenant.clone(), give))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        {
            let mut pool = self.permits.0.lock();
            pool.free += 1;
            if let Some(share) = pool.tenants.get_mut(&self.tenant) {
                share.held -= 1;
                if share.held == 0 && share.waiting.is_empty() {
                    pool.tenants.remove(&self.tenant);
                }
            }
        }
        self.permits.serve();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use futures_util::{FutureExt, future::BoxFuture};

    use super::*;

    fn asked(permits: &Permits, tenant: &'static str) -> BoxFuture<'static, Permit> {
        let permits = permits.clone();
        let mut asked = async move { permits.take(&tenant.into()).await }.boxed();
        // A waiting caller is in the queue after its first poll.
        match (&mut asked).now_or_never() {
            Some(permit) => async { permit }.boxed(),
            None => asked,
        }
    }

    #[test]
    fn a_tenant_leaves_one_permit_to_the_others() {
        let permits = Permits::new(3);
        let mut held: Vec<_> = (0..3).map(|_| asked(&permits, "a").now_or_never().unwrap()).collect();
        let mut waits = asked(&permits, "a");
        assert!((&mut waits).now_or_never().is_none());
        let other = asked(&permits, "b").now_or_never().unwrap();
        let mut third = asked(&permits, "c");
        assert!((&mut third).now_or_never().is_none());
        held.pop();
        assert!((&mut waits).now_or_never().is_none(), "the other tenant holds none");
        let third = third.now_or_never().unwrap();
        drop(other);
        drop((waits.now_or_never().unwrap(), third, held));
        assert!(permits.0.lock().tenants.is_empty() && permits.0.lock().free == 4);
    }

    #[test]
    fn tenants_that_wait_take_turns() {
        let permits = Permits::new(1);
        let mut held: Vec<Permit> = ["x", "y"].map(|tenant| asked(&permits, tenant).now_or_never().unwrap()).into();
        let mut waits: Vec<_> = ["a", "a", "a", "b", "b", "c"].map(|tenant| (tenant, asked(&permits, tenant))).into();
        let mut order = String::new();
        // One permit stays with its tenant, and the other goes round.
        while !waits.is_empty() {
            held.pop();
            let found = waits.iter_mut().enumerate().find_map(|(at, (_, wait))| Some((at, wait.now_or_never()?)));
            let (at, permit) = found.unwrap();
            order += waits.remove(at).0;
            held.push(permit);
        }
        assert!(["a", "b", "c"].iter().all(|tenant| order[..3].contains(tenant)), "{order}");
        assert!(order[3..5].contains('b') && order.ends_with('a'), "{order}");
    }

    #[test]
    fn a_caller_that_stops_waiting_holds_nothing() {
        let permits = Permits::new(1);
        let held = asked(&permits, "a").now_or_never().unwrap();
        let (gone, stays) = (asked(&permits, "a"), asked(&permits, "a"));
        drop(gone);
        drop(held);
        drop(stays.now_or_never().unwrap());
        let given = {
            let held = asked(&permits, "a").now_or_never().unwrap();
            let waits = asked(&permits, "a");
            drop(held);
            waits
        };
        drop(given);
        assert!(permits.0.lock().tenants.is_empty() && permits.0.lock().free == 2);
    }
}
