//! The documents of the store: the progress of each tenant with its waiting messages, and the lease of the sender.
//!
//! The document of a tenant belongs to the tenant, so it is removed together with the tenant.

use std::collections::{BTreeMap, HashSet};

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
const LEASE: &str = "lease";
/// The time in milliseconds for which a process may send the messages of a shared store.
pub(super) const LEASE_MS: u64 = 15_000;
/// The time in milliseconds before the place in the list of runs in which a run may still appear. The driver records the
/// time of a change by its own clock and commits it later.
pub(super) const OVERLAP_MS: u64 = 60_000;
/// Maximum number of runs of a tenant that are remembered as seen.
pub(super) const MAX_SEEN: usize = 4_000;
/// The age in milliseconds above which an event is old news after a start.
pub(super) const MAX_AGE_MS: u64 = 24 * 3_600_000;

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
    /// The runs and the waits that were seen lately, by short digests, with their times.
    pub(super) seen: BTreeMap<String, u64>,
    /// Other reported events, with the times until which they are remembered.
    pub(super) once: BTreeMap<String, u64>,
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
        }
    }

    /// Returns the time from which a wait counts, and from which a second look reads the runs.
    pub(super) fn overlap(&self) -> u64 {
        self.complete.saturating_sub(OVERLAP_MS).max(self.floor)
    }

    /// Remembers a run or a wait. Returns false if it was seen before.
    pub(super) fn see(&mut self, key: String, time: u64) -> bool {
        let is_new = !self.seen.contains_key(&key);
        if is_new {
            self.seen.insert(key, time);
        }
        is_new
    }

    /// Forgets what no later look reads again, and the oldest ones above [`MAX_SEEN`].
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
struct Lease {
    holder: String,
    until: u64,
}

/// Reads the document of a tenant, with its version.
pub(super) fn read(host: &Host, tenant: &Tenant) -> Result<Option<(StoredTenant, u64)>, DocumentError> {
    Documents { store: host.documents(), tenant }.get(KIND, PROGRESS)
}

/// Writes the document of a tenant. Returns false if another process has written it.
pub(super) fn write(host: &Host, tenant: &Tenant, stored: &StoredTenant, version: u64) -> Result<bool, DocumentError> {
    Documents { store: host.documents(), tenant }.put(KIND, PROGRESS, Some(stored), version)
}

/// Takes or renews the lease of the sender. Returns the milliseconds for which it holds, or `None` if another process has
/// it.
pub(super) fn take_lease(host: &Host, holder: &str) -> Result<Option<u64>, DocumentError> {
    let operators = Tenant::from(OPERATORS);
    let documents = Documents { store: host.documents(), tenant: &operators };
    let found: Option<(Lease, u64)> = documents.get(KIND, LEASE)?;
    let now = host.now();
    let (held, version) = match &found {
        Some((lease, version)) => {
            // A lease that ends later than one of now comes from a clock that was ahead.
            let is_valid = now < lease.until && lease.until <= now + LEASE_MS;
            (is_valid.then_some(lease), *version)
        }
        None => (None, 0),
    };
    match held {
        Some(lease) if lease.holder != holder => Ok(None),
        Some(lease) if lease.until - now > LEASE_MS / 2 => Ok(Some(lease.until - now)),
        _ => {
            let lease = Lease { holder: holder.to_owned(), until: now + LEASE_MS };
            Ok(documents.put(KIND, LEASE, Some(&lease), version)?.then_some(LEASE_MS))
        }
    }
}

/// Returns the names of targets in a document that the file does not have any more, with their waiting messages.
pub(super) fn lost_targets(queues: &mut TenantQueues, known: &HashSet<&str>) -> Vec<(String, u64)> {
    let lost: Vec<String> = queues.0.keys().filter(|name| !known.contains(name.as_str())).cloned().collect();
    lost.into_iter().filter_map(|name| Some((name.clone(), queues.0.remove(&name)?.len()))).collect()
}
