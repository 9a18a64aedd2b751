//! Triggers start flows: at scheduled times, on incoming posts, and when a run of another flow has ended.
//!
//! A look reads the triggers of one tenant from its flows and documents, and starts the runs that are due. Every
//! [`SCAN_INTERVAL`](ends::SCAN_INTERVAL), a look also scans the store for runs that have ended.
//!
//! | module | contents |
//! |---|---|
//! | [`live`] | the triggers of a tenant: declared in the flows' files, or bound to flows by users |
//! | [`record`] | the documents of triggers: settings, and the progress of each trigger |
//! | [`start`] | one start: its run's id and input |
//! | [`times`] | starts at due times, and starts by hand |
//! | [`ends`] | runs that have ended |
//! | [`rate`] | the rate limit of chained starts |
//! | `lanes` | the work queue of each tenant |
//! | [`webhook`] | incoming posts |
//! | [`reply`] | the answers of runs to posts |
//! | [`operation`] | users' operations on triggers |
//!
//! **No start happens twice.** The id of a triggered run is a function of its cause: the flow, the trigger, and the
//! time, the post's id or the ended run. A run begins only if its id is new, in every store and across processes. An id
//! is never used again, even after its run was removed. So a repeated look, after a crash or by another process, leads
//! to the same id.
//!
//! **No start is lost.** The progress of a trigger is a mark in the document store: the time up to which the trigger's
//! causes are handled. The mark moves past a cause only after the run of this cause is on stable storage. If a process
//! dies earlier, the mark stays, and the next look finds the same causes again. A post is answered after its run is on
//! stable storage, so a sender without an answer posts again.
//!
//! A temporary failure (an exceeded quota, an unavailable store) is retried at the next look. A permanent failure (an
//! error in the flow, an input that does not fit) is logged and skipped.

pub mod ends;
mod lanes;
pub mod live;
pub mod operation;
pub mod post_limiter;
pub mod rate;
pub mod record;
mod refused_posts;
pub mod reply;
pub mod start;
pub mod times;
pub mod webhook;

use std::{collections::HashMap, sync::Arc, time::Duration};

use flowcell_contract::{RunId, Tenant};
use flowcell_engine::FairSemaphore;
use flowcell_flow::triggers::{Cause, End};
use flowcell_runtime::{
    FlowRunner, RunStatus,
    ports::{MaybeStoreError, RunGroup, StoreError},
};
use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, mpsc},
    time::Instant,
};

use self::{
    ends::EndedRun,
    lanes::{Job, Lanes},
    live::TenantTrigger,
    post_limiter::PostLimiter,
    rate::Rate,
    refused_posts::RefusedPosts,
};
use crate::{
    FlowLibrary, Host,
    drive::{run_locks::RunLocks, supervisor::AdmitError},
    observe::metrics::{LateTriggers, Metrics},
};

/// Maximum interval between two readings of a tenant's triggers from the flows' files and the document store.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum number of ended runs that are reported and not yet queued in the lanes of their tenants. If more
/// runs end, scans find their ends in the store.
const MAX_REPORTED_ENDS: usize = 1_024;

/// The tenants whose triggers are active, with their hosts and flows, and the admission of the runs that triggers
/// start.
pub trait TriggerTenants: Send + Sync {
    /// Returns the tenants whose triggers are active.
    fn tenants(&self) -> Vec<Tenant>;

    /// Returns a host for a tenant, with the tenant's policy. Returns `None` if the policy is unavailable.
    fn host(&self, tenant: &Tenant) -> Option<Host>;

    /// Returns the library with a tenant's flows.
    fn library(&self, tenant: &Tenant) -> FlowLibrary;

    /// Admits a run, and returns once it is on stable storage.
    fn admit(&self, tenant: Tenant, runner: FlowRunner) -> BoxFuture<'_, Result<(), AdmitError>>;

    /// Returns whether the process refuses new runs.
    fn is_draining(&self) -> bool {
        false
    }

    /// Returns the metrics that count posts. `None` counts none.
    fn metrics(&self) -> Option<&Metrics> {
        None
    }
}

/// An error that aborts a look, which reads the triggers of a tenant and starts the runs that are due.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The flows cannot be read.
    #[error(transparent)]
    Flows(#[from] crate::LibraryError),
}

