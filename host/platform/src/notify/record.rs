//! The documents of the store: the progress of each tenant with its waiting messages, and the lease of the sender.
//!
//! The document of a tenant belongs to the tenant, so it is removed together with the tenant.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use flowcell_contract::{RunId, Tenant};
use serde::{Deserialize, Serialize};

use super::queue::TenantQueues;
use crate::{
    Host,
    operate::{
        documents::{DocumentError, Documents},
        policy::OPERATORS,
    },
};

/// The kind of the documents.
const KIND: &str = "notify";
/// The key of the document of a tenant.
const PROGRESS: &str = "progress";
/// The key of the document of the lease.
const LEASE_KEY: &str = "lease";
/// The time for which a process may send the messages of a shared store.
pub(super) const LEASE: Duration = Duration::from_secs(15);
/// The time in milliseconds before the place in the list of runs in which a run may still appear. The driver records the
/// time of a change by its own clock and commits it later.
pub(super) const OVERLAP_MS: u64 = 60_000;
/// Maximum number of runs of a tenant that are remembered as seen.
pub(super) const MAX_SEEN: usize = 4_000;
/// Maximum number of waits of a tenant that are remembered as reported.
pub(super) const MAX_REPORTED: usize = 2_000;
/// The age in milliseconds above which an event is old news after a start.
pub(super) const MAX_AGE_MS: u64 = 24 * 3_600_000;

/// The time in milliseconds after which the secrets of a tenant are looked at again.
const SECRETS_MS: u64 = 3_600_000;
/// The time in milliseconds after which the tokens of the credentials of a tenant are looked at again.
const CREDENTIALS_MS: u64 = 300_000;

/// The progress of a tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Progress {
    /// Events before this time are old news, in milliseconds since 1970.
    pub(super) floor: u64,
    /// The time of the last run that was looked at.
    pub(super) time: u64,
    /// The last run that was looked at.
    pub(super) run: Option<RunId>,
    /// All runs were looked at as they were at this time.
    pub(super) complete: u64,
    /// A second look begins at this time at the earliest, since runs before it were forgotten.
    pub(super) forgotten: u64,
    /// The place at which the next second look goes on, if the last one was not finished.
    #[serde(skip)]
    pub(super) second: Option<SecondLook>,
    /// The runs that were seen lately, by short digests, with their times.
    pub(super) seen: BTreeMap<String, u64>,
    /// The reported waits of each run that goes on, with their times. Both are short digests.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) reported: BTreeMap<String, BTreeMap<String, u64>>,
    /// Waits before this time may have been reported and forgotten.
    pub(super) reported_from: u64,
    /// Other reported events, with the times until which they are remembered.
    pub(super) once: BTreeMap<String, u64>,
    /// The secrets are looked at again from this time on.
    #[serde(skip)]
    pub(super) next_look_at_secrets: u64,
    /// The tokens of credentials are looked at again from this time on.
    #[serde(skip)]
    pub(super) next_look_at_credentials: u64,
}

/// The place in a second look.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SecondLook {
    /// The time at which the second look began.
    pub(super) began: u64,
    /// The time of the last run that was looked at.
    pub(super) since: u64,
    /// The last run that was looked at.
    pub(super) after: Option<RunId>,
}

impl Progress {
    /// Creates the progress of a tenant whose events count from a time on.
    pub(super) fn starting(floor: u64) -> Progress {
        Progress { floor, time: floor, complete: floor, ..Progress::default() }
    }

    /// Adjusts the progress to the clock. If it was set back, runs with earlier times follow.
    pub(super) fn set_clock(&mut self, now: u64) {
        if now < self.time.max(self.complete) {
            (self.time, self.run) = (self.time.min(now), self.run.take().filter(|_| self.time <= now));
            self.floor = self.floor.min(now);
            self.complete = self.complete.min(now);
            self.forgotten = self.forgotten.min(now);
            self.reported_from = self.reported_from.min(now);
            (self.next_look_at_secrets, self.next_look_at_credentials) = (0, 0);
            self.second = None;
        }
    }

    /// Returns whether the secrets are looked at now: once an hour, since all of them are read.
    pub(super) fn begins_look_at_secrets(&mut self, now: u64) -> bool {
        let is_due = now >= self.next_look_at_secrets;
        if is_due {
            self.next_look_at_secrets = now + SECRETS_MS;
        }
        is_due
    }

    /// Returns whether the tokens of credentials are looked at now: every five minutes, since only they are read.
    pub(super) fn begins_look_at_credentials(&mut self, now: u64) -> bool {
        let is_due = now >= self.next_look_at_credentials;
        if is_due {
            self.next_look_at_credentials = now + CREDENTIALS_MS;
        }
        is_due
    }

    /// Returns the time from which a second look reads the runs.
    pub(super) fn overlap(&self) -> u64 {
        self.complete.saturating_sub(OVERLAP_MS).max(self.floor)
    }

    /// Remembers a run. Returns false if it was seen before.
    pub(super) fn see(&mut self, key: String, time: u64) -> bool {
        let is_new = !self.seen.contains_key(&key);
        if is_new {
            self.seen.insert(key, time);
        }
        is_new
    }

