//! The HTTP server: the versioned API under `/v1`, live events, health, and the OpenAPI document.
//!
//! A server owns its store, as `flowcell drive` does. It drives new runs and every stored run that is ready. The
//! server does not know how tokens are stored: an [`Identify`] identifies the caller of each request.
//!
//! | module | content |
//! |---|---|
//! | [`api`] | the API for pages in the same process |
//! | [`identity`] | the callers and their permissions |
//! | [`route`] | the table of routes and the access that each needs |
//! | guard | the check of `Host` and `Origin` |
//! | origin | the names by which clients reach the server |
//! | reading | reads the files of notifications and of the sign-in again |
//! | [`tls`] | the certificate and the key of the server |
//! | blocking | work on threads that it may block |
//! | http | the routes under `/v1` |
//! | [`mcp`] | flows as tools of agents, over HTTP and over standard input and output |
//! | [`steps_api`] | flows by name, under `/api` |
//! | [`manual`] | the pages of the manual |
//! | document | the OpenAPI document |

pub mod api;
mod blocking;
mod compress;
mod document;
mod guard;
mod http;
pub mod manual;
pub mod mcp;
mod origin;
mod reading;
pub mod route;
pub mod steps_api;
pub mod tls;

use std::{collections::HashMap, future::Future, io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use axum::{Router, extract::DefaultBodyLimit, http::StatusCode, middleware, response::IntoResponse};
use flowcell_contract::Tenant;
use flowcell_runtime::{
    FlowRunner, RunResult, RunStatus, World,
    ports::{MaybeStoreError, StoreError},
};
use flowcell_services::egress::AddressRange;
use futures_util::{FutureExt, future::BoxFuture};
use parking_lot::Mutex;
use tokio::{
    net::TcpListener,
    runtime::{Handle, RuntimeFlavor},
    sync::oneshot,
    task::JoinSet,
};
use tower_http::catch_panic::CatchPanicLayer;

pub use self::http::limits::Limits;
use self::{
    api::Api,
    blocking::blocking,
    guard::Names,
    http::{
        api_error::ApiError,
        app::App,
        broadcast::Broadcasts,
        connection::{self, Encryption},
        feeds::{Feeds, GateWatch},
        intake::MAX_BODY_BYTES,
        metrics,
        proxies::Proxies,
        tenant_directory::TenantDirectory,
    },
    tls::{Tls, TlsError, TlsFiles},
};
pub use flowcell_platform::identity;
use flowcell_platform::{
    Error, Host, StartError,
    identity::Identify,
    jobs::worker::JobWorker,
    notify::Notifications,
    posted::cache::LOOK_INTERVAL,
    reload::Reloader,
    sign_in::SignIns,
    supervisor::{AdmissionQueue, AdmissionReceiver, RunObserver, Supervisor},
    triggers::{TriggerTenants, Triggers, ends::EndedRun},
    usage::{FLUSH_INTERVAL, Usage},
};

/// Makes the routes of pages for people, which ask the API.
pub type Pages = fn(Api) -> Router;

/// The configuration of a server.
pub struct Settings {
    /// The address to listen on. Port 0 selects any free port.
    pub listen: SocketAddr,
    /// Identifies the caller of each request.
    pub identity: Arc<dyn Identify>,
    /// The folder with the flows of the tenant `local`. The flows of other tenants are in its subfolder `.tenants`.
    pub flows: PathBuf,
    /// Host names that the server accepts in the header `Host`, besides the names of this machine and addresses.
    pub names: Vec<String>,
    /// Trusted proxies in front of the server. Only they may state the address of a caller, in `Forwarded` or
    /// `X-Forwarded-For`.
    pub proxies: Vec<AddressRange>,
    /// The certificate and the key with which the server speaks TLS. `None` for a server without TLS.
    pub tls: Option<TlsFiles>,
    /// Limits of connections, requests and streams.
    pub limits: Limits,
    /// The pages for people under `/console`. `None` serves none.
    pub pages: Option<Pages>,
    /// The notifications of this process, whose links answer gates, and whose file a reload reads. `None`: there are none.
    pub notifications: Option<Notifications>,
    /// The sign-in by OpenID Connect, whose file a reload reads. `None`: the server has none.
    pub sign_ins: Option<SignIns>,
    /// Time between the request to stop and the stop, in which `/readyz` answers 503 and everything else goes on.
    pub drain_delay: Duration,
}

/// The reason why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Other machines can reach the address, and the server does not require tokens.
    #[error("other machines can reach `{0}`, and this server requires no tokens")]
    Unguarded(SocketAddr),
    /// A proxy forwards requests of other machines, and the server does not require tokens.
    #[error("the proxy `{0}` forwards requests of other machines, and this server requires no tokens")]
    UnguardedProxy(AddressRange),
    /// The certificate or its key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The server cannot listen on the address.
    #[error("cannot listen on `{address}`")]
    Listen {
        /// The address to listen on.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The export to the operator's telemetry collector cannot start.
    #[error(transparent)]
    Telemetry(#[from] Error),
    /// The server cannot receive the commands of other processes.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// Checks that other machines cannot send requests without a token to a server that listens on this address behind these
/// proxies. [`Server::bind`] makes this check first.
pub fn check_guarded(listen: SocketAddr, proxies: &[AddressRange], identity: &dyn Identify) -> Result<(), ServeError> {
    if identity.asks_for_tokens() {
        return Ok(());
    }
    if !listen.ip().is_loopback() {
        return Err(ServeError::Unguarded(listen));
    }
    proxies.first().map_or(Ok(()), |proxy| Err(ServeError::UnguardedProxy(*proxy)))
}

/// A server that listens on its address.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    console_origin: String,
    router: Router,
    limits: Limits,
    proxies: Proxies,
    tls: Option<Arc<Tls>>,
    drain_delay: Duration,
    app: Arc<App>,
    drive: Supervisor,
}

impl Server {
    /// Listens on the address. Nothing is served or driven before [`Server::run`].
    ///
    /// Returns an error if other machines can send requests without a token, if the certificate or its key cannot be
    /// used, or if the server cannot listen.
    pub async fn bind(host: Host, settings: Settings) -> Result<Server, ServeError> {
        let Settings {
            listen,
            identity,
            flows,
            names,
            proxies,
            tls,
            limits,
            pages,
            notifications,
            sign_ins,
            drain_delay,
        } = settings;
        let host = host.serving(flows.clone());
        check_guarded(listen, &proxies, &*identity)?;
        if identity.asks_for_tokens() {
            host.usage().begin();
        }
        let tls = tls.map(Tls::open).transpose()?;
        let cannot = |source| ServeError::Listen { address: listen, source };
        let listener = TcpListener::bind(listen).await.map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        host.start_telemetry()?;
        let (broadcasts, feeds) = (Arc::<Broadcasts>::default(), Arc::<Feeds>::default());
        let arrivals = AdmissionReceiver::open();
        let directory = Arc::new(TenantDirectory::new(host.clone(), identity, flows, arrivals.admission()));
        let triggers = Arc::new(Triggers::new(directory.clone()));
        triggers.open().await;
        let observer = DrivenRuns {
            directory: directory.clone(),
            broadcasts: broadcasts.clone(),
            feeds: feeds.clone(),
            triggers: triggers.clone(),
            worlds: Mutex::default(),
        };
        observer.listen_for(&directory.identity.tenants())?;
        let reloader = Reloader::new(host.clone()).with_flows(&directory.flows, triggers.clone());
        let reloader = match notifications.clone().filter(Notifications::has_file) {
            Some(notifications) => reloader.with_notifications(reading::notifications(notifications)),
            None => reloader,
        };
        let reloader = match sign_ins.clone() {
            Some(sign_ins) => reloader.with_sign_in(reading::sign_in(sign_ins)),
            None => reloader,
        };
        let reloader = Arc::new(match tls.clone() {
            Some(tls) => reloader.with_certificate(Arc::new(move || tls.reload())),
            None => reloader,
        });
        let drive = Supervisor::with_arrivals(host, Arc::new(observer), arrivals);
        let app = Arc::new(App::new(
            directory,
            triggers,
            (reloader, notifications, sign_ins),
            (broadcasts, feeds),
            &limits,
            address.port(),
        ));
        let names = Names::new(address.port(), tls.is_some(), address.ip().is_loopback(), &names);
        let pair = tls.as_ref().map(|tls| tls.pair());
        let is_own = |name: &str| names.is_own(name);
        let console_origin = origin::console(address, names.listed(), is_own, pair.as_deref());
        let router = router(&app, names, pages);
        let proxies = Proxies::new(&proxies);
        Ok(Server { listener, address, console_origin, router, limits, proxies, tls, drain_delay, app, drive })
    }

    /// Returns the address that the server listens on, with the port that the system has chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL of this address.
    pub fn url(&self) -> String {
        origin::listening(self.address, self.tls.is_some())
    }

    /// Returns the scheme, the name and the port by which a browser on this machine reaches the console.
    pub fn console_origin(&self) -> &str {
        &self.console_origin
    }

    /// Returns the queue for new runs. Commands in other terminals hand their runs over through this queue, too.
    pub fn admission(&self) -> AdmissionQueue {
        self.drive.admission()
    }

    /// Returns the reloader of the packs, flows and triggers of this server.
    pub fn reloader(&self) -> Arc<Reloader> {
        self.app.reloader.clone()
    }

    /// Serves requests and drives runs until `stop` is ready.
    ///
    /// Then `/readyz` answers 503, so that a load balancer sends its requests elsewhere, and everything goes on for
    /// [`Settings::drain_delay`]. After that the server refuses new runs and parks those that it drives, so that
    /// another process can continue them. Answers in progress have 5 s to finish. Returns an error if the store cannot
    /// be read.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), StoreError> {
        let Server { listener, router, limits, proxies, tls, drain_delay, app, drive, .. } = self;
        let ends = app.ends.subscribe();
        let mut flushing = JoinSet::new();
        flushing.spawn(flush_counts(app.host.usage().clone(), app.identity.clone()));
        let reloader = app.reloader.clone();
        flushing.spawn(async move { reloader.follow_shared_packs().await });
        if app.host.shared().is_some() {
            flushing.spawn(follow_posted_flows(app.clone()));
        }
        let encryption = tls.map(|tls| {
            flushing.spawn(tls.clone().watch());
            Encryption::new(tls, &limits, app.host.metrics().clone())
        });
        let serving = tokio::spawn(connection::serve(listener, router, (limits, proxies, encryption), ends));
        let triggers = app.triggers.clone();
        let starting = tokio::spawn(async move { triggers.attend().await });
        let jobs = tokio::spawn(job_worker(&app).attend());
        let (halt, halted) = oneshot::channel();
        let mut driving = drive_until_halted(drive, halted);
        let asked_to_stop = async {
            stop.await;
            app.set_unready();
            tokio::time::sleep(drain_delay).await;
        };
        let (mut drive, driven) = tokio::select! {
            ended = &mut driving => ended,
            () = asked_to_stop => {
                drop(halt);
                driving.await
            }
        };
        app.drain();
        // If this aborts the start of a run by a trigger, a later check of the triggers finds the missing start again.
        starting.abort();
        // Another process, or this one after its next start, goes on with the jobs.
        jobs.abort();
        drive.stop().await;
        app.ends.send_replace(true);
        // If the task that serves connections has panicked, it needs no stop.
        let _ = serving.await;
        flushing.shutdown().await;
        app.host.stop_telemetry().await;
        driven.and(app.host.usage().flush()).and(app.identity.flush())
    }
}

/// Returns the worker of the jobs in the server's store.
fn job_worker(app: &App) -> JobWorker {
    let triggers = app.triggers.clone();
    JobWorker::new(app.host.clone(), app.identity.clone())
        .signaling(app.admission.ready_signal().clone())
        .reporting(move |tenant, row| triggers.report_end(tenant, row.into()))
}

/// Drives runs until the sender of `halted` is dropped or the store cannot be read.
///
/// On a tokio runtime with many threads the supervisor runs in a tokio task, as the requests do. So a request that
/// starts a run need not wake another thread.
fn drive_until_halted(
    mut drive: Supervisor,
    mut halted: oneshot::Receiver<()>,
) -> BoxFuture<'static, (Supervisor, Result<(), StoreError>)> {
    let many_threads = Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
    let driving = async move {
        loop {
            // The store may be remote, and the packs of a run may need to be compiled before it continues.
            let refreshed = match many_threads && drive.is_stale() {
                true => tokio::task::block_in_place(|| drive.refresh()),
                false => drive.refresh(),
            };
            if let Err(error) = refreshed {
                return (drive, Err(error));
            }
            tokio::select! {
                () = drive.wait() => {}
                _ = &mut halted => return (drive, Ok(())),
            }
        }
    };
    if !many_threads {
        return driving.boxed();
    }
    let driving = tokio::spawn(driving);
    async { driving.await.unwrap_or_else(|broken| std::panic::resume_unwind(broken.into_panic())) }.boxed()
}

