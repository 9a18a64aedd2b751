//! What all requests share.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    path::PathBuf,
    sync::{Arc, OnceLock, Weak, atomic::Ordering},
    time::Duration,
};

use axum::{extract::FromRequestParts, http::request::Parts};
use flowcell_contract::{RunId, Tenant};
use flowcell_engine::{Place, Room};
use flowcell_runtime::ports::Runs;
use serde_json::Value;
use tokio::sync::{Mutex, MutexGuard, watch};

use super::{
    failures::Failures,
    fault::Fault,
    identity::{Caller, Identify},
    limits::Limits,
    live::Audiences,
    owners::Households,
};
use flowcell_platform::{Host, driving::Entrance, triggers::Triggers};

/// Requests that are answered at a time, of which no tenant has more than it leaves to others.
pub(crate) const REQUESTS: u64 = 1_024;
/// Flows that are checked, or made ready to run, at a time, of which no tenant has more than it leaves to others.
const CHECKS: u64 = 8;
/// Requests that read whole journals at a time, of all tenants; no tenant has more than it leaves to others.
const JOURNALS: u64 = 8;
/// Files that are put at a time, of which no tenant has more than it leaves to others.
const UPLOADS: u64 = 16;
/// Requests for runs of a given id are taken one after the other if their ids share one of so many places.
const PLACES: usize = 64;

/// What all requests share.
pub(crate) struct App {
    pub(crate) host: Host,
    pub(crate) identity: Arc<dyn Identify>,
    households: Arc<Households>,
    pub(crate) triggers: Arc<Triggers>,
    pub(crate) entrance: Entrance,
    pub(crate) audiences: Arc<Audiences>,
    pub(crate) subscribers: Room,
    pub(crate) heartbeat: Duration,
    pub(crate) requests: Room,
    pub(crate) failures: Failures,
    /// For what computes while a request waits.
    pub(crate) checks: Room,
    /// For requests that read whole journals.
    pub(crate) journals: Room,
    /// For files while they come.
    pub(crate) uploads: Room,
    pub(crate) document: OnceLock<Arc<Value>>,
    /// Streams end when this becomes true.
    pub(crate) ends: watch::Sender<bool>,
    starting: [Mutex<()>; PLACES],
}

impl App {
    pub(crate) fn new(
        households: Arc<Households>,
        triggers: Arc<Triggers>,
        audiences: Arc<Audiences>,
        limits: &Limits,
    ) -> App {
        App {
            host: households.host.clone(),
            identity: households.identity.clone(),
            entrance: households.entrance.clone(),
            households,
            triggers,
            audiences,
            subscribers: Room::new(limits.subscribers),
            heartbeat: limits.heartbeat,
            requests: Room::new(REQUESTS),
            failures: Failures::default(),
            checks: Room::new(CHECKS),
            journals: Room::new(JOURNALS),
            uploads: Room::new(UPLOADS),
            document: OnceLock::new(),
            ends: watch::Sender::new(false),
            starting: std::array::from_fn(|_| Mutex::default()),
        }
    }

    /// Where the flows of a tenant are.
    pub(crate) fn flows_of(&self, tenant: &Tenant) -> PathBuf {
        self.households.flows_of(tenant)
    }

    /// The host of a caller's tenant, within its policy.
    pub(crate) fn host_of(&self, caller: &Caller) -> Host {
        self.host.of(caller.tenant.clone()).within(caller.policy.clone())
    }

    /// Notes in the audit log what a caller has done, if it has shown a token.
    pub(crate) async fn note(self: Arc<App>, caller: &Caller, action: String, subject: String) -> Result<(), Fault> {
        if caller.token.is_none() {
            return Ok(());
        }
        let caller = caller.clone();
        let noted = tokio::task::spawn_blocking(move || self.identity.note(&caller, &action, &subject));
        Ok(noted.await.map_err(Fault::internal)??)
    }

    /// New runs are turned away from now on.
    pub(crate) fn drain(&self) {
        self.households.draining.store(true, Ordering::Release);
    }

    /// Whether new runs are turned away.
    pub(crate) fn is_draining(&self) -> bool {
        self.households.draining.load(Ordering::Acquire)
    }

    /// Waits until nobody else starts a run of this id.
    pub(crate) async fn starting(&self, tenant: &Tenant, run: &RunId) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        (tenant, run).hash(&mut hasher);
        self.starting[hasher.finish() as usize % PLACES].lock().await
    }
}

/// One request: who asks, and the host of their tenant.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) app: Arc<App>,
    pub(crate) caller: Caller,
    pub(crate) host: Host,
    /// Its place among the requests that are answered, for as long as it is answered. Work that goes on after its caller has
    /// left holds the place until it ends.
    pub(crate) place: Weak<Place>,
}

impl Request {
    /// What the store tells of the tenant's runs.
    pub(crate) fn runs(&self) -> Result<&dyn Runs, Fault> {
        self.host.runs().ok_or_else(|| Fault::internal("there is no store that lasts"))
    }

    /// Whether its caller is still known, of a request that takes long.
    pub(crate) fn is_known(&self) -> bool {
        self.app.identity.still_knows(&self.caller)
    }

    /// Notes in the audit log what its caller has done.
    pub(crate) async fn note(&self, action: &str, subject: String) -> Result<(), Fault> {
        self.app.clone().note(&self.caller, action.to_owned(), subject).await
    }

    /// The tenant.
    pub(crate) fn tenant(&self) -> &Tenant {
        &self.caller.tenant
    }
}

impl FromRequestParts<Arc<App>> for Request {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Request, Fault> {
        let caller = parts.extensions.get::<Caller>().cloned();
        let caller = caller.ok_or_else(|| Fault::internal("a route without a scope asks who calls"))?;
        let place = parts.extensions.get::<Arc<Place>>().map(Arc::downgrade).unwrap_or_default();
        Ok(Request { app: app.clone(), host: app.host_of(&caller), caller, place })
    }
}