    /// Forgets what no later look reads again, and the oldest ones above [`MAX_SEEN`] and [`MAX_REPORTED`].
    pub(super) fn prune(&mut self, now: u64) {
        let from = self.overlap();
        self.seen.retain(|_, time| *time >= from);
        if self.seen.len() > MAX_SEEN {
            let mut times: Vec<u64> = self.seen.values().copied().collect();
            times.sort_unstable();
            // A quarter goes at once, so that this is rare.
            let last = times[self.seen.len() - MAX_SEEN * 3 / 4];
            self.seen.retain(|_, time| *time > last);
            self.forgotten = self.forgotten.max(last.saturating_add(1));
        }
        let reported: usize = self.reported.values().map(BTreeMap::len).sum();
        if reported > MAX_REPORTED {
            let mut times: Vec<u64> = self.reported.values().flat_map(BTreeMap::values).copied().collect();
            times.sort_unstable();
            let last = times[reported - MAX_REPORTED * 3 / 4];
            self.reported.values_mut().for_each(|waits| waits.retain(|_, at| *at > last));
            self.reported.retain(|_, waits| !waits.is_empty());
            self.reported_from = self.reported_from.max(last.saturating_add(1));
        }
        self.once.retain(|_, until| now < *until);
    }

    /// Remembers another event until a time. Returns false if it was reported before.
    pub(super) fn tell_once(&mut self, key: String, until: u64) -> bool {
        self.once.insert(key, until).is_none()
    }
}

/// The document of a tenant.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct StoredTenant {
    #[serde(flatten)]
    pub(super) progress: Progress,
    #[serde(default)]
    pub(super) queues: TenantQueues,
}

/// The document of the lease.
#[derive(Serialize, Deserialize)]
struct LeaseDocument {
    /// The process that has the lease. Empty: no process.
    holder: String,
}

/// Reads the document of a tenant, with its version.
pub(super) fn read(host: &Host, tenant: &Tenant) -> Result<Option<(StoredTenant, u64)>, DocumentError> {
    Documents { store: host.documents(), tenant }.get(KIND, PROGRESS)
}

/// Writes the document of a tenant. Returns false if another process has written it.
pub(super) fn write(host: &Host, tenant: &Tenant, stored: &StoredTenant, version: u64) -> Result<bool, DocumentError> {
    Documents { store: host.documents(), tenant }.put(KIND, PROGRESS, Some(stored), version)
}

/// The lease of a process that sends the messages of a shared store. No clocks are compared: each process measures by itself
/// how long the document has not changed.
pub(super) struct Lease {
    holder: String,
    /// The version of the document that this process saw last, and the time at which it saw it first.
    seen: Option<(u64, Instant)>,
}

impl Lease {
    pub(super) fn new(holder: String) -> Lease {
        Lease { holder, seen: None }
    }

    /// Takes or renews the lease at `now`. Returns the time until which it holds, or `None` if another process has it. Another
    /// process loses it once it has not renewed it for [`LEASE`].
    pub(super) fn take(&mut self, host: &Host, now: Instant) -> Result<Option<Instant>, DocumentError> {
        let operators = Tenant::from(OPERATORS);
        let documents = Documents { store: host.documents(), tenant: &operators };
        let found: Option<(LeaseDocument, u64)> = documents.get(KIND, LEASE_KEY)?;
        let (holder, version) = found.map_or((String::new(), 0), |(lease, version)| (lease.holder, version));
        let since = match self.seen {
            Some((seen, since)) if seen == version => since,
            _ => {
                if holder == self.holder {
                    // This process did not get the answer to its own write, so it writes again.
                    return self.write(&documents, version, now);
                }
                // The document was read after `now`, and was written before the end of the read.
                let read = now.max(Instant::now());
                self.seen = Some((version, read));
                read
            }
        };
        let age = now.saturating_duration_since(since);
        match () {
            () if holder == self.holder && age < LEASE / 2 => Ok(Some(since + LEASE)),
            () if holder != self.holder && !holder.is_empty() && age < LEASE => Ok(None),
            () => self.write(&documents, version, now),
        }
    }

    fn write(
        &mut self,
        documents: &Documents<'_>,
        version: u64,
        now: Instant,
    ) -> Result<Option<Instant>, DocumentError> {
        let lease = LeaseDocument { holder: self.holder.clone() };
        if !documents.put(KIND, LEASE_KEY, Some(&lease), version)? {
            return Ok(None);
        }
        self.seen = Some((version + 1, now));
        Ok(Some(now + LEASE))
    }

    /// Gives the lease back, if this process has it, so that another process need not wait.
    pub(super) fn release(&self, host: &Host) -> Result<(), DocumentError> {
        let operators = Tenant::from(OPERATORS);
        let documents = Documents { store: host.documents(), tenant: &operators };
        let found: Option<(LeaseDocument, u64)> = documents.get(KIND, LEASE_KEY)?;
        let Some((_, version)) = found.filter(|(lease, _)| lease.holder == self.holder) else { return Ok(()) };
        documents.put(KIND, LEASE_KEY, Some(&LeaseDocument { holder: String::new() }), version).map(drop)
    }
}
