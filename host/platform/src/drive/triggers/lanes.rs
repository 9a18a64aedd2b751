//! The work on triggers, in one lane per tenant. A lane runs one job at a time, and no tenant waits for another.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::Duration,
};

use flowcell_contract::Tenant;
use tokio::time::Instant;

use super::{
    LOOK,
    ends::{Ended, SCAN},
};

/// Maximum number of ended runs in a tenant's lane. Scans find further ends in the store.
const ENDS: usize = 256;

/// A job for a tenant.
#[derive(Debug)]
pub(super) enum Job {
    /// Reads the tenant's triggers and starts due runs. With `scans`, it also scans for runs that have ended.
    Look { scans: bool },
    /// Handles the end of a run.
    Ended(Ended),
}

struct Lane {
    busy: bool,
    ends: VecDeque<Ended>,
    /// The time of the next look at the tenant's triggers.
    look: Instant,
    /// The time of the next scan for ended runs.
    scan: Instant,
}

impl Lane {
    fn new(now: Instant) -> Lane {
        Lane { busy: false, ends: VecDeque::new(), look: now, scan: now }
    }

    fn job(&mut self, now: Instant, looks: bool) -> Option<Job> {
        if self.busy {
            return None;
        }
        let job = match self.ends.pop_front() {
            Some(end) => Job::Ended(end),
            None if looks && self.look <= now => {
                let scans = self.scan <= now;
                if scans {
                    self.scan = now + SCAN;
                }
                // A change during the job makes it due again.
                self.look = now + LOOK;
                Job::Look { scans }
            }
            None => return None,
        };
        self.busy = true;
        Some(job)
    }
}

/// The lanes of all tenants.
#[derive(Default)]
pub(super) struct Lanes(HashMap<Tenant, Lane>);

impl Lanes {
    /// Adds a lane for each new tenant, and removes the idle lanes of tenants that no longer exist.
    pub(super) fn set_tenants(&mut self, tenants: Vec<Tenant>, now: Instant) {
        let known: HashSet<_> = tenants.iter().cloned().collect();
        self.0.retain(|tenant, lane| lane.busy || known.contains(tenant));
        for tenant in tenants {
            self.0.entry(tenant).or_insert_with(|| Lane::new(now));
        }
    }

    /// Makes a look due now for each tenant, because triggers have changed.
    pub(super) fn change(&mut self, now: Instant) {
        self.0.values_mut().for_each(|lane| lane.look = now);
    }

    /// Queues the end of a run. If the lane is full, a scan finds it in the store.
    pub(super) fn end(&mut self, tenant: Tenant, end: Ended, now: Instant) {
        let lane = self.0.entry(tenant).or_insert_with(|| Lane::new(now));
        if lane.ends.len() < ENDS {
            lane.ends.push_back(end);
        }
    }

    /// Returns the jobs that can begin now, at most one per tenant. Without `looks`, it returns only jobs for ended
    /// runs.
    pub(super) fn jobs(&mut self, now: Instant, looks: bool) -> Vec<(Tenant, Job)> {
        let jobs = self.0.iter_mut().filter_map(|(tenant, lane)| Some((tenant.clone(), lane.job(now, looks)?)));
        jobs.collect()
    }

    /// Ends a job. `next` is the time until the tenant's next look, if the job was a look.
    pub(super) fn done(&mut self, tenant: &Tenant, next: Option<Duration>, now: Instant) {
        if let Some(lane) = self.0.get_mut(tenant) {
            lane.busy = false;
            if let Some(next) = next {
                lane.look = lane.look.min(now + next);
            }
        }
    }

    /// Returns the time of the next look, at most [`LOOK`] from now.
    pub(super) fn next(&self, now: Instant) -> Instant {
        let due = self.0.values().filter(|lane| !lane.busy).map(|lane| lane.look).min();
        due.map_or(now + LOOK, |due| due.min(now + LOOK))
    }
}

#[cfg(test)]
mod tests {
    use flowcell_contract::RunId;

    use super::*;

    fn end(run: &str) -> Ended {
        Ended { run: RunId::from(run), flow: "f".into(), status: "succeeded".into(), at: 0 }
    }

    fn names(jobs: &[(Tenant, Job)]) -> Vec<String> {
        let mut names: Vec<_> = jobs.iter().map(|(tenant, job)| format!("{tenant} {job:?}")).collect();
        names.sort();
        names.iter_mut().for_each(|name| name.truncate(12));
        names
    }

    #[test]
    fn a_tenant_whose_work_does_not_end_holds_nobody_up() {
        let now = Instant::now();
        let mut lanes = Lanes::default();
        lanes.set_tenants(vec!["a".into(), "b".into()], now);
        assert_eq!(names(&lanes.jobs(now, true)), ["a Look { sca", "b Look { sca"]);
        // `b` is done, and `a` is not.
        lanes.done(&"b".into(), Some(Duration::from_secs(1)), now);
        assert_eq!(lanes.next(now), now + Duration::from_secs(1));
        let later = now + Duration::from_secs(1);
        assert_eq!(names(&lanes.jobs(later, true)), ["b Look { sca"]);
        lanes.done(&"b".into(), None, later);
        // Jobs for `a` wait for the current one, and are not lost.
        lanes.end("a".into(), end("1"), later);
        lanes.end("b".into(), end("2"), later);
        lanes.change(later);
        assert_eq!(names(&lanes.jobs(later, true)), ["b Ended(Ende"]);
        lanes.done(&"b".into(), None, later);
        assert_eq!(names(&lanes.jobs(later, true)), ["b Look { sca"]);
        lanes.done(&"a".into(), Some(LOOK), later);
        assert_eq!(names(&lanes.jobs(later, true)), ["a Ended(Ende"]);
        lanes.done(&"a".into(), None, later);
        assert_eq!(names(&lanes.jobs(later, true)), ["a Look { sca"], "the change is seen");
    }

    #[test]
    fn a_server_that_drains_looks_at_nothing_and_rests() {
        let now = Instant::now();
        let mut lanes = Lanes::default();
        lanes.set_tenants(vec!["a".into()], now);
        assert!(lanes.jobs(now, false).is_empty());
        lanes.end("a".into(), end("1"), now);
        assert_eq!(names(&lanes.jobs(now, false)), ["a Ended(Ende"]);
    }

    #[test]
    fn ends_that_wait_are_bounded_and_tenants_that_are_gone_forgotten() {
        let now = Instant::now();
        let mut lanes = Lanes::default();
        (0..ENDS * 2).for_each(|run| lanes.end("a".into(), end(&run.to_string()), now));
        assert_eq!(lanes.0[&Tenant::from("a")].ends.len(), ENDS);
        lanes.set_tenants(vec!["b".into()], now);
        assert!(!lanes.0.contains_key(&Tenant::from("a")));
    }
}