/// Flushes the usage of tenants and the last use of their tokens to the store, once in each interval of
/// [`FLUSH_INTERVAL`].
async fn flush_counts(usage: Usage, identity: Arc<dyn Identify>) {
    loop {
        tokio::time::sleep(FLUSH_INTERVAL).await;
        let (usage, identity) = (usage.clone(), identity.clone());
        let flushed = blocking(move || usage.flush().and(identity.flush())).await;
        if let Ok(Err(error)) = flushed {
            error.warn("cannot store the usage of tenants and tokens");
        }
    }
}

/// Looks for flows that other processes have posted or deleted, once in each [`LOOK_INTERVAL`], and reads the triggers
/// of their tenants again.
async fn follow_posted_flows(app: Arc<App>) {
    let mut answers = true;
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        let host = app.host.clone();
        let Ok(changed) = blocking(move || host.take_changed_flows()).await else { continue };
        if let Err(error) = &changed
            && answers
        {
            error.warn("cannot look for posted flows; the known ones stay in use");
        }
        answers = changed.is_ok();
        let Some(changed) = changed.ok().filter(|changed| !changed.is_empty()) else { continue };
        for tenant in app.identity.tenants().into_iter().filter(|tenant| changed.contains(tenant)) {
            if let Err(error) = app.triggers.refresh(&tenant).await {
                tracing::warn!("cannot read the triggers of `{tenant}`: {error}");
            }
        }
        app.triggers.changed();
    }
}

