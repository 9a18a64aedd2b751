//! Reads the numbers of the whole store for the metrics: parked runs, late triggers, and when tokens expire.
//!
//! A reading costs a few queries for each tenant. So a client that asks for the metrics gets a recent reading if there is
//! one. Clients that ask at the same time wait for one reading together, for at most [`MAX_WAIT`]. After that they get
//! the previous one, whose age is a metric, too.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use flowcell_contract::Tenant;
use flowcell_runtime::{
    limits::MAX_WATCHED_RUNS,
    ports::{MaybeStoreError, ParkedRuns, StoreError},
};
use parking_lot::Mutex;

use crate::{
    Host,
    drive::triggers::{TriggerTenants, Triggers},
    observe::metrics::{Fleet, TenantFleet},
    operate::{identity::Identify, policy::OPERATORS},
};

/// Minimum time between two readings.
pub const MIN_READ_INTERVAL: Duration = Duration::from_secs(5);
/// Readings take at most the time divided by this number.
pub const READ_SHARE: u32 = 20;
/// Minimum time between two readings of the tokens, of which there may be many.
pub const TOKENS_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum time for which a client waits for a reading.
pub const MAX_WAIT: Duration = Duration::from_secs(5);

/// Reads the numbers of a store. Cloning is cheap.
#[derive(Clone)]
pub struct FleetReader(Arc<Inner>);

struct Inner {
    host: Host,
    owners: Arc<dyn TriggerTenants>,
    triggers: Arc<Triggers>,
    identity: Arc<dyn Identify>,
    /// The time at which this reader was made, in milliseconds since 1970.
    began: u64,
    /// Held while the store is read.
    next: Arc<tokio::sync::Mutex<NextReading>>,
    last: Mutex<Option<Arc<Fleet>>>,
    /// The errors of tenants whose numbers cannot be read, as they are in the log.
    failures: Mutex<HashMap<Tenant, String>>,
    tokens: Mutex<TokenEnds>,
}

/// When the tokens in use expire, as it was read last.
#[derive(Default)]
struct TokenEnds {
    /// The time of the next reading. `None`: at once.
    next: Option<Instant>,
    /// The first expiry of each tenant, in milliseconds since 1970.
    ends: HashMap<Tenant, u64>,
    /// True if the last reading failed.
    has_failed: bool,
}

/// When the store may be read again.
#[derive(Default)]
struct NextReading {
    /// `None`: at once.
    at: Option<Instant>,
    /// True if the last reading failed.
    has_failed: bool,
}

impl FleetReader {
    /// Creates a reader of the tenants that these triggers are for. `identity` knows their tokens.
    pub fn new(
        host: Host,
        owners: Arc<dyn TriggerTenants>,
        triggers: Arc<Triggers>,
        identity: Arc<dyn Identify>,
    ) -> FleetReader {
        let began = host.now();
        FleetReader(Arc::new(Inner {
            host,
            owners,
            triggers,
            identity,
            began,
            next: Arc::default(),
            last: Mutex::default(),
            failures: Mutex::default(),
            tokens: Mutex::default(),
        }))
    }

    /// Returns the time at which this reader was made, in milliseconds since 1970.
    pub fn began(&self) -> u64 {
        self.0.began
    }

