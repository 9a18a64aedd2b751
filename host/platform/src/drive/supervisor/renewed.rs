//! Runs that are parked for a quota which has renewed early: the operator has raised it, or a reserved cost was returned.
//!
//! A parked run is due when its quota renews, so the usual searches find it then. In addition, the supervisor looks at the
//! quotas of each tenant with such runs, once in each [`QUOTA_LOOK_INTERVAL`]. If a tenant's quotas allow more than before,
//! its parked runs begin, one page after the other, within the same permits as all other runs. A run that finds its quota
//! used up parks again. So that these tries stay few, a returned cost begins them only once in each
//! [`RETURNED_COST_INTERVAL`].

use std::{collections::HashMap, time::Duration};

use flowcell_contract::{RunId, Tenant, code};
use flowcell_runtime::{
    RunResult,
    ports::{Filter, MaybeStoreError as _, Runs, StoreError},
};

use crate::{Host, operate::usage::pause::Room};

/// Interval between looks at the quotas of tenants with runs that are parked for a quota.
pub const QUOTA_LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// Minimum interval between two tries of a tenant's paused runs because a reserved cost was returned.
pub const RETURNED_COST_INTERVAL: Duration = Duration::from_secs(600);

/// The statuses of runs that are parked for a quota. A run that also needs a decision has the second one.
const STATUSES: [&str; 2] = ["parked", "needs_attention"];

/// The looks at quotas that have paused runs.
#[derive(Default)]
pub(super) struct Renewed {
    /// The time of the next look, in milliseconds since 1970.
    next: u64,
    /// The tenants with runs that are parked for a quota.
    tenants: HashMap<Tenant, Seen>,
    /// True if a run was parked for a quota since the last look.
    has_new: bool,
    /// The tenants that were looked at before, and whether their quotas paused runs then.
    known: HashMap<Tenant, bool>,
}

/// What the looks have seen of a tenant with paused runs.
struct Seen {
    /// The quotas when the paused runs last began, or when least was left since then.
    room: Room,
    /// The time at which the paused runs last began, in milliseconds since 1970.
    began: u64,
    /// The place in the list of paused runs from which runs are still to begin. `None`: none is to begin.
    rest: Option<Place>,
    /// Runs before that place that are still to begin.
    back: Vec<RunId>,
}

/// A place in the lists of paused runs: the list, and the last run before the place.
#[derive(Clone, Default)]
struct Place {
    list: usize,
    after: Option<RunId>,
}

impl Renewed {
    /// Returns at most `limit` paused runs of a tenant that may go on now. Each call continues where the last one ended.
    pub(super) fn find(&mut self, host: &Host, tenant: &Tenant, limit: usize) -> Result<Vec<RunId>, StoreError> {
        let (Some(lists), true) = (host.runs(), host.usage().counts()) else { return Ok(Vec::new()) };
        // Quotas that cannot be read, such as those of a policy of a newer version, stop no other run.
        if host.now() >= self.next
            && let Err(error) = self.look(host, lists, tenant)
        {
            error.warn(format_args!("cannot look for runs of `{tenant}` that a quota has paused"));
            self.known.remove(tenant);
            return Ok(Vec::new());
        }
        let Some(seen) = self.tenants.get_mut(tenant) else { return Ok(Vec::new()) };
        let mut found = seen.back.split_off(seen.back.len().saturating_sub(limit));
        while let Some(place) = &mut seen.rest
            && found.len() < limit
        {
            let page = match paused(lists, tenant, place, limit - found.len()) {
                Ok(page) => page,
                Err(error) => {
                    seen.back.append(&mut found);
                    return Err(error);
                }
            };
            match page.last() {
                Some(last) => place.after = Some(last.clone()),
                None if place.list + 1 < STATUSES.len() => *place = Place { list: place.list + 1, after: None },
                None => seen.rest = None,
            }
            found.extend(page);
        }
        Ok(found)
    }