/// Returns the groups of runs whose ends the enabled triggers of a tenant wait for.
pub(crate) fn waited_ends(host: &Host, library: &FlowLibrary) -> Result<Vec<RunGroup>, LookError> {
    let mut groups = Vec::new();
    for live in live::read(host, library)?.triggers.iter().filter(|live| live.enabled) {
        let Cause::Event { flow, status } = &live.trigger.cause else { continue };
        for end in status {
            let group = RunGroup { flow: Some(flow.clone()), status: Some(end_status(*end)) };
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
    }
    Ok(groups)
}

fn end_status(end: End) -> RunStatus {
    match end {
        End::Succeeded => RunStatus::Succeeded,
        End::Failed => RunStatus::Failed,
        End::Cancelled => RunStatus::Cancelled,
    }
}

/// The triggers of a server.
pub struct Triggers {
    owners: Arc<dyn TriggerTenants>,
    /// The triggers of each tenant, as they were last read.
    seen: Mutex<HashMap<Tenant, live::Read>>,
    changed: Notify,
    ends: mpsc::Sender<(Tenant, EndedRun)>,
    ended: tokio::sync::Mutex<mpsc::Receiver<(Tenant, EndedRun)>>,
    /// The triggers that wait for ends of runs, and whose progress has begun.
    waiting_for_ends: ends::Begun,
    /// Limits how often the ends of triggered runs start further runs.
    rate: Rate,
    /// The runs that posts are starting.
    posts: RunLocks,
    /// The refused posts of senders that are not authenticated.
    refused_posts: RefusedPosts,
    /// Limits the refused posts of an address to a trigger.
    post_limiter: PostLimiter,
    /// Permits of the posts that wait for answers.
    waiting: FairSemaphore,
    listeners: reply::AnswerListeners,
}

impl Triggers {
    /// Creates the triggers of these tenants.
    pub fn new(owners: Arc<dyn TriggerTenants>) -> Triggers {
        let (ends, ended) = mpsc::channel(MAX_REPORTED_ENDS);
        Triggers {
            owners,
            seen: Mutex::default(),
            changed: Notify::new(),
            ends,
            ended: tokio::sync::Mutex::new(ended),
            waiting_for_ends: ends::Begun::default(),
            rate: Rate::default(),
            posts: RunLocks::default(),
            refused_posts: RefusedPosts::default(),
            post_limiter: PostLimiter::default(),
            waiting: FairSemaphore::new(reply::MAX_WAITING_POSTS),
            listeners: reply::AnswerListeners::default(),
        }
    }

    /// Reads the triggers of all tenants, so that posts to them are accepted from the start. Returns their number.
    pub async fn open(&self) -> usize {
        let mut count = 0;
        for tenant in self.owners.tenants() {
            match self.refresh(&tenant).await {
                Ok(triggers) => count += triggers.len(),
                Err(error) => tracing::warn!("cannot read the triggers of `{tenant}`: {error}"),
            }
        }
        count
    }

    /// Reads the triggers of all tenants again, and starts what is due. Returns their number.
    pub async fn reread(&self) -> usize {
        let count = self.open().await;
        self.changed();
        count
    }

    /// Starts due runs until the caller drops the future. No tenant waits for another.
    pub async fn attend(&self) {
        let mut ended = self.ended.lock().await;
        let (mut lanes, mut working) = (Lanes::default(), FuturesUnordered::new());
        lanes.set_tenants(self.owners.tenants(), Instant::now());
        loop {
            let (now, draining) = (Instant::now(), self.owners.is_draining());
            working.extend(lanes.take_jobs(now, !draining).into_iter().map(|(tenant, job)| self.run_job(tenant, job)));
            let until = if draining { now + LOOK_INTERVAL } else { lanes.next_look(now) };
            tokio::select! {
                Some((tenant, next)) = working.next() => lanes.finish_job(&tenant, next, Instant::now()),
                Some((tenant, end)) = ended.recv() => lanes.queue_end(tenant, end, now),
                () = self.changed.notified() => {
                    lanes.set_tenants(self.owners.tenants(), now);
                    lanes.make_looks_due(Instant::now());
                }
                () = tokio::time::sleep_until(until) => lanes.set_tenants(self.owners.tenants(), now),
            }
        }
    }

    /// Runs a job for a tenant, and returns the tenant. After a [`Job::Look`], also returns the time until the tenant's
    /// triggers have to be read again. `None` after any other job.
    async fn run_job(&self, tenant: Tenant, job: Job) -> (Tenant, Option<Duration>) {
        let next = match job {
            Job::Ended(end) => {
                ends::start_waiting_flows(self, &tenant, &end).await;
                None
            }
            Job::Look { scans } => Some(self.look_now(&tenant, scans).await.unwrap_or_else(|error| {
                error.warn(format_args!("cannot check the triggers of `{tenant}`"));
                LOOK_INTERVAL
            })),
        };
        (tenant, next)
    }

    /// Reports that a run of this process has ended, so that the flows that wait for its end start at once.
    pub fn report_end(&self, tenant: &Tenant, end: EndedRun) {
        // If the queue is full, a look finds the end in the store.
        _ = self.ends.try_send((tenant.clone(), end));
    }

    /// Reports that a user has changed triggers, so that the triggers are read again at once.
    pub fn changed(&self) {
        self.changed.notify_one();
    }

    /// Reads the current triggers of a tenant and returns them. Posts and ended runs that come later are compared with
    /// these triggers. The list is empty if the tenant's policy is unavailable.
    pub async fn refresh(&self, tenant: &Tenant) -> Result<Arc<[TenantTrigger]>, LookError> {
        match self.owners.host(tenant) {
            Some(host) => self.read(&host).await,
            None => Ok([].into()),
        }
    }

    /// Starts the runs that a tenant's triggers have to start at the time `now`, in milliseconds since 1970: at due
    /// times, by hand, and after ended runs. Returns the started runs.
    pub async fn look(&self, tenant: &Tenant, now: u64) -> Result<Vec<RunId>, LookError> {
        let Some(host) = self.owners.host(tenant) else { return Ok(Vec::new()) };
        let live = self.read(&host).await?;
        self.start(&host, &live, now, true).await
    }

    async fn look_now(&self, tenant: &Tenant, scans: bool) -> Result<Duration, LookError> {
        let Some(host) = self.owners.host(tenant) else { return Ok(LOOK_INTERVAL) };
        let live = self.read(&host).await?;
        self.start(&host, &live, host.now(), scans).await?;
        Ok(times::time_until_next(&live, host.now()).unwrap_or(LOOK_INTERVAL))
    }

    async fn read(&self, host: &Host) -> Result<Arc<[TenantTrigger]>, LookError> {
        let (blocking, library) = (host.clone(), self.owners.library(host.tenant()));
        let read = tokio::task::spawn_blocking(move || live::read(&blocking, &library)).await;
        let read = read.map_err(|error| StoreError(error.to_string().into()))??;
        let live = read.triggers.clone();
        let mut seen = self.seen.lock();
        let known = seen.get(host.tenant());
        for text in read.unusable.iter().filter(|text| known.is_none_or(|known| !known.unusable.contains(*text))) {
            tracing::warn!(tenant = %host.tenant(), "{text}");
        }
        seen.insert(host.tenant().clone(), read);
        Ok(live)
    }

    /// Starts the runs that are due at `now`, and the runs that users start by hand. With `scans`, it also scans for
    /// ended runs, and starts the flows that wait for them.
    async fn start(&self, host: &Host, live: &[TenantTrigger], now: u64, scans: bool) -> Result<Vec<RunId>, LookError> {
        let mut started = times::start_due(&*self.owners, host, live, now).await?;
        started.extend(times::start_requested(&*self.owners, host, live).await?);
        // A trigger waits for ends from the first look at it on, and not only from the first scan on.
        if scans || self.waiting_for_ends.lacks_any(host.tenant(), live) {
            started.extend(ends::look_for_ends(self, host, live, now).await?);
        }
        Ok(started)
    }

    /// Returns how many of a tenant's triggers are late at the time `now`: a due time was [`LATE_MS`](times::LATE_MS) ago,
    /// and no run was started for it. Due times before `began` do not count for triggers that skip missed times. All times
    /// are in milliseconds since 1970. The triggers are those of the last look.
    pub fn late(&self, tenant: &Tenant, began: u64, now: u64) -> Result<LateTriggers, StoreError> {
        let live = self.triggers_at_last_look(tenant);
        // Most tenants have no such trigger, and need no read.
        if !live.iter().any(|live| live.enabled && matches!(live.trigger.cause, Cause::Time { .. })) {
            return Ok(LateTriggers::default());
        }
        match self.owners.host(tenant) {
            Some(host) => times::find_late(&host, &live, began, now),
            None => Ok(LateTriggers::default()),
        }
    }

    fn triggers_at_last_look(&self, tenant: &Tenant) -> Arc<[TenantTrigger]> {
        self.seen.lock().get(tenant).map_or_else(|| [].into(), |seen| seen.triggers.clone())
    }
}
