//! The state that all requests share, and a request with its caller.

use std::{
    path::PathBuf,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{extract::FromRequestParts, http::request::Parts};
use flowcell_contract::{RunId, Tenant};
use flowcell_engine::{FairSemaphore, Permit};
use flowcell_runtime::{
    ports::{RunRow, Runs},
    shared::SharedRuns,
};
use serde_json::Value;
use tokio::sync::watch;
use tracing::Instrument;

use super::{
    api_error::ApiError,
    auth_rate_limiter::AuthRateLimiter,
    broadcast::Broadcasts,
    cookie::LoginCookie,
    facts::RememberedFacts,
    feeds::Feeds,
    identity::{Caller, Identify, Scope},
    limits::Limits,
    machines::Machines,
    permit::{MAX_HOOK_BYTES, MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES, RequestPermit},
    sign_in_limiter::SignInLimiter,
    tenant_directory::TenantDirectory,
};
use crate::blocking::blocking;
use flowcell_platform::{
    FlowLibrary, Host, LibraryError,
    fleet::FleetReader,
    notify::Notifications,
    reload::Reloader,
    run_locks::{RunLock, RunLocks},
    sign_in::SignIns,
    supervisor::AdmissionQueue,
    triggers::Triggers,
    waiting,
};

/// Maximum number of requests that the server answers at the same time. A [`FairSemaphore`] divides them among
/// tenants.
pub(crate) const MAX_REQUESTS: u64 = 1_024;
/// Maximum number of flows that the server checks or prepares at the same time. A [`FairSemaphore`] divides them among
/// tenants.
const MAX_CHECKS: u64 = 8;
/// Maximum number of requests that read whole journals at the same time. A [`FairSemaphore`] divides them among
/// tenants.
const MAX_JOURNAL_READS: u64 = 8;

/// Runs a change and the write of its audit entry to their end, in a tokio task of their own. Both continue even if the
/// caller disconnects or stops waiting.
pub(crate) async fn finish_detached<T: Send + 'static>(change: impl Future<Output = T> + Send + 'static) -> T {
    match tokio::spawn(change.in_current_span()).await {
        Ok(made) => made,
        Err(broken) => std::panic::resume_unwind(broken.into_panic()),
    }
}

/// The state that all requests share.
pub(crate) struct App {
    pub(crate) host: Host,
    pub(crate) identity: Arc<dyn Identify>,
    directory: Arc<TenantDirectory>,
    unready: AtomicBool,
    pub(crate) triggers: Arc<Triggers>,
    pub(crate) fleet: FleetReader,
    pub(crate) reloader: Arc<Reloader>,
    /// The notifications, whose links answer gates. `None`: there are none.
    pub(crate) notifications: Option<Notifications>,
    /// The sign-in by OpenID Connect. `None`: the server has none.
    pub(crate) sign_ins: Option<SignIns>,
    pub(crate) returns: SignInLimiter,
    pub(crate) machines: Machines,
    pub(crate) admission: AdmissionQueue,
    pub(crate) broadcasts: Arc<Broadcasts>,
    pub(crate) feeds: Arc<Feeds>,
    pub(crate) subscribers: FairSemaphore,
    pub(crate) heartbeat: Duration,
    pub(crate) requests: FairSemaphore,
    pub(crate) failures: AuthRateLimiter,
    pub(crate) cookie: LoginCookie,
    /// Permits for CPU-heavy work of requests, such as checking a flow; see [`MAX_CHECKS`].
    pub(crate) checks: FairSemaphore,
    /// Permits for requests that read whole journals; see [`MAX_JOURNAL_READS`].
    pub(crate) journals: FairSemaphore,
    /// Permits for the bytes of request bodies.
    pub(crate) bodies: FairSemaphore,
    /// Permits for the bytes of posts to triggers. Client addresses share them, because nothing proves the tenant of a
    /// post before its signature is checked.
    pub(crate) posts: FairSemaphore,
    /// Permits for the bytes of responses other than pages.
    pub(crate) responses: FairSemaphore,
    /// Permits for open WebSockets.
    pub(crate) sockets: FairSemaphore,
    pub(crate) document: OnceLock<Arc<Value>>,
    pub(crate) facts: RememberedFacts,
    /// Becomes true when the server ends. All event streams and WebSockets then end, too.
    pub(crate) ends: watch::Sender<bool>,
    starts: RunLocks,
}

