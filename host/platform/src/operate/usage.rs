//! The daily usage of tenants, and the check of their quotas.
//!
//! | module | contents |
//! |---|---|
//! | [`counted`] | wrappers that count a run's usage, and refuse work of tenants over quota |
//! | [`pause`] | quotas that pause runs |
//! | [`shares`] | permits for servers that tenants share |
//!
//! Usage is counted in memory. About once a second, [`Usage::flush`] adds it to the day's document in the store. It
//! also reads the usage of other processes and the policy. So processes on a shared store know each other's counts
//! within a second or two. The maximum cost of a model or an image is reserved before the call, and corrected
//! afterwards. If the process dies in between, the day keeps the maximum cost. A day is one of UTC.

pub(crate) mod counted;
pub(crate) mod pause;
pub(crate) mod shares;

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use flowcell_contract::{Failure, Tenant};
use flowcell_engine::{Engine, Permit};
use flowcell_runtime::{
    LiveRuns, QuotaHold, Quotas as _,
    ports::{DocumentStore, MaybeStoreError, StoreError, Timers},
    quota::window_end,
};
use flowcell_services::egress::Egress;
use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};

use self::{
    pause::Room,
    shares::{SharedServer, Shares},
};
use crate::{
    observe::metrics::Metrics,
    operate::{
        documents::Documents,
        policy::{OnExhausted, PerDay, Policy},
        quota::QuotaError,
    },
};

/// The document kind of a day's usage.
const USAGE: &str = "usage";
/// Seconds of a day.
const DAY_SECONDS: u64 = 24 * 60 * 60;
/// Maximum number of tries to change a day's document while other processes change it.
const MAX_WRITE_TRIES: usize = 100;
/// Interval between calls of [`Usage::flush`].
pub const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// The usage of a tenant in a day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Used {
    /// Milliseconds of computing time of the tenant's attempts.
    pub compute_ms: f64,
    /// Number of events of the tenant's runs.
    pub events: u64,
    /// Approximate number of bytes of the events of the tenant's runs, and of the tenant's files, as written to the
    /// store. Files that users upload count, too.
    pub written_bytes: u64,
    /// Costs of models and images, in USD, as far as they are known.
    pub model_usd: f64,
}

/// Counts the usage of tenants. Cloning is cheap.
#[derive(Clone)]
pub struct Usage(Arc<Shared>);

struct Shared {
    /// True once [`Usage::begin`] was called. Until then, usage is not counted.
    counts: AtomicBool,
    engine: Engine,
    live: Arc<LiveRuns>,
    egress: Egress,
    documents: Arc<dyn DocumentStore>,
    timers: Arc<dyn Timers>,
    metrics: Metrics,
    tenants: Mutex<HashMap<Tenant, Counted>>,
    /// Locked while usage is added to the store, and shared while usage of the store is added to that of this process. So
    /// all usage is in one of both.
    flushing: RwLock<()>,
    /// The tenants that were removed while this process ran. Nothing is counted for them.
    removed: Mutex<HashSet<Tenant>>,
    shares: Shares,
}

#[derive(Default)]
struct Counted {
    /// The usage that the document store does not have yet.
    fresh: Used,
    /// The usage that is being added to the document store.
    leaving: Used,
    /// The day's usage at the last read of the document store.
    known: Used,
    day: u64,
    most: PerDay,
    /// The last day on which a quota has paused a run of the tenant in this process.
    held_on: Option<u64>,
}

/// The usage of a tenant in a day, at one time.
struct DayUsage {
    /// The usage that the document store has.
    stored: Used,
    /// The same, with the usage that only this process has.
    whole: Used,
}

impl Counted {
    /// Returns the day's usage, as far as this process knows it.
    fn used(&self) -> Used {
        self.known.plus(&self.leaving).plus(&self.fresh)
    }
}

impl Usage {
    pub(crate) fn new(
        engine: Engine,
        live: Arc<LiveRuns>,
        egress: Egress,
        documents: Arc<dyn DocumentStore>,
        timers: Arc<dyn Timers>,
        metrics: Metrics,
    ) -> Usage {
        let counts = AtomicBool::new(false);
        Usage(Arc::new(Shared {
            counts,
            engine,
            live,
            egress,
            documents,
            timers,
            metrics,
            tenants: Mutex::default(),
            flushing: RwLock::default(),
            removed: Mutex::default(),
            shares: Shares::default(),
        }))
    }

    /// Starts to count. Without this call, usage is not counted, as in a process that serves only the operator.
    pub fn begin(&self) {
        self.0.counts.store(true, Ordering::Release);
    }

    pub(crate) fn counts(&self) -> bool {
        self.0.counts.load(Ordering::Acquire)
    }

