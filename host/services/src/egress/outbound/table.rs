//! The origins that are tracked, of all tenants. Most origins are not: one that answers needs no entry, unless the
//! operator limits its tenant.

use std::{collections::HashMap, time::Duration};

use flowcell_contract::Tenant;
use tokio::time::Instant;

use super::{super::origin::Origin, OpenBreaker, entry::Entry, limits::OutboundLimits};

/// Maximum number of tracked origins of one tenant.
pub(super) const MAX_ORIGINS: usize = 256;
/// Maximum number of tracked origins in all. A tenant tracks at most as many as are still free for others. If none is
/// free, the tenant with most origins loses one whose breaker is closed.
pub(super) const MAX_ALL_ORIGINS: usize = 16_384;

/// The shortest time between two searches of a full table for origins that can be forgotten.
const SWEEP_GAP: Duration = Duration::from_secs(1);

/// The time after the end of its wait for which an open breaker counts without a request.
const IDLE_TIME: Duration = Duration::from_secs(60);

/// The tracked origins of all tenants. `T` is a waiting request.
pub(super) struct Table<T> {
    tenants: HashMap<Tenant, HashMap<Origin, Entry<T>>>,
    count: usize,
    limits: HashMap<Tenant, OutboundLimits>,
    /// The limits of tenants that are not in `limits`.
    default_limits: Option<OutboundLimits>,
    swept: Option<Instant>,
}

impl<T> Default for Table<T> {
    fn default() -> Table<T> {
        Table { tenants: HashMap::new(), count: 0, limits: HashMap::new(), default_limits: None, swept: None }
    }
}

impl<T> Table<T> {
    /// Sets the limits of a tenant. They also apply to the origins that are tracked already.
    pub(super) fn set_limits(&mut self, tenant: &Tenant, limits: Option<OutboundLimits>, now: Instant) {
        if self.limits.get(tenant).copied() == limits {
            return;
        }
        match limits {
            Some(limits) => drop(self.limits.insert(tenant.clone(), limits)),
            None => drop(self.limits.remove(tenant)),
        }
        let limits = self.limits_of(tenant);
        for entry in self.tenants.get_mut(tenant).into_iter().flat_map(HashMap::values_mut) {
            entry.set_limits(limits, now);
        }
    }

    /// Sets the limits of tenants that have none of their own.
    pub(super) fn set_default_limits(&mut self, limits: OutboundLimits, now: Instant) {
        self.default_limits = Some(limits);
        let others = self.tenants.iter_mut().filter(|(tenant, _)| !self.limits.contains_key(*tenant));
        others.flat_map(|(_, origins)| origins.values_mut()).for_each(|entry| entry.set_limits(Some(limits), now));
    }

    pub(super) fn limits_of(&self, tenant: &Tenant) -> Option<OutboundLimits> {
        self.limits.get(tenant).copied().or(self.default_limits)
    }