impl App {
    pub(crate) fn new(
        directory: Arc<TenantDirectory>,
        triggers: Arc<Triggers>,
        (reloader, notifications, sign_ins): (Arc<Reloader>, Option<Notifications>, Option<SignIns>),
        (broadcasts, feeds): (Arc<Broadcasts>, Arc<Feeds>),
        limits: &Limits,
        port: u16,
    ) -> App {
        App {
            host: directory.host.clone(),
            identity: directory.identity.clone(),
            admission: directory.admission.clone(),
            fleet: FleetReader::new(
                directory.host.clone(),
                directory.clone(),
                triggers.clone(),
                directory.identity.clone(),
            ),
            directory,
            unready: AtomicBool::new(false),
            triggers,
            reloader,
            notifications,
            sign_ins,
            returns: SignInLimiter::default(),
            machines: Machines::default(),
            broadcasts,
            feeds,
            subscribers: FairSemaphore::new(limits.subscribers),
            heartbeat: limits.heartbeat,
            requests: FairSemaphore::new(MAX_REQUESTS),
            failures: AuthRateLimiter::default(),
            cookie: LoginCookie::new(port),
            checks: FairSemaphore::new(MAX_CHECKS),
            journals: FairSemaphore::new(MAX_JOURNAL_READS),
            bodies: FairSemaphore::new(MAX_REQUEST_BYTES),
            posts: FairSemaphore::new(MAX_HOOK_BYTES),
            responses: FairSemaphore::new(MAX_RESPONSE_BYTES),
            sockets: FairSemaphore::new(limits.sockets),
            document: OnceLock::new(),
            facts: RememberedFacts::default(),
            ends: watch::Sender::new(false),
            starts: RunLocks::default(),
        }
    }

    /// Returns the folder with the flows of a tenant.
    pub(crate) fn flows_of(&self, tenant: &Tenant) -> PathBuf {
        self.directory.flows_of(tenant)
    }

    /// Returns the host of the caller's tenant, with the tenant's policy. Its diagnostics name other flows of the tenant
    /// only if the caller may read them.
    pub(crate) fn host_of(&self, caller: &Caller) -> Host {
        let host = self.host.for_tenant(caller.tenant.clone()).with_policy(caller.policy.clone());
        if caller.scopes.has(Scope::FlowRead) { host } else { host.hiding_flows() }
    }

    /// Returns whether a caller may see and control all tenants: it has a token of the operators, or the server has no
    /// tenants and accepts callers of this machine without a token.
    pub(crate) fn acts_for_operators(&self, caller: &Caller) -> bool {
        caller.is_operator() || !self.identity.asks_for_tokens()
    }

    /// Writes an action of the caller to the audit log. Callers without a token are not logged.
    pub(crate) async fn write_audit_entry(
        self: Arc<App>,
        caller: &Caller,
        action: String,
        subject: String,
    ) -> Result<(), ApiError> {
        if caller.token.is_none() {
            return Ok(());
        }
        let caller = caller.clone();
        let noted = blocking(move || self.identity.note(&caller, &action, &subject));
        Ok(noted.await.map_err(ApiError::internal)??)
    }

    /// Makes `/readyz` answer 503 from now on.
    pub(crate) fn set_unready(&self) {
        self.unready.store(true, Ordering::Release);
    }

    /// Returns true if the server has been asked to stop.
    pub(crate) fn is_unready(&self) -> bool {
        self.unready.load(Ordering::Acquire) || self.is_draining()
    }

    /// Refuses new runs from now on.
    pub(crate) fn drain(&self) {
        self.directory.draining.store(true, Ordering::Release);
    }

    /// Returns true if the server refuses new runs because it is stopping.
    pub(crate) fn is_draining(&self) -> bool {
        self.directory.draining.load(Ordering::Acquire)
    }

    /// Returns an error if the server is stopping, or if its shared store is in an outage.
    pub(crate) fn require_store(&self) -> Result<(), ApiError> {
        if self.is_draining() {
            return Err(ApiError::draining());
        }
        self.host.shared().and_then(SharedRuns::outage).map_or(Ok(()), |error| Err(error.into()))
    }

    /// Waits until no other request starts a run with this id, and locks the id until the guard is dropped.
    pub(crate) async fn lock_start(&self, tenant: &Tenant, run: &RunId) -> RunLock<'_> {
        self.starts.lock(tenant, run).await
    }
}

/// One authenticated request: its caller, and the host of the caller's tenant.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) app: Arc<App>,
    pub(crate) caller: Caller,
    pub(crate) host: Host,
    /// The permits of the request, which the middleware holds until the request is answered. Blocking work holds them,
    /// too, so that they stay taken if the caller disconnects before the work ends.
    pub(crate) place: Weak<RequestPermit>,
}