    /// Takes back a run that has got no permit. A later call of [`Renewed::find`] returns it again.
    pub(super) fn put_back(&mut self, (tenant, run): (Tenant, RunId)) {
        if let Some(seen) = self.tenants.get_mut(&tenant) {
            seen.back.push(run);
        }
    }

    /// Returns whether further paused runs are to begin.
    fn has_more(&self) -> bool {
        self.tenants.values().any(|seen| seen.rest.is_some() || !seen.back.is_empty())
    }

    /// Records that these tenants were looked at. Returns whether further paused runs are to begin.
    pub(super) fn looked(&mut self, tenants: &[Tenant], now: u64) -> bool {
        if now >= self.next {
            self.next = now + QUOTA_LOOK_INTERVAL.as_millis() as u64;
            self.has_new = false;
        }
        self.tenants.retain(|tenant, _| tenants.contains(tenant));
        self.has_more()
    }

    /// Looks at the quotas again at the next time if this run is parked for one.
    pub(super) fn note_end(&mut self, result: &RunResult) {
        self.has_new |= result.quota.is_some();
    }

    /// Begins with the first paused run of a tenant again, because a run could not be opened.
    pub(super) fn start_over(&mut self, tenant: &Tenant) {
        if let Some(seen) = self.tenants.get_mut(tenant) {
            seen.rest = Some(Place::default());
        }
    }

    /// Returns the maximum time until the next look.
    pub(super) fn max_sleep(&self, host: &Host) -> Option<Duration> {
        (self.has_new || !self.tenants.is_empty()).then(|| Duration::from_millis(self.next.saturating_sub(host.now())))
    }

    fn look(&mut self, host: &Host, lists: &dyn Runs, tenant: &Tenant) -> Result<(), StoreError> {
        let (room, now) = (host.usage().load(tenant)?, host.now());
        // Runs of a tenant whose quotas no longer pause may still be parked: since before this process began, since a time
        // when the quotas paused runs, or since this process has parked them.
        let paused_before = self.known.insert(tenant.clone(), room.pauses()).unwrap_or(true);
        if !(paused_before || self.has_new || room.pauses() || self.tenants.contains_key(tenant)) {
            return Ok(());
        }
        let mut are_paused = false;
        for list in 0..STATUSES.len() {
            are_paused |= !paused(lists, tenant, &Place { list, after: None }, 1)?.is_empty();
        }
        if !are_paused {
            self.tenants.remove(tenant);
            return Ok(());
        }
        // A process that has just started does not know whether the quotas allow more than before.
        let first = Seen { room, began: now, rest: (!room.is_closed).then(Place::default), back: Vec::new() };
        match self.tenants.get_mut(tenant) {
            Some(seen) if !seen.may_begin(&room, now) => seen.keep(room),
            _ => _ = self.tenants.insert(tenant.clone(), first),
        }
        Ok(())
    }
}

impl Seen {
    /// Returns whether the paused runs may begin, because the quotas allow more than before.
    fn may_begin(&self, room: &Room, now: u64) -> bool {
        let is_time = now >= self.began + RETURNED_COST_INTERVAL.as_millis() as u64;
        let has_renewed = self.room.is_closed || room.has_changed_since(&self.room);
        !room.is_closed && (has_renewed || is_time && room.costs_less_than(&self.room))
    }

    /// Keeps the quotas of a look after which no run begins.
    fn keep(&mut self, room: Room) {
        if room.is_closed {
            self.rest = None;
            self.back.clear();
        }
        if room.is_closed || !room.costs_less_than(&self.room) {
            self.room = room;
        }
    }
}

/// Lists runs that are parked for a quota, from a place on.
fn paused(lists: &dyn Runs, tenant: &Tenant, place: &Place, limit: usize) -> Result<Vec<RunId>, StoreError> {
    let filter = Filter {
        status: Some(STATUSES[place.list].into()),
        error: Some(code::QUOTA_EXCEEDED.into()),
        after: place.after.clone(),
        limit,
        ..Filter::default()
    };
    Ok(lists.runs(tenant, &filter)?.into_iter().map(|row| row.run_id).collect())
}