    /// Checks a tenant's daily quotas against the store and the counts of this process. Without quotas the method does
    /// not read the store.
    pub(crate) fn check(&self, tenant: &Tenant, most: &PerDay) -> Result<(), QuotaError> {
        if !self.counts() || most.is_unlimited() {
            return Ok(());
        }
        let (today, seconds) = self.today();
        most.check(&self.learn(tenant, today, *most)?.whole, seconds)
    }

    /// Checks the daily quotas of a tenant whose attempts fail beyond them, against the counts of this process and those
    /// that [`Usage::flush`] last read. The method does not read the store. If the quotas pause runs, the driver has asked
    /// [`Quotas::hold`](flowcell_runtime::Quotas::hold) before the attempt.
    pub(crate) fn admits(&self, tenant: &Tenant) -> Result<(), QuotaError> {
        if !self.counts() {
            return Ok(());
        }
        let (today, seconds) = self.today();
        match self.0.tenants.lock().get(tenant) {
            Some(counted) if counted.day == today && counted.most.on_exhausted == OnExhausted::Fail => {
                counted.most.check(&counted.used(), seconds)
            }
            _ => Ok(()),
        }
    }

    /// Waits for a permit for one call of a server. Dropping the permit returns it. Returns `None` if usage is not
    /// counted, since then no tenants share the server.
    pub(crate) async fn permit(&self, tenant: &Tenant, server: SharedServer<'_>) -> Result<Option<Permit>, Failure> {
        match self.counts() {
            true => self.0.shares.take(tenant, server).await.map(Some),
            false => Ok(None),
        }
    }

    /// Returns the usage of this day in the document store.
    pub fn of_today(&self, tenant: &Tenant) -> Result<Used, StoreError> {
        Ok(self.read(tenant, self.today().0)?.0)
    }

    /// Drops the counts of a removed tenant that the store does not have, and counts nothing for it from now on.
    pub(crate) fn forget(&self, tenant: &Tenant) {
        self.0.removed.lock().insert(tenant.clone());
        self.0.tenants.lock().remove(tenant);
    }

    /// Counts again for a tenant with the name of a removed one.
    pub(crate) fn readmit(&self, tenant: &Tenant) {
        self.0.removed.lock().remove(tenant);
    }

    fn count(&self, tenant: &Tenant, add: impl FnOnce(&mut Used)) {
        if self.0.removed.lock().contains(tenant) {
            return;
        }
        let mut tenants = self.0.tenants.lock();
        match tenants.get_mut(tenant) {
            Some(counted) => add(&mut counted.fresh),
            None => add(&mut tenants.entry(tenant.clone()).or_default().fresh),
        }
    }

    /// Adds the counts of this process to the day's documents in the store. Also reads the usage and the policy of each
    /// of these tenants again, and sets the policy's limits.
    pub fn flush(&self) -> Result<(), StoreError> {
        for (tenant, computed) in self.0.engine.take_computing_times() {
            self.0.metrics.add_compute_time(&tenant, computed);
            self.count(&tenant, |used| used.compute_ms += computed.as_secs_f64() * 1e3);
        }
        let tenants: Vec<_> = self.0.tenants.lock().keys().cloned().collect();
        // An error of one tenant does not stop the others.
        tenants.iter().map(|tenant| self.flush_one(tenant)).fold(Ok(()), Result::and)
    }

    fn flush_one(&self, tenant: &Tenant) -> Result<(), StoreError> {
        let (today, _) = self.today();
        let policy = Policy::read(&*self.0.documents, tenant)?;
        policy.apply_limits(&self.0.engine, &self.0.live, &self.0.egress, tenant);
        let _alone = self.0.flushing.write();
        let leaving = self.0.tenants.lock().get_mut(tenant).map(|counted| {
            counted.leaving = std::mem::take(&mut counted.fresh);
            counted.leaving
        });
        let leaving = leaving.unwrap_or_default();
        let known = match leaving == Used::default() {
            true => self.read(tenant, today).map(|(used, _)| used),
            false => self.add(tenant, today, &leaving),
        };
        let mut tenants = self.0.tenants.lock();
        let Some(counted) = tenants.get_mut(tenant) else { return known.map(drop) };
        counted.leaving = Used::default();
        let known = known.inspect_err(|_| counted.fresh = counted.fresh.plus(&leaving))?;
        (counted.known, counted.day, counted.most) = (known, today, policy.per_day);
        // The runs that a quota has paused ask for it again.
        if leaving == Used::default() && counted.fresh == Used::default() && counted.held_on != Some(today) {
            tenants.remove(tenant);
        }
        Ok(())
    }