impl Request {
    /// Returns the query interface of the store. It is an internal error if the host has no durable store.
    pub(crate) fn runs(&self) -> Result<&dyn Runs, ApiError> {
        self.host.runs().ok_or_else(|| ApiError::internal("the host has no durable store"))
    }

    /// Returns true if the caller's token is still valid. Long requests check this repeatedly.
    pub(crate) fn is_known(&self) -> bool {
        self.app.identity.still_knows(&self.caller)
    }

    /// Writes an action of the caller to the audit log.
    pub(crate) async fn write_audit_entry(&self, action: &str, subject: String) -> Result<(), ApiError> {
        self.app.clone().write_audit_entry(&self.caller, action.to_owned(), subject).await
    }

    /// Returns the tenant of the caller.
    pub(crate) fn tenant(&self) -> &Tenant {
        &self.caller.tenant
    }

    /// Returns the id of the caller's token for the audit log, or `local` without a token.
    pub(crate) fn actor(&self) -> &str {
        self.caller.token.as_deref().unwrap_or("local")
    }

    /// Lists the open waits of a run and of the runs that it has called: gates, events, messages and decisions.
    pub(crate) fn waiting(&self, run: &RunId) -> Result<Vec<Value>, ApiError> {
        Ok(waiting::list(&self.host, run)?)
    }

    /// Returns a run's row and the number of its next event. Returns 404 if the run does not exist or was removed.
    pub(crate) fn row(&self, run: &RunId) -> Result<(RunRow, u64), ApiError> {
        let row = self.runs()?.run(self.tenant(), run)?;
        row.filter(|(row, _)| row.status != "removed").ok_or_else(|| ApiError::run_not_found(run.as_str()))
    }

    /// Runs work on a thread that it may block. The work continues if the caller disconnects, and then holds the
    /// permits of the request until it ends.
    pub(crate) async fn blocking<T: Send + 'static>(
        self,
        work: impl FnOnce(&Request) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let place = self.place.upgrade();
        let working = blocking(move || {
            let _place = place;
            work(&self)
        });
        working.await.map_err(ApiError::internal)?
    }

    /// Runs CPU-heavy work, such as checking a flow, once the tenant gets a permit for checks. The work continues if
    /// the caller disconnects, and holds that permit until it ends.
    pub(crate) async fn computing<T: Send + 'static>(
        self,
        work: impl FnOnce(&Request) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let turn = self.app.checks.take(self.tenant(), 1).await;
        self.holding(turn, work).await
    }

    /// Runs work that reads whole journals, once the tenant gets a permit for it, and charges the tenant for the time.
    /// The permit is needed because the events of one run may have a gigabyte. The work continues if the caller
    /// disconnects, and holds the permit until it ends.
    pub(crate) async fn reading<T: Send + 'static>(
        self,
        work: impl FnOnce(&Request) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let turn = self.app.journals.take(self.tenant(), 1).await;
        self.holding(turn, move |request| request.host.charged(|| work(request))).await
    }

    /// Runs blocking work and holds a permit until it is done.
    async fn holding<T: Send + 'static>(
        self,
        place: Permit,
        work: impl FnOnce(&Request) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let done = self.blocking(move |request| {
            let _place = place;
            work(request)
        });
        done.await
    }

    /// Runs blocking work on the tenant's flow library.
    pub(crate) async fn library<T: Send + 'static>(
        self,
        work: impl FnOnce(&FlowLibrary, &Host) -> Result<T, LibraryError> + Send + 'static,
    ) -> Result<T, ApiError> {
        self.blocking(move |request| Ok(work(&request.flows(), &request.host)?)).await
    }

    /// Runs work on the tenant's flow library that checks a flow. Waits for a permit for checks first, since checking
    /// is CPU-heavy.
    pub(crate) async fn checking<T: Send + 'static>(
        self,
        work: impl FnOnce(&FlowLibrary, &Host) -> Result<T, LibraryError> + Send + 'static,
    ) -> Result<T, ApiError> {
        self.computing(move |request| Ok(work(&request.flows(), &request.host)?)).await
    }

    /// Returns the tenant's flow library.
    pub(crate) fn flows(&self) -> FlowLibrary {
        FlowLibrary::open(self.app.flows_of(self.tenant())).with_posted_of(&self.host).by(self.actor())
    }
}

impl FromRequestParts<Arc<App>> for Request {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Request, ApiError> {
        let caller = parts.extensions.get::<Caller>().cloned();
        let caller = caller.ok_or_else(|| ApiError::internal("a route without a scope needs a caller"))?;
        let place = parts.extensions.get::<Arc<RequestPermit>>().map(Arc::downgrade).unwrap_or_default();
        Ok(Request { app: app.clone(), host: app.host_of(&caller), caller, place })
    }
}
