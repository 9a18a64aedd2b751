//! Flows as tools over the Model Context Protocol: at `/mcp` for callers of the server, and over standard input and
//! output.
//!
//! Every flow of the tenant is a tool. Each tool call of a flow starts a durable run. The caller's token is checked
//! with every request. A session is a client's connection in the sense of MCP. Each tenant has its own sessions, so the
//! session id of another tenant is unknown.
//!
//! | module | content |
//! |---|---|
//! | handler | the handler of one client |
//! | tools | the list of tools that a token may use, and the calls of these tools |
//! | builtin | tools to write flows and to look after runs |
//! | authoring_tools | the tools that test, inspect and draw a flow, and list functions |
//! | arguments, schemas | names and arguments of tools, and the schemas of these arguments |
//! | calls | tool calls that clients may cancel |
//! | call | a tool call that waits for a run: its progress, gates and end |
//! | gate | a gate as a question to the client's user |
//! | outcome | the result of a tool call |
//! | resources | the manual, the schema of flows and the catalog as documents |
//! | changes | notices to clients that the flows have changed |
//! | pipe | one client on standard input and output |

mod arguments;
mod authoring_tools;
mod builtin;
mod call;
mod calls;
mod changes;
mod gate;
mod handler;
mod outcome;
mod pipe;
mod resources;
mod schemas;
mod tools;

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
use self::{changes::Changes, handler::McpHandler};
use crate::http::{
    api_error::ApiError,
    app::App,
    connection::wait_for_server_end,
    identity::{Caller, Scope},
    intake::{self, MAX_BODY_BYTES},
};

/// The path of the MCP endpoint.
pub(super) const PATH: &str = "/mcp";
/// The HTTP methods that the endpoint accepts.
pub(super) const METHODS: [Method; 3] = [Method::POST, Method::GET, Method::DELETE];
/// The scope that every client needs in order to see the flows. Each tool also needs its own scope.
pub(super) const SCOPE: Scope = Scope::FlowRead;
/// The maximum number of open sessions of a tenant.
pub(crate) const MAX_SESSIONS: usize = 100;
/// The time after which an idle session ends.
pub(crate) const SESSION_IDLE_TIME: Duration = Duration::from_secs(30 * 60);
/// The time that MCP answers in progress have to finish when the server ends.
const FINISH_TIME: Duration = Duration::from_secs(1);
/// The first version of the protocol without sessions.
const FIRST_VERSION_WITHOUT_SESSIONS: &str = "2026-07-28";

type Service = StreamableHttpService<McpHandler, LocalSessionManager>;

/// Returns the routes at [`PATH`].
pub(super) fn routes(app: &Arc<App>) -> MethodRouter<Arc<App>> {
    let services = Arc::new(TenantServices::new(app.clone()));
    let serve = move |request: Request| {
        let services = services.clone();
        async move { services.serve(request).await.unwrap_or_else(IntoResponse::into_response) }
    };
    routing::post(serve.clone()).get(serve.clone()).delete(serve)
}

/// The MCP services of all tenants that have connected so far.
struct TenantServices {
    app: Arc<App>,
    config: StreamableHttpServerConfig,
    open: Mutex<HashMap<Tenant, TenantService>>,
}

/// The MCP service of one tenant, with its sessions.
#[derive(Clone)]
struct TenantService {
    service: Service,
    sessions: Arc<LocalSessionManager>,
}

impl TenantServices {
    fn new(app: Arc<App>) -> TenantServices {
        // The server's own guard checks `Host` and `Origin` for all routes.
        let config = StreamableHttpServerConfig::default().disable_allowed_hosts().disable_allowed_origins();
        let config = config.with_max_request_body_bytes(MAX_BODY_BYTES);
        let (stop, mut ends) = (config.cancellation_token.clone(), app.ends.subscribe());
        tokio::spawn(async move {
            wait_for_server_end(&mut ends).await;
            tokio::time::sleep(FINISH_TIME).await;
            stop.cancel();
        });
        TenantServices { app, config, open: Mutex::default() }
    }

    async fn serve(&self, request: Request) -> Result<Response, ApiError> {
        let caller = request.extensions().get::<Caller>();
        let caller = caller.ok_or_else(|| ApiError::internal("a route without a scope needs a caller"))?;
        let service = self.service_of(&caller.tenant);
        if request.method() == Method::POST && begins_session(request.headers()) {
            service.check_session_limit().await?;
        }
        let (head, body) = request.into_parts();
        let bytes = intake::read_body(Request::from_parts(head.clone(), body), MAX_BODY_BYTES).await?;
        intake::check_values(&bytes)?;
        Ok(service.service.handle(Request::from_parts(head, Body::from(bytes))).await.map(Body::new))
    }

    fn service_of(&self, tenant: &Tenant) -> TenantService {
        let mut open = self.open.lock();
        open.entry(tenant.clone()).or_insert_with(|| self.new_service(tenant)).clone()
    }

    fn new_service(&self, tenant: &Tenant) -> TenantService {
        let mut sessions = LocalSessionManager::default();
        sessions.session_config.keep_alive = Some(SESSION_IDLE_TIME);
        let sessions = Arc::new(sessions);
        let (app, changes) = (self.app.clone(), Changes::follow(&self.app, tenant));
        let handler = move || Ok(McpHandler::new(app.clone(), None, changes.clone()));
        TenantService { service: Service::new(handler, sessions.clone(), self.config.clone()), sessions }
    }
}

impl TenantService {
    async fn check_session_limit(&self) -> Result<(), ApiError> {
        match self.sessions.sessions.read().await.len() {
            MAX_SESSIONS.. => Err(ApiError::busy("too_many_sessions", "too many sessions are open; end some of them")),
            _ => Ok(()),
        }
    }
}

/// Returns true if a request with these headers starts a session: it has no session id, and its version of the
/// protocol has sessions. A missing version counts as one with sessions.
fn begins_session(headers: &HeaderMap) -> bool {
    let version = headers.get("mcp-protocol-version").and_then(|version| version.to_str().ok());
    !headers.contains_key("mcp-session-id") && version.is_none_or(|version| version < FIRST_VERSION_WITHOUT_SESSIONS)
}