    /// Returns true if no origin is tracked, and no tenant has limits.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0 && self.limits.is_empty() && self.default_limits.is_none()
    }

    pub(super) fn get(&mut self, tenant: &Tenant, origin: &Origin) -> Option<&mut Entry<T>> {
        self.tenants.get_mut(tenant)?.get_mut(origin)
    }

    /// Returns the entry of an origin, and begins to track the origin if it is new. Returns `None` if the tenant has too
    /// many origins that cannot be forgotten.
    pub(super) fn track(&mut self, tenant: &Tenant, origin: &Origin, now: Instant) -> Option<&mut Entry<T>> {
        if self.get(tenant, origin).is_none() {
            self.make_room(tenant, now)?;
            let mut entry = Entry::default();
            entry.set_limits(self.limits_of(tenant), now);
            self.count += 1;
            self.tenants.entry(tenant.clone()).or_default().insert(origin.clone(), entry);
        }
        let entry = self.get(tenant, origin)?;
        entry.touch(now);
        Some(entry)
    }

    /// Stops to track an origin if a new entry would behave in the same way.
    pub(super) fn forget_if_as_new(&mut self, tenant: &Tenant, origin: &Origin, now: Instant) {
        let Some(origins) = self.tenants.get_mut(tenant) else { return };
        if origins.get(origin).is_some_and(|entry| entry.is_as_new(now)) {
            origins.remove(origin);
            self.count -= 1;
            if origins.is_empty() {
                self.tenants.remove(tenant);
            }
        }
    }

    /// Stops to track the origins that nothing asks for any more.
    pub(super) fn sweep(&mut self, now: Instant) {
        self.swept = Some(now);
        self.tenants.retain(|_, origins| {
            origins.retain(|_, entry| !entry.is_stale(now));
            !origins.is_empty()
        });
        self.count = self.tenants.values().map(HashMap::len).sum();
    }

    /// Returns the tenants with open breakers, and how many each has.
    pub(super) fn open_breakers(&self, now: Instant) -> Vec<(Tenant, usize)> {
        let refuses = |entry: &Entry<T>| entry.breaker.is_open() && !is_idle(entry, now);
        let open = |origins: &HashMap<Origin, Entry<T>>| origins.values().filter(|entry| refuses(entry)).count();
        let all = self.tenants.iter().map(|(tenant, origins)| (tenant.clone(), open(origins)));
        all.filter(|(_, open)| *open > 0).collect()
    }

    /// Returns the breakers that are not closed, of one tenant or of all.
    pub(super) fn breakers(&self, only: Option<&Tenant>, now: Instant) -> Vec<OpenBreaker> {
        let tenants = self.tenants.iter().filter(|(tenant, _)| only.is_none_or(|only| only == *tenant));
        let entries =
            tenants.flat_map(|(tenant, origins)| origins.iter().map(move |(origin, entry)| (tenant, origin, entry)));
        let breakers = entries.filter(|(.., entry)| !is_idle(entry, now)).filter_map(|(tenant, origin, entry)| {
            let found = entry.breaker.not_closed(now)?;
            Some(OpenBreaker {
                tenant: tenant.clone(),
                origin: origin.clone(),
                state: found.state,
                open_for: found.open_for,
                remaining: found.remaining,
            })
        });
        breakers.collect()
    }

    /// Returns the number of tracked origins.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Makes room for one more origin of a tenant. An origin with an open breaker is never removed for it.
    fn make_room(&mut self, tenant: &Tenant, now: Instant) -> Option<()> {
        if self.count >= MAX_ALL_ORIGINS && self.swept.is_none_or(|swept| now - swept >= SWEEP_GAP) {
            self.sweep(now);
        }
        let own = self.tenants.get(tenant).map_or(0, HashMap::len);
        if own < MAX_ORIGINS.min(MAX_ALL_ORIGINS.saturating_sub(self.count)) {
            return Some(());
        }
        let may_lose = |origins: &HashMap<Origin, Entry<T>>| origins.values().any(|entry| entry.is_removable(now));
        let largest = self.tenants.iter().filter(|(_, origins)| may_lose(origins));
        let largest = largest.max_by_key(|(_, origins)| origins.len());
        // A full table loses an origin of the tenant that has most.
        let from = match largest {
            Some((largest, origins)) if self.count >= MAX_ALL_ORIGINS && origins.len() > own + 1 => largest.clone(),
            _ => tenant.clone(),
        };
        self.remove_oldest(&from, now)
    }

    /// Removes the origin that a tenant has not used for longest, of those that can be removed.
    fn remove_oldest(&mut self, tenant: &Tenant, now: Instant) -> Option<()> {
        let origins = self.tenants.get_mut(tenant)?;
        let removable = origins.iter().filter(|(_, entry)| entry.is_removable(now));
        let oldest = removable.min_by_key(|(_, entry)| entry.used()).map(|(origin, _)| origin.clone())?;
        origins.remove(&oldest);
        self.count -= 1;
        Some(())
    }
}

/// Returns whether nothing has asked for an open breaker for [`IDLE_TIME`] after its wait. It does not count, because it
/// refuses nothing.
fn is_idle<T>(entry: &Entry<T>, now: Instant) -> bool {
    entry.breaker.overdue(now).is_some_and(|overdue| overdue >= IDLE_TIME)
}
