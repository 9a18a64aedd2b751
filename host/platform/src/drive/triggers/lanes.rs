//! The work on triggers, in one lane per tenant. A lane runs one job at a time, and no tenant waits for another.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::Duration,
};

use flowcell_contract::Tenant;
use tokio::time::Instant;

use super::{
    LOOK_INTERVAL,
    ends::{EndedRun, SCAN_INTERVAL},
};

/// Maximum number of ended runs that wait in a tenant's lane. If more runs end, scans find their ends in the store.
const MAX_LANE_ENDS: usize = 256;

/// A job for a tenant.
#[derive(Debug)]
pub(super) enum Job {
    /// Reads the tenant's triggers and starts due runs. With `scans`, it also scans for runs that have ended.
    Look { scans: bool },
    /// Handles the end of a run.
    Ended(EndedRun),
}

struct Lane {
    busy: bool,
    ends: VecDeque<EndedRun>,
    /// The time at which the tenant's triggers are read next.
    look: Instant,
    /// The time of the next scan for ended runs.
    scan: Instant,
}

impl Lane {
    fn new(now: Instant) -> Lane {
        Lane { busy: false, ends: VecDeque::new(), look: now, scan: now }
    }

    fn take_job(&mut self, now: Instant, looks: bool) -> Option<Job> {
        if self.busy {
            return None;
        }
        let job = match self.ends.pop_front() {
            Some(end) => Job::Ended(end),
            None if looks && self.look <= now => {
                let scans = self.scan <= now;
                if scans {
                    self.scan = now + SCAN_INTERVAL;
                }
                // A change during the job makes it due again.
                self.look = now + LOOK_INTERVAL;
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

    /// Makes the reading of every tenant's triggers due at the time `now`, because triggers have changed.
    pub(super) fn make_looks_due(&mut self, now: Instant) {
        self.0.values_mut().for_each(|lane| lane.look = now);
    }

    /// Queues the end of a run. If the lane is full, drops the end, and a later scan finds it in the store.
    pub(super) fn queue_end(&mut self, tenant: Tenant, end: EndedRun, now: Instant) {
        let lane = self.0.entry(tenant).or_insert_with(|| Lane::new(now));
        if lane.ends.len() < MAX_LANE_ENDS {
            lane.ends.push_back(end);
        }
    }

    /// Returns the jobs that can begin now, at most one per tenant. Without `looks`, it returns only jobs for ended
    /// runs.
    pub(super) fn take_jobs(&mut self, now: Instant, looks: bool) -> Vec<(Tenant, Job)> {
        let jobs = self.0.iter_mut().filter_map(|(tenant, lane)| Some((tenant.clone(), lane.take_job(now, looks)?)));
        jobs.collect()
    }

    /// Ends a tenant's job. `next` is the time until the tenant's triggers have to be read again, or `None` if the job
    /// did not read them.
    pub(super) fn finish_job(&mut self, tenant: &Tenant, next: Option<Duration>, now: Instant) {
        if let Some(lane) = self.0.get_mut(tenant) {
            lane.busy = false;
            if let Some(next) = next {
                lane.look = lane.look.min(now + next);
            }
        }
    }

    /// Returns the earliest time at which the triggers of any tenant without a running job have to be read, at most
    /// [`LOOK_INTERVAL`] from now.
    pub(super) fn next_look(&self, now: Instant) -> Instant {
        let due = self.0.values().filter(|lane| !lane.busy).map(|lane| lane.look).min();
        due.map_or(now + LOOK_INTERVAL, |due| due.min(now + LOOK_INTERVAL))
    }
}

#[cfg(test)]
mod tests {
    use flowcell_contract::RunId;

    use super::*;

    fn end(run: &str) -> EndedRun {
        EndedRun { run: RunId::from(run), flow: "f".into(), status: "succeeded".into(), at: 0 }
    }

    fn names(jobs: &[(Tenant, Job)]) -> Vec<String> {
        let mut names: Vec<_> = jobs.iter().map(|(tenant, job)| format!("{tenant} {job:?}")).collect();
        names.sort();
        names.iter_mut().for_each(|name| name.truncate(12));
        names
    }

    #[test]
    fn a_job_that_does_not_end_delays_no_other_tenant() {
        let now = Instant::now();
        let mut lanes = Lanes::default();
        lanes.set_tenants(vec!["a".into(), "b".into()], now);
        assert_eq!(names(&lanes.take_jobs(now, true)), ["a Look { sca", "b Look { sca"]);
        // `b` is done, and `a` is not.
        lanes.finish_job(&"b".into(), Some(Duration::from_secs(1)), now);
        assert_eq!(lanes.next_look(now), now + Duration::from_secs(1));
        let later = now + Duration::from_secs(1);
        assert_eq!(names(&lanes.take_jobs(later, true)), ["b Look { sca"]);
        lanes.finish_job(&"b".into(), None, later);
        // Jobs for `a` wait for the current one, and are not lost.
        lanes.queue_end("a".into(), end("1"), later);
        lanes.queue_end("b".into(), end("2"), later);
        lanes.make_looks_due(later);
        assert_eq!(names(&lanes.take_jobs(later, true)), ["b Ended(Ende"]);
        lanes.finish_job(&"b".into(), None, later);
        assert_eq!(names(&lanes.take_jobs(later, true)), ["b Look { sca"]);
        lanes.finish_job(&"a".into(), Some(LOOK_INTERVAL), later);
        assert_eq!(names(&lanes.take_jobs(later, true)), ["a Ended(Ende"]);
        lanes.finish_job(&"a".into(), None, later);
        assert_eq!(names(&lanes.take_jobs(later, true)), ["a Look { sca"], "the change is seen");
    }

    #[test]
    fn a_draining_server_looks_at_no_triggers() {
        let now = Instant::now();
        let mut lanes = Lanes::default();
        lanes.set_tenants(vec!["a".into()], now);
        assert!(lanes.take_jobs(now, false).is_empty());
        lanes.queue_end("a".into(), end("1"), now);
        assert_eq!(names(&lanes.take_jobs(now, false)), ["a Ended(Ende"]);
    }

    #[test]
    fn queued_ends_are_bounded_and_deleted_tenants_lose_their_lanes() {
        let now = Instant::now();
        let mut lanes = Lanes::default();
        (0..MAX_LANE_ENDS * 2).for_each(|run| lanes.queue_end("a".into(), end(&run.to_string()), now));
        assert_eq!(lanes.0[&Tenant::from("a")].ends.len(), MAX_LANE_ENDS);
        lanes.set_tenants(vec!["b".into()], now);
        assert!(!lanes.0.contains_key(&Tenant::from("a")));
    }
}
