//! Room that tenants share, such as instances, and bytes of memory.
//!
//! Nobody takes more than is left after that; who holds nothing may take what there is. So one tenant who takes what there
//! is gets a half, two get a third each, and whoever comes next finds room at once.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use flowcell_contract::Tenant;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// So much of something. Cheap to clone.
#[derive(Clone)]
pub struct Room(Arc<Mutex<Taken>>);

struct Taken {
    free: u64,
    by: HashMap<Tenant, Share>,
}

#[derive(Default)]
struct Share {
    held: u64,
    /// No more than this, whatever is free.
    bound: Option<u64>,
    waiting: VecDeque<(u64, oneshot::Sender<Place>)>,
}

/// What somebody holds of a room. It is given back when this is dropped.
pub struct Place {
    room: Room,
    tenant: Tenant,
    amount: u64,
}

impl Room {
    /// So much of it.
    pub fn new(size: u64) -> Room {
        Room(Arc::new(Mutex::new(Taken { free: size, by: HashMap::new() })))
    }

    /// Lets a tenant hold no more than this, or as much as is fair.
    pub fn bound(&self, tenant: &Tenant, most: Option<u64>) {
        let mut taken = self.0.lock();
        if most.is_some() || taken.by.contains_key(tenant) {
            taken.by.entry(tenant.clone()).or_default().bound = most;
        }
        taken.forget(tenant);
    }

    /// Takes some now, if the tenant may.
    pub fn try_take(&self, tenant: &Tenant, amount: u64) -> Option<Place> {
        self.0.lock().take(tenant, amount).then(|| self.held(tenant, amount))
    }

    /// What all hold together.
    pub fn taken(&self) -> u64 {
        self.0.lock().by.values().map(|share| share.held).sum()
    }

    /// How often the tenant may take one more.
    pub fn left(&self, tenant: &Tenant) -> u64 {
        let taken = self.0.lock();
        let (held, bound) = taken.of(tenant);
        let fair = taken.free.saturating_sub(held) / 2;
        let left = bound.map_or(fair, |bound| fair.min(bound.saturating_sub(held)));
        if held == 0 { left.max(taken.free.min(1)) } else { left }
    }

    /// Takes some when the tenant may. Those of a tenant who wait are served in the order in which they came.
    pub async fn take(&self, tenant: &Tenant, amount: u64) -> Place {
        let waits = {
            let mut taken = self.0.lock();
            let has_waiting = taken.by.get(tenant).is_some_and(|share| !share.waiting.is_empty());
            if !has_waiting && taken.take(tenant, amount) {
                return self.held(tenant, amount);
            }
            let (give, waits) = oneshot::channel();
            taken.by.entry(tenant.clone()).or_default().waiting.push_back((amount, give));
            waits
        };
        match waits.await {
            Ok(held) => held,
            // Whoever waits keeps the room, and a room that is there serves everybody.
            Err(_) => std::future::pending().await,
        }
    }

    fn held(&self, tenant: &Tenant, amount: u64) -> Place {
        Place { room: self.clone(), tenant: tenant.clone(), amount }
    }

    /// Gives to those who wait, for as long as one may have what it waits for.
    fn serve(&self) {
        // One that nobody waits for any more is given back, which takes the lock again.
        let mut gone = Vec::new();
        {
            let mut taken = self.0.lock();
            while let Some((tenant, amount, give)) = taken.next() {
                gone.extend(give.send(self.held(&tenant, amount)).err());
            }
        }
        drop(gone);
    }
}

impl Place {
    /// Takes more, if the tenant may.
    pub(crate) fn grow(&mut self, by: u64) -> bool {
        let grown = self.room.0.lock().take(&self.tenant, by);
        self.amount += if grown { by } else { 0 };
        grown
    }

    /// Gives back what is more than an amount.
    pub fn shrink(&mut self, to: u64) {
        let more = self.amount.saturating_sub(to);
        self.amount -= more;
        self.give_back(more);
    }

    fn give_back(&self, amount: u64) {
        let waits = {
            let mut taken = self.room.0.lock();
            taken.free += amount;
            if let Some(share) = taken.by.get_mut(&self.tenant) {
                share.held -= amount;
            }
            taken.forget(&self.tenant);
            taken.by.values().any(|share| !share.waiting.is_empty())
        };
        if waits {
            self.room.serve();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.give_back(self.amount);
    }
}

impl Taken {
    /// What a tenant holds, and its bound.
    fn of(&self, tenant: &Tenant) -> (u64, Option<u64>) {
        self.by.get(tenant).map_or((0, None), |share| (share.held, share.bound))
    }

