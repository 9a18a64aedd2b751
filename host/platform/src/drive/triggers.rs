//! Flows that start by themselves: at times, when somebody posts to them, when a run of another flow has ended.
//!
//! | room | what it is |
//! |---|---|
//! | [`live`] | the triggers of a tenant: those of its flows, and those that were bound to them |
//! | [`record`] | what the document store has of them: bindings, and how far each has come |
//! | [`start`] | one start: its run's id and input |
//! | [`times`] | times that are due |
//! | [`ends`] | runs that have ended |
//! | [`rate`] | how many runs chains of ends start |
//! | `lanes` | the work, a lane for each tenant |
//! | [`hook`] | posts that come in |
//! | [`operation`] | what people do with triggers |
//!
//! **Why nothing starts twice.** The id of a run that a trigger starts is a function of what started it: of the flow, the
//! trigger, and the time, the id of the post, or the run that has ended. A run begins only if nobody had its id, in every
//! store and across processes, and an id is never used again, not even after its run was removed. So whatever is looked at
//! again, after a crash or by another process, leads to the same id.
//!
//! **Why nothing is left out.** How far a trigger has come is a mark in the document store. It is moved only after the runs that
//! it passes are on stable storage. A process that dies before that leaves the mark where it was, and whoever looks next
//! sees the same again. A post is answered after its run is on stable storage; whoever gets no answer posts again.
//!
//! What cannot be done now (a quota is used up, the store does not answer) is tried again at the next look. What can never be
//! done (the flow has errors, its input does not fit) is told in the log, and passed.

pub mod ends;
pub mod hook;
mod lanes;
pub mod live;
pub mod operation;
pub mod rate;
pub mod record;
pub mod start;
pub mod times;

use std::{collections::HashMap, sync::Arc, time::Duration};

use flowcell_contract::{RunId, Tenant};
use flowcell_runtime::{FlowRunner, ports::StoreError};
use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, mpsc},
    time::Instant,
};

use self::{
    ends::Ended,
    lanes::{Job, Lanes},
    live::Live,
    rate::Rate,
};
use crate::{FlowLibrary, Host, drive::driving::AdmitError};

/// Time between two looks at folders and the document store.
pub const LOOK: Duration = Duration::from_secs(5);
/// Runs that have ended in this process and wait to be looked at; more are found in the store.
const ENDS: usize = 1_024;

/// Whose flows start, and where.
pub trait Owners: Send + Sync {
    /// Whose triggers are looked at.
    fn tenants(&self) -> Vec<Tenant>;

    /// The host of a tenant, within its policy; none if nobody can say what that is.
    fn host(&self, tenant: &Tenant) -> Option<Host>;

    /// The flows of a tenant.
    fn library(&self, tenant: &Tenant) -> FlowLibrary;

    /// Admits a run, and returns once it is on stable storage.
    fn admit(&self, tenant: Tenant, runner: FlowRunner) -> BoxFuture<'_, Result<(), AdmitError>>;

    /// Whether new runs are turned away.
    fn is_draining(&self) -> bool {
        false
    }
}

/// Why a look came to no end.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The flows cannot be read.
    #[error(transparent)]
    Flows(#[from] crate::LibraryError),
}

/// The triggers of a server.
pub struct Triggers {
    owners: Arc<dyn Owners>,
    /// As they were when they were looked at last.
    seen: Mutex<HashMap<Tenant, Arc<[Live]>>>,
    changed: Notify,
    ends: mpsc::Sender<(Tenant, Ended)>,
    ended: tokio::sync::Mutex<mpsc::Receiver<(Tenant, Ended)>>,
    /// What chains of ends may start.
    rate: Rate,
}

impl Triggers {
    /// Those of the flows of some tenants.
    pub fn new(owners: Arc<dyn Owners>) -> Triggers {
        let (ends, ended) = mpsc::channel(ENDS);
        Triggers {
            owners,
            seen: Mutex::default(),
            changed: Notify::new(),
            ends,
            ended: tokio::sync::Mutex::new(ended),
            rate: Rate::default(),
        }
    }

    /// Sees the triggers of all tenants, so that posts to them are known from the first on.
    pub async fn open(&self) {
        for tenant in self.owners.tenants() {
            if let Err(error) = self.refresh(&tenant).await {
                tracing::warn!("the triggers of `{tenant}` cannot be read: {error}");
            }
        }
    }

