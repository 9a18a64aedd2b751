//! The jobs that a worker knows, with the times of their next batches.
//!
//! A worker reads the jobs of the store only at intervals and when a caller has changed one, and not after each batch:
//! a batch says by itself whether its job goes on.

use std::collections::{HashMap, HashSet};

use flowcell_contract::Tenant;
use tokio::time::Instant;

/// The jobs that a worker knows.
pub(super) struct Agenda {
    /// The time of the next read of the store.
    next_read: Instant,
    jobs: Vec<(Tenant, String)>,
    /// The times at which the next batches of jobs may begin.
    due: HashMap<String, Instant>,
}

impl Agenda {
    /// Creates an agenda without jobs, which is to be read at `now`.
    pub(super) fn new(now: Instant) -> Agenda {
        Agenda { next_read: now, jobs: Vec::new(), due: HashMap::new() }
    }

    pub(super) fn is_read_due(&self, now: Instant) -> bool {
        now >= self.next_read
    }

    /// Reads the store again without a delay, because a caller has changed a job.
    pub(super) fn read_again(&mut self, now: Instant) {
        self.next_read = now;
    }

    /// Keeps the jobs until the next read, because the store cannot be read.
    pub(super) fn read_later(&mut self, next_read: Instant) {
        self.next_read = next_read;
    }

    /// Takes the jobs that a read has found. A new job comes before those that had a batch since it was found.
    pub(super) fn read(&mut self, jobs: Vec<(Tenant, String)>, now: Instant, next_read: Instant) {
        self.due.retain(|id, _| jobs.iter().any(|(_, known)| known == id));
        jobs.iter().for_each(|(_, id)| _ = self.due.entry(id.clone()).or_insert(now));
        (self.jobs, self.next_read) = (jobs, next_read);
    }

    /// Sets the time of the next batch of a job. `None`: the job does not go on in this process. Then the store is read
    /// again, because a caller may have resumed the job meanwhile.
    pub(super) fn end_batch(&mut self, id: &str, now: Instant, next: Option<Instant>) {
        match next {
            Some(next) if self.jobs.iter().any(|(_, known)| known == id) => _ = self.due.insert(id.to_owned(), next),
            Some(_) => {}
            None => {
                self.jobs.retain(|(_, known)| known != id);
                self.due.remove(id);
                self.next_read = now;
            }
        }
    }

    /// Returns at most `limit` jobs whose next batches may begin, those that wait longest first, and one of each
    /// tenant. Jobs of busy tenants are left out.
    pub(super) fn ready(&self, now: Instant, busy: &HashSet<Tenant>, limit: usize) -> Vec<(Tenant, String)> {
        let mut ready: Vec<_> = self.jobs.iter().filter(|(_, id)| self.due_of(id) <= now).collect();
        ready.sort_by_key(|(_, id)| self.due_of(id));
        let mut taken = busy.clone();
        let free = ready.into_iter().filter(|(tenant, _)| taken.insert(tenant.clone()));
        free.take(limit).cloned().collect()
    }

    /// Returns the time of the next read or of the next batch that is not due yet.
    pub(super) fn next(&self, now: Instant) -> Instant {
        let due = self.jobs.iter().map(|(_, id)| self.due_of(id)).filter(|due| *due > now);
        due.chain([self.next_read]).min().unwrap_or(self.next_read)
    }

    fn due_of(&self, id: &str) -> Instant {
        self.due.get(id).copied().unwrap_or(self.next_read)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn job(tenant: &str, id: &str) -> (Tenant, String) {
        (Tenant::from(tenant), id.to_owned())
    }

    #[test]
    fn batches_need_no_further_read_of_the_store() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let mut agenda = Agenda::new(now);
        assert!(agenda.is_read_due(now));
        agenda.read(vec![job("a", "1"), job("a", "2"), job("b", "3")], now, now + second * 60);
        let none = HashSet::new();
        assert_eq!(agenda.ready(now, &none, 9), [job("a", "1"), job("b", "3")]);
        assert_eq!(agenda.ready(now, &none, 1), [job("a", "1")]);
        assert_eq!(agenda.ready(now, &HashSet::from(["a".into()]), 9), [job("b", "3")]);
        agenda.end_batch("1", now, Some(now));
        agenda.end_batch("3", now, Some(now + second));
        assert!(!agenda.is_read_due(now));
        assert_eq!(agenda.next(now), now + second);
        agenda.end_batch("2", now, Some(now - second));
        assert_eq!(agenda.ready(now, &none, 9), [job("a", "2")], "the one that waits longest");
        assert_eq!(agenda.ready(now + second, &none, 9), [job("a", "2"), job("b", "3")]);
        // A job that has ended is not begun again, and another read may find it again.
        agenda.end_batch("2", now, None);
        assert_eq!(agenda.ready(now, &none, 9), [job("a", "1")]);
        assert!(agenda.is_read_due(now));
        agenda.read(vec![job("b", "3")], now, now + second * 60);
        agenda.end_batch("1", now, Some(now));
        assert_eq!(
            agenda.ready(now + second, &none, 9),
            [job("b", "3")],
            "a job that a read no longer finds has ended"
        );
    }
}