    /// Adds usage to the day's document in the store, and returns the sum.
    fn add(&self, tenant: &Tenant, day: u64, more: &Used) -> Result<Used, StoreError> {
        let sum = self.change(tenant, day, |used| Ok::<_, QuotaError>(used.plus(more)));
        sum.map_err(|error| error.to_store_error())
    }

    /// Changes the day's document in the store, and returns its new content.
    fn change(
        &self,
        tenant: &Tenant,
        day: u64,
        to: impl Fn(&Used) -> Result<Used, QuotaError>,
    ) -> Result<Used, QuotaError> {
        for _ in 0..MAX_WRITE_TRIES {
            let (used, version) = self.read(tenant, day)?;
            let sum = to(&used)?;
            if self.documents(tenant).put(USAGE, &key(day), Some(&sum), version).map_err(StoreError::from)? {
                return Ok(sum);
            }
        }
        Err(StoreError::conflict("too many processes write the usage of a tenant at the same time").into())
    }

    fn read(&self, tenant: &Tenant, day: u64) -> Result<(Used, u64), StoreError> {
        Ok(self.documents(tenant).get(USAGE, &key(day))?.unwrap_or_default())
    }

    /// Reads the quotas and the usage of a tenant from the store, so that [`Quotas::hold`] knows them.
    pub(crate) fn load(&self, tenant: &Tenant) -> Result<Room, StoreError> {
        let quotas = Policy::read(&*self.0.documents, tenant)?.per_day;
        let (day, _) = self.today();
        let model_usd = self.learn(tenant, day, quotas)?.stored.model_usd;
        Ok(Room { is_closed: self.hold(tenant, None).is_some(), quotas, day, model_usd })
    }

    /// Reads the day's usage of a tenant from the store. Keeps it if the tenant's quotas pause runs or have done so before.
    fn learn(&self, tenant: &Tenant, day: u64, quotas: PerDay) -> Result<DayUsage, StoreError> {
        let _flushed = self.0.flushing.read();
        let (stored, _) = self.read(tenant, day)?;
        let is_counted = self.counts() && !self.0.removed.lock().contains(tenant);
        let mut tenants = self.0.tenants.lock();
        if is_counted && quotas.on_exhausted == OnExhausted::Pause {
            tenants.entry(tenant.clone()).or_default();
        }
        let Some(counted) = tenants.get_mut(tenant).filter(|_| is_counted) else {
            return Ok(DayUsage { stored, whole: stored });
        };
        (counted.known, counted.day, counted.most) = (stored, day, quotas);
        Ok(DayUsage { stored, whole: counted.used() })
    }

    /// Returns the error of a call that costs at most `usd`, and for which too little of the quota is left today: the run
    /// waits for the next day, if the quota pauses runs and is large enough for the call.
    fn refuse_cost(&self, tenant: &Tenant, quotas: PerDay, usd: f64, error: QuotaError) -> QuotaError {
        let (day, seconds) = self.today();
        let most = quotas.model_usd.filter(|_| quotas.on_exhausted == OnExhausted::Pause);
        match (most, error) {
            (Some(most), QuotaError::Day { .. }) if usd <= most => {
                // Without the store, the count of the last second holds.
                let _ = self.learn(tenant, day, quotas);
                self.hold(tenant, Some(usd));
                let until = window_end(self.0.timers.now());
                let hold = QuotaHold { quota: "perDay.modelUsd".into(), until, usd: Some(usd) };
                QuotaError::Paused { hold, seconds }
            }
            (Some(most), QuotaError::Day { .. }) => QuotaError::TooCostly { usd, most },
            (_, error) => error,
        }
    }

    fn documents<'a>(&'a self, tenant: &'a Tenant) -> Documents<'a> {
        Documents { store: &*self.0.documents, tenant }
    }

    /// Returns the current day, and the seconds until it ends.
    fn today(&self) -> (u64, u64) {
        let now = self.0.timers.now() / 1_000;
        (now / DAY_SECONDS, DAY_SECONDS - now % DAY_SECONDS)
    }
}

/// Formats the days since 1970, so that the keys sort in order.
fn key(day: u64) -> String {
    format!("{day:08}")
}

impl Used {
    fn plus(&self, other: &Used) -> Used {
        Used {
            compute_ms: self.compute_ms + other.compute_ms,
            events: self.events + other.events,
            written_bytes: self.written_bytes + other.written_bytes,
            model_usd: self.model_usd + other.model_usd,
        }
    }
}