    /// Returns a recent reading, or else the last one that succeeded. Until one has succeeded, it is an empty one of the time
    /// at which this reader was made, so that its age can be watched. Returns `None` if the store has no lists of runs.
    pub async fn read(&self) -> Option<Arc<Fleet>> {
        let inner = self.0.clone();
        inner.host.runs()?;
        let reading = async {
            let mut next = inner.next.clone().lock_owned().await;
            if next.at.is_some_and(|at| Instant::now() < at) {
                return;
            }
            let inner = inner.clone();
            // The reading goes on if the client stops to wait, and `next` is held until it ends.
            let read = tokio::task::spawn_blocking(move || {
                let began = Instant::now();
                let fleet = inner.read_store();
                next.at = Some(Instant::now() + interval_after(began.elapsed()));
                match fleet {
                    Ok(fleet) => {
                        *inner.last.lock() = Some(Arc::new(fleet));
                        next.has_failed = false;
                    }
                    Err(error) => {
                        if !next.has_failed {
                            error
                                .warn("cannot read the numbers of parked runs for the metrics; they stay as they were");
                        }
                        next.has_failed = true;
                    }
                }
            });
            if let Err(broken) = read.await
                && broken.is_panic()
            {
                std::panic::resume_unwind(broken.into_panic());
            }
        };
        // After this time the previous reading has to do.
        _ = tokio::time::timeout(MAX_WAIT, reading).await;
        let last = self.0.last.lock().clone();
        Some(last.unwrap_or_else(|| Arc::new(Fleet { read: self.0.began, ..Fleet::default() })))
    }
}

impl Inner {
    fn read_store(&self) -> Result<Fleet, StoreError> {
        let read = self.host.now();
        let before = self.last.lock().clone();
        let (mut tenants, mut failures) = (HashMap::new(), self.failures.lock());
        for tenant in self.owners.tenants() {
            match self.read_tenant(&tenant, read) {
                Ok(fleet) => {
                    failures.remove(&tenant);
                    tenants.insert(tenant, fleet);
                }
                Err(error) if error.is_outage() => return Err(error),
                // The numbers of the others are right. Those of this tenant stay as they were.
                Err(error) => {
                    let text = error.to_string();
                    if failures.get(&tenant) != Some(&text) {
                        error.warn(format_args!(
                            "cannot read the numbers of `{tenant}` for the metrics; they stay as they were"
                        ));
                        failures.insert(tenant.clone(), text);
                    }
                    if let Some(known) = before.as_ref().and_then(|before| before.tenants.get(&tenant)) {
                        tenants.insert(tenant, known.clone());
                    }
                }
            }
        }
        let mut token_ends = self.read_token_ends(read)?;
        token_ends.retain(|tenant, _| tenant.as_str() == OPERATORS || tenants.contains_key(tenant));
        Ok(Fleet { read, tenants, token_ends })
    }

    /// Returns when the tokens in use expire, read at most once in each [`TOKENS_INTERVAL`].
    fn read_token_ends(&self, now: u64) -> Result<HashMap<Tenant, u64>, StoreError> {
        let mut known = self.tokens.lock();
        if known.next.is_some_and(|next| Instant::now() < next) {
            return Ok(known.ends.clone());
        }
        match self.identity.token_ends(now) {
            Ok(ends) => (known.ends, known.has_failed) = (ends, false),
            Err(error) if error.is_outage() => return Err(error),
            Err(error) => {
                if !std::mem::replace(&mut known.has_failed, true) {
                    error.warn("cannot read when tokens expire for the metrics; the times stay as they were");
                }
            }
        }
        known.next = Some(Instant::now() + TOKENS_INTERVAL);
        Ok(known.ends.clone())
    }

    fn read_tenant(&self, tenant: &Tenant, now: u64) -> Result<TenantFleet, StoreError> {
        let parked = match self.host.runs() {
            Some(lists) => lists.parked(tenant, MAX_WATCHED_RUNS)?,
            None => ParkedRuns::default(),
        };
        Ok(TenantFleet { parked, triggers: self.triggers.late(tenant, self.began, now)? })
    }
}

/// Returns the time until the next reading after one that took `took`.
fn interval_after(took: Duration) -> Duration {
    MIN_READ_INTERVAL.max(took * (READ_SHARE - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_readings_are_rare() {
        let ms = Duration::from_millis;
        for (took, interval) in [(0, 5_000), (250, 5_000), (1_000, 19_000), (60_000, 1_140_000)] {
            assert_eq!(interval_after(ms(took)), ms(interval), "{took}");
        }
    }
}