    fn take(&mut self, tenant: &Tenant, amount: u64) -> bool {
        let (held, bound) = self.of(tenant);
        if !fits(self.free, held, bound, amount) {
            return false;
        }
        self.free -= amount;
        match self.by.get_mut(tenant) {
            Some(share) => share.held += amount,
            None => _ = self.by.insert(tenant.clone(), Share { held: amount, ..Share::default() }),
        }
        true
    }

    /// Of those who wait and may have what they wait for, the one whose tenant holds least.
    fn next(&mut self) -> Option<(Tenant, u64, oneshot::Sender<Place>)> {
        let free = self.free;
        let may = |share: &Share| {
            share.waiting.front().is_some_and(|(amount, _)| fits(free, share.held, share.bound, *amount))
        };
        let (tenant, share) = self.by.iter_mut().filter(|(_, share)| may(share)).min_by_key(|(_, share)| share.held)?;
        let (amount, give) = share.waiting.pop_front()?;
        share.held += amount;
        self.free -= amount;
        Some((tenant.clone(), amount, give))
    }

    /// A tenant that holds nothing and waits for nothing is not kept.
    fn forget(&mut self, tenant: &Tenant) {
        let empty = |share: &Share| share.held == 0 && share.bound.is_none() && share.waiting.is_empty();
        if self.by.get(tenant).is_some_and(empty) {
            self.by.remove(tenant);
        }
    }
}

/// Whether a tenant may have so much more: at least what it holds then is left. One that holds nothing may have what there is,
/// so that what is large finds room at all.
fn fits(free: u64, held: u64, bound: Option<u64>, amount: u64) -> bool {
    let Some(left) = free.checked_sub(amount) else { return false };
    let after = held + amount;
    held == 0 || (bound.is_none_or(|bound| after <= bound) && after <= left)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use futures_util::FutureExt;

    use super::*;

    fn all(room: &Room, tenant: &str) -> Vec<Place> {
        std::iter::from_fn(|| room.try_take(&tenant.into(), 1)).collect()
    }

    #[test]
    fn whoever_comes_next_finds_room() {
        let room = Room::new(1_000);
        assert_eq!(room.left(&"a".into()), 500);
        let first = all(&room, "a");
        assert_eq!((room.left(&"a".into()), room.left(&"b".into())), (0, 250));
        let second = all(&room, "b");
        let third = all(&room, "c");
        assert_eq!([&first, &second, &third].map(Vec::len), [500, 250, 125]);
        assert_eq!(room.taken(), 875);
        drop(first);
        assert_eq!(all(&room, "c").len(), 250, "with what it has, as much as is left");
        drop((second, third));
        assert!(room.0.lock().by.is_empty() && room.0.lock().free == 1_000);
    }

    #[test]
    fn a_bound_holds_however_much_is_free() {
        let room = Room::new(100);
        room.bound(&"a".into(), Some(3));
        let held = all(&room, "a");
        assert_eq!((held.len(), all(&room, "b").len()), (3, 48));
        drop(held);
        room.bound(&"a".into(), None);
        assert!(room.0.lock().by.is_empty());
    }

    #[test]
    fn those_who_wait_are_served_when_room_is_given_back_the_one_with_least_first() {
        let room = Room::new(4);
        let (a, b) = (Tenant::from("a"), Tenant::from("b"));
        let mut held = all(&room, "a");
        let other = all(&room, "b");
        assert_eq!((held.len(), other.len()), (2, 1));
        let mut waits = [Box::pin(room.take(&a, 1)), Box::pin(room.take(&b, 1))];
        assert!(waits.iter_mut().all(|wait| wait.now_or_never().is_none()));
        held.clear();
        let [of_a, of_b] = &mut waits;
        let first = of_a.now_or_never();
        assert!(first.is_some() && of_b.now_or_never().is_none());
        drop((first, other));
        assert!(of_b.now_or_never().is_some_and(|held| held.tenant == b));
    }

    #[test]
    fn whoever_has_gone_keeps_nothing() {
        let room = Room::new(4);
        let a = Tenant::from("a");
        let held = all(&room, "a");
        let mut gone = Box::pin(room.take(&a, 1));
        let mut stays = Box::pin(room.take(&a, 1));
        assert!((&mut gone).now_or_never().is_none() && (&mut stays).now_or_never().is_none());
        drop(gone);
        drop(held);
        assert!(stays.now_or_never().is_some());
        assert!(room.0.lock().by.is_empty() && room.0.lock().free == 4);
    }

    #[test]
    fn more_is_taken_by_the_same_rule() {
        let room = Room::new(10);
        let mut held = room.try_take(&"a".into(), 2).unwrap();
        assert!(held.grow(3) && !held.grow(1));
        drop(held);
        assert_eq!(room.0.lock().free, 10);
    }
}
