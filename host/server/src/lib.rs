//! The HTTP server: the versioned interface under `/v1`, live events, health, and the document of it all.
//!
//! A server owns its store like `flowcell drive` does: it drives new runs and every other one that can move. Nothing in it
//! knows how tokens are kept: an [`Identify`] tells who calls.
//!
//! | room | what it is |
//! |---|---|
//! | [`identity`] | who calls, and what they may do |
//! | [`route`] | the table of routes, and what each needs |
//! | guard | `Host` and `Origin` |
//! | http | what the routes under `/v1` do |
//! | [`mcp`] | flows as tools of agents, over HTTP and over pipes |
//! | [`steps_api`] | flows by their names, under `/api` |
//! | [`manual`] | the pages of the manual |
//! | document | OpenAPI |

mod document;
mod guard;
mod http;
pub mod manual;
pub mod mcp;
pub mod route;
pub mod steps_api;

use std::{collections::HashMap, future::Future, io, net::SocketAddr, path::PathBuf, sync::Arc};

use axum::{Router, extract::DefaultBodyLimit, http::StatusCode, middleware, response::IntoResponse};
use flowcell_contract::Tenant;
use flowcell_runtime::{FlowRunner, RunResult, RunStatus, World, ports::StoreError};
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
    guard::Names,
    http::{
        app::App, connection, fault::Fault, intake::BODY_BYTES, live::Audiences, metrics, owners::Households,
        proxies::Proxies,
    },
};
pub use flowcell_platform::identity;
use flowcell_platform::{
    Error, Host, StartError,
    driving::{Arrivals, Attendant, Drive, Entrance},
    identity::Identify,
    triggers::{Owners, Triggers, ends::Ended},
    usage::{SETTLES, Usage},
};