fn router(app: &Arc<App>, names: Names, pages: Option<Pages>) -> Router {
    let (mut router, document) = route::router(app);
    if let Some(pages) = pages {
        let api = Api::new(router.clone().layer(DefaultBodyLimit::max(MAX_BODY_BYTES)));
        router = router.merge(pages(api).layer(middleware::from_fn_with_state(app.clone(), route::hold_page)));
    }
    // The document consists of JSON values, so it can always be serialized.
    let _ = app.document.set(Arc::new(serde_json::to_value(&document).unwrap_or_default()));
    let guard = middleware::from_fn_with_state(names, guard::guard);
    let router = router
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::from_fn(compress::compress))
        .layer(guard)
        .layer(CatchPanicLayer::custom(|_| {
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the server failed at this request")
                .into_response()
        }));
    router.layer(middleware::from_fn_with_state(app.clone(), metrics::measure))
}

/// Observes the runs that this server drives: attaches them to their subscribers, and reports their ends to event
/// triggers.
struct DrivenRuns {
    directory: Arc<TenantDirectory>,
    broadcasts: Arc<Broadcasts>,
    feeds: Arc<Feeds>,
    triggers: Arc<Triggers>,
    /// The [`World`] of each tenant, as [`Host::serve`] returns it. As long as it is kept here, the server receives the
    /// commands of other processes for the tenant's runs.
    worlds: Mutex<HashMap<Tenant, Arc<World>>>,
}

