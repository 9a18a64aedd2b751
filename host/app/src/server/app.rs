//! What all requests share.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{extract::FromRequestParts, http::request::Parts};
use flowcell_contract::{RunId, Tenant};
use flowcell_runtime::rows::Runs;
use tokio::sync::{Mutex, MutexGuard, Notify, Semaphore, watch};

use super::{
    document::Document,
    fault::Fault,
    identity::{Caller, Identify},
    live::Audiences,
};
use crate::{Host, driving::Entrance};

/// Streams of events at a time.
pub(crate) const SUBSCRIBERS: usize = 2_000;
/// The folder in that of the flows in which other tenants have theirs.
const TENANTS: &str = ".tenants";
/// Requests for runs of a given id are taken one after the other if their ids share one of so many places.
const PLACES: usize = 64;

/// What all requests share.
pub(crate) struct App {
    pub(crate) host: Host,
    pub(crate) identity: Arc<dyn Identify>,
    /// The flows of `local`; those of other tenants are below it.
    pub(super) flows: PathBuf,
    pub(crate) entrance: Entrance,
    /// Is told when a run that nobody drives may be able to move.
    pub(crate) moved: Arc<Notify>,
    pub(crate) audiences: Arc<Audiences>,
    pub(crate) subscribers: Arc<Semaphore>,
    pub(super) document: Document,
    draining: AtomicBool,
    /// Streams end when this becomes true.
    pub(crate) ends: watch::Sender<bool>,
    starting: [Mutex<()>; PLACES],
}

impl App {
    pub(crate) fn new(
        host: Host,
        identity: Arc<dyn Identify>,
        flows: PathBuf,
        entrance: Entrance,
        moved: Arc<Notify>,
        audiences: Arc<Audiences>,
    ) -> App {
        App {
            host,
            identity,
            flows,
            entrance,
            moved,
            audiences,
            subscribers: Arc::new(Semaphore::new(SUBSCRIBERS)),
            document: Document::default(),
            draining: AtomicBool::new(false),
            ends: watch::Sender::new(false),
            starting: std::array::from_fn(|_| Mutex::default()),
        }
    }

    /// Where the flows of a tenant are.
    pub(super) fn flows_of(&self, tenant: &Tenant) -> PathBuf {
        match *tenant == Tenant::local() {
            true => self.flows.clone(),
            false => self.flows.join(TENANTS).join(tenant.as_str()).join("flows"),
        }
    }

    /// The host of a caller's tenant, within its policy.
    pub(super) fn host_of(&self, caller: &Caller) -> Result<Host, Fault> {
        Ok(self.identity.host(&self.host, &caller.tenant)?)
    }

    /// New runs are turned away from now on.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Whether new runs are turned away.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Waits until nobody else starts a run of this id.
    pub(crate) async fn starting(&self, tenant: &Tenant, run: &RunId) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        (tenant, run).hash(&mut hasher);
        self.starting[hasher.finish() as usize % PLACES].lock().await
    }
}

/// One request: who asks, and the host of their tenant.
pub(crate) struct Request {
    pub(crate) app: Arc<App>,
    pub(crate) caller: Caller,
    pub(crate) host: Host,
}

impl Request {
    /// What the store tells of the tenant's runs.
    pub(crate) fn runs(&self) -> Result<&dyn Runs, Fault> {
        self.host.runs().ok_or_else(|| Fault::internal("there is no store that lasts"))
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
        Ok(Request { app: app.clone(), host: app.host_of(&caller)?, caller })
    }
}