/// How a server is set up.
pub struct Settings {
    /// Where it listens; port 0 is any that is free.
    pub listen: SocketAddr,
    /// Who calls.
    pub identity: Arc<dyn Identify>,
    /// The folder with the flows of `local`; those of other tenants are in `.tenants` below it.
    pub flows: PathBuf,
    /// Names under which it may be asked, beside its own address.
    pub names: Vec<String>,
    /// Proxies in front of the server. They alone are believed about the address of a caller.
    pub proxies: Vec<AddressRange>,
    /// What connections may take.
    pub limits: Limits,
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address leads to other machines, and nobody asks who calls from there.
    #[error("`{0}` can be reached from other machines, and this server asks nobody for a token")]
    Unguarded(SocketAddr),
    /// A proxy brings requests of others, and nobody asks who calls.
    #[error("`{0}` brings requests of other machines, and this server asks nobody for a token")]
    UnguardedProxy(AddressRange),
    /// The address cannot be had.
    #[error("cannot listen on `{address}`")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The operator's collector cannot be told anything.
    #[error(transparent)]
    Telemetry(#[from] Error),
    /// Messages of other processes cannot be taken in.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    router: Router,
    limits: Limits,
    proxies: Proxies,
    app: Arc<App>,
    drive: Drive,
}

impl Server {
    /// Listens, and drives nothing yet.
    pub async fn bind(host: Host, settings: Settings) -> Result<Server, ServeError> {
        let Settings { listen, identity, flows, names, proxies, limits } = settings;
        let host = host.serving(flows.clone());
        if !listen.ip().is_loopback() && !identity.asks_for_tokens() {
            return Err(ServeError::Unguarded(listen));
        }
        if let Some(proxy) = proxies.first().filter(|_| !identity.asks_for_tokens()) {
            return Err(ServeError::UnguardedProxy(*proxy));
        }
        if identity.asks_for_tokens() {
            host.usage().begin();
        }
        let cannot = |source| ServeError::Listen { address: listen, source };
        let listener = TcpListener::bind(listen).await.map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        host.start_telemetry()?;
        let audiences = Arc::<Audiences>::default();
        let arrivals = Arrivals::open();
        let households = Arc::new(Households::new(host.clone(), identity, flows, arrivals.entrance()));
        let triggers = Arc::new(Triggers::new(households.clone()));
        triggers.open().await;
        let attendant = Driven {
            households: households.clone(),
            audiences: audiences.clone(),
            triggers: triggers.clone(),
            worlds: Mutex::default(),
        };
        attendant.listen_for(&households.identity.tenants())?;
        let drive = Drive::with_arrivals(host, Arc::new(attendant), arrivals);
        let app = Arc::new(App::new(households, triggers, audiences, &limits));
        let names = Names::new(address.port(), address.ip().is_loopback(), &names);
        let router = router(&app, names);
        Ok(Server { listener, address, router, limits, proxies: Proxies::new(&proxies), app, drive })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The entrance for runs, also for those that other terminals hand over.
    pub fn entrance(&self) -> Entrance {
        self.drive.entrance()
    }

    /// Serves and drives until `stop` is ready. Then new runs are turned away, those that are driven are put down where they
    /// are, and what is being answered may come to its end.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), StoreError> {
        let Server { listener, router, limits, proxies, app, drive, .. } = self;
        let ends = app.ends.subscribe();
        let mut settling = JoinSet::new();
        settling.spawn(settle(app.host.usage().clone()));
        let serving = tokio::spawn(connection::serve(listener, router, (limits, proxies), ends));
        let triggers = app.triggers.clone();
        let starting = tokio::spawn(async move { triggers.attend().await });
        let (halt, halted) = oneshot::channel();
        let mut driving = driving(drive, halted);
        let (mut drive, driven) = tokio::select! {
            ended = &mut driving => ended,
            () = stop => {
                drop(halt);
                driving.await
            }
        };
        app.drain();
        // What it was about to start is found again.
        starting.abort();
        drive.stop().await;
        app.ends.send_replace(true);
        // A server that broke has nothing more to end.
        let _ = serving.await;
        settling.shutdown().await;
        app.host.stop_telemetry().await;
        driven.and(app.host.usage().settle())
    }
}

/// Drives until nobody holds the other end any more, or the store cannot be read: among the requests that bring it runs, so
/// that no thread has to wake another for each of them.
fn driving(mut drive: Drive, mut halted: oneshot::Receiver<()>) -> BoxFuture<'static, (Drive, Result<(), StoreError>)> {
    let many_threads = Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
    let driving = async move {
        loop {
            // A store may be far away, and the packs of a run may have to be compiled before it goes on.
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

/// Keeps what tenants use up, from time to time.
async fn settle(usage: Usage) {
    loop {
        tokio::time::sleep(SETTLES).await;
        let usage = usage.clone();
        if let Ok(Err(error)) = tokio::task::spawn_blocking(move || usage.settle()).await {
            tracing::warn!("what tenants use up cannot be kept: {error}");
        }
    }
}

fn router(app: &Arc<App>, names: Names) -> Router {
    let (router, document) = route::router(app);
    // A document is made of JSON, which can be written.
    let _ = app.document.set(Arc::new(serde_json::to_value(&document).unwrap_or_default()));
    let guard = middleware::from_fn_with_state(names, guard::guard);
    let router = router.layer(DefaultBodyLimit::max(BODY_BYTES)).layer(guard).layer(CatchPanicLayer::custom(|_| {
        Fault::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the server broke at this request").into_response()
    }));
    router.layer(middleware::from_fn_with_state(app.clone(), metrics::measure))
}

/// Lets those who watch runs hear them.
struct Driven {
    households: Arc<Households>,
    audiences: Arc<Audiences>,
    triggers: Arc<Triggers>,
    /// Take in what other processes ask, one for each tenant.
    worlds: Mutex<HashMap<Tenant, Arc<World>>>,
}

impl Driven {
    /// Takes in what other processes ask of the runs of these tenants, from now on.
    fn listen_for(&self, tenants: &[Tenant]) -> Result<(), StartError> {
        let mut worlds = self.worlds.lock();
        for tenant in tenants {
            if worlds.contains_key(tenant) {
                continue;
            }
            // The host within the tenant's policy: what it bounds holds before the first of its runs goes on.
            if let Some(host) = Owners::host(&*self.households, tenant) {
                worlds.insert(tenant.clone(), host.serve()?);
            }
        }
        Ok(())
    }
}

impl Attendant for Driven {
    fn tenants(&self) -> Vec<Tenant> {
        let tenants = self.households.identity.tenants();
        if let Err(error) = self.listen_for(&tenants) {
            tracing::warn!("what other processes ask cannot be taken in: {error}");
        }
        tenants
    }

    fn host(&self, _all: &Host, tenant: &Tenant) -> Option<Host> {
        Owners::host(&*self.households, tenant)
    }

    fn attend(&self, tenant: &Tenant, mut runner: FlowRunner) -> Option<BoxFuture<'static, RunResult>> {
        self.audiences.attend(tenant, &mut runner);
        self.households.host.watch(&mut runner);
        let driven = self.households.host.metrics().drives();
        let (triggers, tenant, host) = (self.triggers.clone(), tenant.clone(), self.households.host.clone());
        Some(Box::pin(async move {
            let result = runner.run().await;
            drop(driven);
            // It is told once it is durable.
            let status = match result.status {
                RunStatus::Succeeded => "succeeded",
                RunStatus::Failed => "failed",
                RunStatus::Cancelled => "cancelled",
                _ => return result,
            };
            let (run, flow) = (result.run_id.clone(), result.flow.to_string());
            triggers.tell(&tenant, Ended { run, flow, status: status.to_owned(), at: host.now() });
            result
        }))
    }

    fn refused(&self, error: StartError) {
        tracing::warn!("a run cannot be driven: {error}");
    }
}
