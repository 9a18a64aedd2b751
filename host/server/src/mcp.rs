//! Flows as tools over the Model Context Protocol: at `/mcp` for callers of the server, and over the pipes of a process.
//!
//! Every flow of the tenant's is a tool; a call of it is a durable run. Whoever calls has what their token allows, asked anew
//! with every request. A tenant has sessions of its own, so the id of another tenant's session is one that does not exist.
//!
//! | room | what it is |
//! |---|---|
//! | desk | what one client may ask |
//! | tools | the tools that there are, and which of them somebody sees |
//! | builtin | tools for who writes flows and looks after runs |
//! | arguments | names and arguments of tools |
//! | calls | calls that clients may take back |
//! | call | a run as the call of a tool: progress, gates, its end |
//! | gate | a gate as a question to the client's person |
//! | outcome | what came of it, as the result of a tool |
//! | resources | the language, its schema and the catalog as documents |
//! | changes | telling clients that the flows have changed |
//! | pipe | one client on standard input and output |

mod arguments;
mod builtin;
mod call;
mod calls;
mod changes;
mod desk;
mod gate;
mod outcome;
mod pipe;
mod resources;
mod tools;
mod workbench;

use std::{collections::HashMap, sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::Request,
    http::{Method, header::HeaderMap},
    response::{IntoResponse, Response},
    routing::{self, MethodRouter},
};
use flowcell_contract::Tenant;
use parking_lot::Mutex;
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
};

pub use self::pipe::{PipeError, serve};
use self::{changes::Changes, desk::Desk};
use crate::http::{
    app::App,
    connection::over,
    fault::Fault,
    identity::{Caller, Scope},
    intake::{self, BODY_BYTES},
};

/// Where it is.
pub(super) const PATH: &str = "/mcp";
/// What it takes.
pub(super) const METHODS: [Method; 3] = [Method::POST, Method::GET, Method::DELETE];
/// What every client needs: it sees the flows. Each tool needs its own scope beside that.
pub(super) const SCOPE: Scope = Scope::FlowRead;
/// Sessions of a tenant at a time.
pub(crate) const SESSIONS: usize = 100;
/// A session in which nothing is said for so long is over.
pub(crate) const IDLE: Duration = Duration::from_secs(30 * 60);
/// Time for answers that are under way once the server ends.
const LAST: Duration = Duration::from_secs(1);
/// From this version of the protocol on there are no sessions.
const WITHOUT_SESSIONS: &str = "2026-07-28";

type Service = StreamableHttpService<Desk, LocalSessionManager>;

/// The routes at [`PATH`].
pub(super) fn routes(app: &Arc<App>) -> MethodRouter<Arc<App>> {
    let doors = Arc::new(Doors::new(app.clone()));
    let speak = move |request: Request| {
        let doors = doors.clone();
        async move { doors.speak(request).await.unwrap_or_else(IntoResponse::into_response) }
    };
    routing::post(speak.clone()).get(speak.clone()).delete(speak)
}

/// A door for each tenant that has come so far.
struct Doors {
    app: Arc<App>,
    config: StreamableHttpServerConfig,
    open: Mutex<HashMap<Tenant, Door>>,
}

/// The sessions of one tenant.
#[derive(Clone)]
struct Door {
    service: Service,
    sessions: Arc<LocalSessionManager>,
}

impl Doors {
    fn new(app: Arc<App>) -> Doors {
        // Who may ask under which name is looked at for all routes alike.
        let config = StreamableHttpServerConfig::default().disable_allowed_hosts().disable_allowed_origins();
        let config = config.with_max_request_body_bytes(BODY_BYTES);
        let (stop, mut ends) = (config.cancellation_token.clone(), app.ends.subscribe());
        tokio::spawn(async move {
            over(&mut ends).await;
            tokio::time::sleep(LAST).await;
            stop.cancel();
        });
        Doors { app, config, open: Mutex::default() }
    }

    async fn speak(&self, request: Request) -> Result<Response, Fault> {
        let caller = request.extensions().get::<Caller>();
        let caller = caller.ok_or_else(|| Fault::internal("a route without a scope asks who calls"))?;
        let door = self.of(&caller.tenant);
        if request.method() == Method::POST && begins_session(request.headers()) {
            door.check_room().await?;
        }
        let (head, body) = request.into_parts();
        let bytes = intake::read(Request::from_parts(head.clone(), body), BODY_BYTES).await?;
        intake::check_values(&bytes)?;
        Ok(door.service.handle(Request::from_parts(head, Body::from(bytes))).await.map(Body::new))
    }

    fn of(&self, tenant: &Tenant) -> Door {
        let mut open = self.open.lock();
        open.entry(tenant.clone()).or_insert_with(|| self.new_door(tenant)).clone()
    }

    fn new_door(&self, tenant: &Tenant) -> Door {
        let mut sessions = LocalSessionManager::default();
        sessions.session_config.keep_alive = Some(IDLE);
        let sessions = Arc::new(sessions);
        let (app, changes) = (self.app.clone(), Changes::follow(&self.app, tenant));
        let desk = move || Ok(Desk::new(app.clone(), None, changes.clone()));
        Door { service: Service::new(desk, sessions.clone(), self.config.clone()), sessions }
    }
}

impl Door {
    async fn check_room(&self) -> Result<(), Fault> {
        match self.sessions.sessions.read().await.len() {
            SESSIONS.. => Err(Fault::busy("too_many_sessions", "too many sessions are open already: end some of them")),
            _ => Ok(()),
        }
    }
}

/// Whether what has these headers asks for a session, if it asks for anything.
fn begins_session(headers: &HeaderMap) -> bool {
    let version = headers.get("mcp-protocol-version").and_then(|version| version.to_str().ok());
    !headers.contains_key("mcp-session-id") && version.is_none_or(|version| version < WITHOUT_SESSIONS)
}
