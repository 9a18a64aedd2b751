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
//! | connection | how many connections, how long each may stay silent |
//! | app | what requests share |
//! | intake, fault | what requests bring, and the one shape of failures |
//! | health, catalog, flows, library, runs, start, steer, events, socket | the routes |
//! | live | events told once to many |
//! | [`spec6`] | flows by their names, as SPEC6 has them |
//! | tree, waiting | a run as a tree, and what it waits for |
//! | document | OpenAPI |

mod app;
mod catalog;
mod connection;
mod document;
mod events;
mod fault;
mod flows;
mod guard;
mod health;
pub mod identity;
mod intake;
mod library;
mod live;
pub mod route;
mod runs;
mod socket;
pub mod spec6;
mod start;
mod steer;
mod tree;
mod waiting;

use std::{future::Future, io, net::SocketAddr, path::PathBuf, sync::Arc};

use axum::{Router, extract::DefaultBodyLimit, http::StatusCode, middleware, response::IntoResponse};
use flowcell_contract::Tenant;
use flowcell_runtime::{FlowRunner, RunResult, World, ports::StoreError};
use futures_util::future::BoxFuture;
use tokio::net::TcpListener;
use tower_http::catch_panic::CatchPanicLayer;

pub use self::connection::Limits;
use self::{app::App, fault::Fault, guard::Names, identity::Identify, intake::BODY_BYTES, live::Audiences};
use crate::{
    Host, StartError,
    driving::{Attendant, Drive},
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
    /// What connections may take.
    pub limits: Limits,
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address leads to other machines, and nobody asks who calls from there.
    #[error("`{0}` can be reached from other machines, and this server asks nobody for a token")]
    Unguarded(SocketAddr),
    /// The address cannot be had.
    #[error("cannot listen on `{address}`")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
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
    app: Arc<App>,
    drive: Drive,
    /// Takes in what other processes ask, one for each tenant.
    _worlds: Vec<Arc<World>>,
}

impl Server {
    /// Listens, and drives nothing yet.
    pub async fn bind(host: Host, settings: Settings) -> Result<Server, ServeError> {
        let Settings { listen, identity, flows, names, limits } = settings;
        if !listen.ip().is_loopback() && !identity.asks_for_tokens() {
            return Err(ServeError::Unguarded(listen));
        }
        let cannot = |source| ServeError::Listen { address: listen, source };
        let listener = TcpListener::bind(listen).await.map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        let audiences = Arc::<Audiences>::default();
        let worlds = identity.tenants().into_iter().map(|tenant| host.of(tenant).serve()).collect::<Result<_, _>>()?;
        let attendant = Driven { identity: identity.clone(), audiences: audiences.clone() };
        let drive = Drive::new(host.clone(), Arc::new(attendant));
        let app = Arc::new(App::new(host, identity, flows, drive.entrance(), drive.moved(), audiences));
        let names = Names::new(address.port(), address.ip().is_loopback(), &names);
        let router = router(&app, names);
        Ok(Server { listener, address, router, limits, app, drive, _worlds: worlds })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Is told when a run that nobody drives may be able to move.
    pub fn moved(&self) -> Arc<tokio::sync::Notify> {
        self.drive.moved()
    }

    /// Serves and drives until `stop` is ready. Then new runs are turned away, those that are driven are put down where they
    /// are, and what is being answered may come to its end.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), StoreError> {
        let Server { listener, router, limits, app, mut drive, .. } = self;
        let ends = app.ends.subscribe();
        let serving = tokio::spawn(connection::serve(listener, router, limits, ends));
        let driven = {
            let mut stop = std::pin::pin!(stop);
            loop {
                if let Err(error) = drive.refresh() {
                    break Err(error);
                }
                tokio::select! {
                    () = drive.wait() => {}
                    () = &mut stop => break Ok(()),
                }
            }
        };
        app.drain();
        drive.stop().await;
        app.ends.send_replace(true);
        // A server that broke has nothing more to end.
        let _ = serving.await;
        driven
    }
}

fn router(app: &Arc<App>, names: Names) -> Router {
    let (router, document) = route::router(app);
    app.document.set(&document);
    router.layer(DefaultBodyLimit::max(BODY_BYTES)).layer(middleware::from_fn_with_state(names, guard::guard)).layer(
        CatchPanicLayer::custom(|_| {
            Fault::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the server broke at this request")
                .into_response()
        }),
    )
}

/// Lets those who watch runs hear them.
struct Driven {
    identity: Arc<dyn Identify>,
    audiences: Arc<Audiences>,
}

impl Attendant for Driven {
    fn tenants(&self) -> Vec<Tenant> {
        self.identity.tenants()
    }

    fn attend(&self, tenant: &Tenant, mut runner: FlowRunner) -> Option<BoxFuture<'static, RunResult>> {
        self.audiences.attend(tenant, &mut runner);
        Some(Box::pin(runner.run()))
    }

    fn refused(&self, error: StartError) {
        tracing::warn!("a run cannot be driven: {error}");
    }
}