impl PerDay {
    /// Checks whether a tenant with the usage `used` may use more. `seconds` is the time until the day ends, for the
    /// error.
    fn check(&self, used: &Used, seconds: u64) -> Result<(), QuotaError> {
        let over = |what, used: f64, most: Option<f64>| match most.filter(|most| used >= *most) {
            Some(most) => Err(QuotaError::Day { what, most, seconds }),
            None => Ok(()),
        };
        over("computeMs", used.compute_ms, self.compute_ms.map(|most| most as f64))?;
        over("events", used.events as f64, self.events.map(|most| most as f64))?;
        over("writtenMib", used.written_bytes as f64 / f64::from(1 << 20), self.written_mib.map(|most| most as f64))?;
        over("modelUsd", used.model_usd, self.model_usd)
    }

    /// Returns the name of the quota that pauses a tenant's runs after this usage. `usd` is the maximum cost of the call
    /// that a run waits to make. A call that costs more than the whole quota waits for nothing.
    fn pauses(&self, used: &Used, usd: Option<f64>) -> Option<&'static str> {
        if self.on_exhausted == OnExhausted::Fail {
            return None;
        }
        if let Err(QuotaError::Day { what, .. }) = self.check(used, 0) {
            return Some(what);
        }
        let (usd, most) = (usd?, self.model_usd?);
        (usd <= most && used.model_usd + usd > most).then_some("modelUsd")
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use flowcell_contract::Json;
    use flowcell_runtime::ports::Document;

    use super::*;
    use crate::{Host, tenants::Tenants};

    /// Documents of a host. Before a day's usage is written, a function is called once.
    struct Watched {
        documents: Arc<dyn DocumentStore>,
        before: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    }

    impl DocumentStore for Watched {
        fn get(&self, tenant: &Tenant, kind: &str, key: &str) -> Result<Option<Document>, StoreError> {
            self.documents.get(tenant, kind, key)
        }

        fn list(&self, tenant: &Tenant, kind: &str, after: &str, limit: usize) -> Result<Vec<Document>, StoreError> {
            self.documents.list(tenant, kind, after, limit)
        }

        fn last(&self, tenant: &Tenant, kind: &str) -> Result<Option<Document>, StoreError> {
            self.documents.last(tenant, kind)
        }

        fn write(
            &self,
            tenant: &Tenant,
            kind: &str,
            key: &str,
            value: Option<&Json>,
            expected_version: u64,
        ) -> Result<bool, StoreError> {
            if kind == USAGE
                && let Some(before) = self.before.lock().take()
            {
                before();
            }
            self.documents.write(tenant, kind, key, value, expected_version)
        }
    }

    /// While the usage of a tenant is written, neither the store nor the new counts have it. A quota that it has used up
    /// refuses attempts, pauses runs and refuses new runs nevertheless.
    #[test]
    fn t2_usage_that_is_being_stored_counts() {
        for on_exhausted in [OnExhausted::Fail, OnExhausted::Pause] {
            let host = Host::builder().build().unwrap();
            let tenants = Tenants::of(&host);
            tenants.create("a").unwrap();
            let per_day = PerDay { events: Some(5), on_exhausted, ..PerDay::default() };
            tenants.set_policy("a", &Policy { per_day, ..Policy::default() }).unwrap();
            let of_host = &host.usage().0;
            let watched = Arc::new(Watched { documents: of_host.documents.clone(), before: Mutex::default() });
            let usage = Usage::new(
                of_host.engine.clone(),
                of_host.live.clone(),
                of_host.egress.clone(),
                watched.clone(),
                of_host.timers.clone(),
                of_host.metrics.clone(),
            );
            usage.begin();
            let tenant = Tenant::from("a");
            usage.count(&tenant, |used| used.events += 1);
            usage.flush().unwrap();
            usage.check(&tenant, &per_day).unwrap();
            usage.count(&tenant, |used| used.events += 5);
            let (during, (told, begun)) = (usage.clone(), mpsc::channel());
            *watched.before.lock() = Some(Box::new(move || {
                let tenant = Tenant::from("a");
                let stops = match on_exhausted {
                    OnExhausted::Fail => during.admits(&tenant).is_err(),
                    OnExhausted::Pause => during.hold(&tenant, None).is_some(),
                };
                assert!(stops, "{on_exhausted:?}");
                thread::spawn(move || told.send(during.check(&tenant, &per_day)));
            }));
            usage.flush().unwrap();
            assert!(matches!(begun.recv().unwrap(), Err(QuotaError::Day { .. })), "{on_exhausted:?}");
            // Nothing is counted twice.
            assert_eq!(usage.of_today(&tenant).unwrap().events, 6);
            let counted = usage.0.tenants.lock().get(&tenant).map(Counted::used);
            assert_eq!(counted.map(|used| used.events), Some(6));
        }
    }
}