    /// Starts what is due for as long as this is waited for. No tenant waits for another.
    pub async fn attend(&self) {
        let mut ended = self.ended.lock().await;
        let (mut lanes, mut working) = (Lanes::default(), FuturesUnordered::new());
        lanes.see(self.owners.tenants(), Instant::now());
        loop {
            let (now, draining) = (Instant::now(), self.owners.is_draining());
            working.extend(lanes.jobs(now, !draining).into_iter().map(|(tenant, job)| self.work(tenant, job)));
            let until = if draining { now + LOOK } else { lanes.next(now) };
            tokio::select! {
                Some((tenant, next)) = working.next() => lanes.done(&tenant, next, Instant::now()),
                Some((tenant, end)) = ended.recv() => lanes.end(tenant, end, now),
                () = self.changed.notified() => {
                    lanes.see(self.owners.tenants(), now);
                    lanes.change(Instant::now());
                }
                () = tokio::time::sleep_until(until) => lanes.see(self.owners.tenants(), now),
            }
        }
    }

    /// Does something for a tenant, and tells when to look at it again if it was looked at.
    async fn work(&self, tenant: Tenant, job: Job) -> (Tenant, Option<Duration>) {
        let next = match job {
            Job::Ended(end) => {
                self.has_ended(&tenant, &end).await;
                None
            }
            Job::Look { scans } => Some(self.look_now(&tenant, scans).await.unwrap_or_else(|error| {
                tracing::warn!("the triggers of `{tenant}` cannot be looked at: {error}");
                LOOK
            })),
        };
        (tenant, next)
    }

    /// A run has ended in this process: what waits for that starts at once, and not only after the next look.
    pub fn tell(&self, tenant: &Tenant, end: Ended) {
        // What finds no place is found in the store.
        _ = self.ends.try_send((tenant.clone(), end));
    }

    /// Something about triggers was changed.
    pub fn changed(&self) {
        self.changed.notify_one();
    }

    /// The triggers of a tenant as they are now.
    pub async fn refresh(&self, tenant: &Tenant) -> Result<Arc<[Live]>, LookError> {
        match self.owners.host(tenant) {
            Some(host) => self.read(&host).await,
            None => Ok([].into()),
        }
    }

    /// Looks at the triggers of a tenant as if it were a given time, in milliseconds since 1970. Answers which runs it has
    /// started.
    pub async fn look(&self, tenant: &Tenant, now: u64) -> Result<Vec<RunId>, LookError> {
        let Some(host) = self.owners.host(tenant) else { return Ok(Vec::new()) };
        let live = self.read(&host).await?;
        self.start(&host, &live, now, true).await
    }

    async fn look_now(&self, tenant: &Tenant, scans: bool) -> Result<Duration, LookError> {
        let Some(host) = self.owners.host(tenant) else { return Ok(LOOK) };
        let live = self.read(&host).await?;
        self.start(&host, &live, host.now(), scans).await?;
        Ok(times::until_next(&live, host.now()).unwrap_or(LOOK))
    }

    async fn read(&self, host: &Host) -> Result<Arc<[Live]>, LookError> {
        let (blocking, library) = (host.clone(), self.owners.library(host.tenant()));
        let read = tokio::task::spawn_blocking(move || live::read(&blocking, &library)).await;
        let live: Arc<[Live]> = read.map_err(|error| StoreError(error.to_string().into()))??.into();
        self.seen.lock().insert(host.tenant().clone(), live.clone());
        Ok(live)
    }

    /// Starts what is due at a time, and what was asked for; if it scans, what waits for runs that have ended.
    async fn start(&self, host: &Host, live: &[Live], now: u64, scans: bool) -> Result<Vec<RunId>, LookError> {
        let mut started = self.start_due(host, live, now).await?;
        started.extend(self.start_asked(host, live).await?);
        if scans {
            started.extend(self.look_for_ends(host, live, now).await?);
        }
        Ok(started)
    }

    fn known(&self, tenant: &Tenant) -> Arc<[Live]> {
        self.seen.lock().get(tenant).cloned().unwrap_or_else(|| [].into())
    }
}