impl DrivenRuns {
    /// Starts to receive the commands of other processes for the runs of these tenants.
    fn listen_for(&self, tenants: &[Tenant]) -> Result<(), StartError> {
        let mut worlds = self.worlds.lock();
        for tenant in tenants {
            if worlds.contains_key(tenant) {
                continue;
            }
            // This host has the tenant's policy, so its limits apply before the first of the tenant's runs continues.
            if let Some(host) = TriggerTenants::host(&*self.directory, tenant) {
                worlds.insert(tenant.clone(), host.serve()?);
            }
        }
        Ok(())
    }
}

impl RunObserver for DrivenRuns {
    fn tenants(&self) -> Vec<Tenant> {
        let tenants = self.directory.identity.tenants();
        if let Err(error) = self.listen_for(&tenants) {
            error.warn("cannot read the commands of other processes");
        }
        tenants
    }

    fn host(&self, _all: &Host, tenant: &Tenant) -> Option<Host> {
        TriggerTenants::host(&*self.directory, tenant)
    }

    fn attend(&self, tenant: &Tenant, mut runner: FlowRunner) -> Option<BoxFuture<'static, RunResult>> {
        self.broadcasts.attach_to(tenant, &mut runner);
        if let Some(relay) = self.directory.host.live_relay() {
            relay.attach_to(tenant, &mut runner);
        }
        let (run, flow) = (runner.run_id().clone(), Arc::from(runner.flow()));
        runner.attach(Arc::new(GateWatch::new(self.feeds.clone(), tenant.clone(), run, flow)));
        self.directory.host.watch(&mut runner);
        let driven = self.directory.host.metrics().count_driven_run();
        let (triggers, tenant, host) = (self.triggers.clone(), tenant.clone(), self.directory.host.clone());
        Some(Box::pin(async move {
            let result = runner.run().await;
            drop(driven);
            // `run` returns after the end is durable, so the event triggers may start now.
            let status = match result.status {
                RunStatus::Succeeded => "succeeded",
                RunStatus::Failed => "failed",
                RunStatus::Cancelled => "cancelled",
                _ => return result,
            };
            let (run, flow) = (result.run_id.clone(), result.flow.to_string());
            triggers.report_end(&tenant, EndedRun { run, flow, status: status.to_owned(), at: host.now() });
            result
        }))
    }

    fn refused(&self, error: StartError) {
        tracing::warn!("the server cannot drive a run: {error}");
    }
}
