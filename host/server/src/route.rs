//! The table of all routes with the access that each needs. The server and its OpenAPI document are both built from it.
//! A scope is a permission of a token, such as `run:read`.

use std::{
    future::Future,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{MatchedPath, Request, State},
    http::{Method, StatusCode, Uri, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use flowcell_contract::Tenant;
use flowcell_engine::Permit;
use futures_util::FutureExt;
use utoipa::openapi::{
    OpenApi, RefOr, Required, Schema, SecurityRequirement,
    extensions::ExtensionsBuilder,
    path::{Operation, PathItem},
};
use utoipa_axum::{
    router::{OpenApiRouter, UtoipaMethodRouter},
    routes,
};

use crate::http::breakers;
use crate::{
    document,
    http::{
        admin, agents,
        api_error::ApiError,
        app::{App, finish_detached},
        assist, audit,
        auth_rate_limiter::ClientAddr,
        authoring, beside, catalog, consents, credentials, eval, events, files, flows, forms, health,
        identity::{AuthError, Caller, Scope},
        inbox, jobs, library, links, login, machines, me,
        metrics::{self, RequestTenant},
        migrate, moment, notices, packs,
        permit::RequestPermit,
        processes, retry, runs,
        seats::counted_address,
        secrets, sign_in, socket, start, steer, tasks, tokens, triggers, usage, webhooks,
    },
    mcp, steps_api,
};

/// The time that a handler has to begin its answer. It is longer than `start::MAX_WAIT`, the longest wait for a run.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(90);

/// The access that a route needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// No token is needed: any client that reaches the server may use the route.
    Open,
    /// The caller needs a valid token, with any scopes.
    Known,
    /// The caller needs a token with this scope.
    Needs(Scope),
    /// The body must be signed with a secret of the trigger in the path. A token has no effect.
    Signed,
}

/// One route of the table.
#[derive(Clone, Debug)]
pub struct Route {
    /// The HTTP method.
    pub method: Method,
    /// The path, with its parameters as `{name}`.
    pub path: String,
    /// The access that the route needs.
    pub access: Access,
}

type Row = (Access, UtoipaMethodRouter<Arc<App>>);

fn table() -> Vec<Row> {
    use Access::{Known, Needs, Open, Signed};
    vec![
        (Open, routes!(health::healthz)),
        (Open, routes!(health::readyz)),
        (Open, routes!(health::version)),
        (Open, routes!(document::openapi)),
        (Known, routes!(me::me)),
        (Open, routes!(login::log_in)),
        (Open, routes!(login::log_in_command)),
        (Open, routes!(login::log_out)),
        (Known, routes!(login::create_code)),
        (Open, routes!(sign_in::issuers)),
        (Open, routes!(sign_in::begin)),
        (Open, routes!(sign_in::finish)),
        (Open, routes!(links::show_linked_question)),
        (Open, routes!(links::answer_by_link)),
        (Open, routes!(forms::show_linked_form)),
        (Open, routes!(forms::start_by_link)),
        (Needs(Scope::MetricsRead), routes!(metrics::metrics)),
        (Needs(Scope::FlowRead), routes!(flows::validate)),
        (Needs(Scope::FlowRead), routes!(assist::assist)),
        (Needs(Scope::FlowRead), routes!(eval::eval)),
        (Needs(Scope::FlowRead), routes!(eval::explain)),
        (Needs(Scope::FlowRead), routes!(authoring::graph)),
        (Needs(Scope::FlowRead), routes!(authoring::inspect_route)),
        (Needs(Scope::RunCreate), routes!(authoring::test_route)),
        (Needs(Scope::RunCreate), routes!(beside::run_cases)),
        (Needs(Scope::FlowRead), routes!(packs::list)),
        (Needs(Scope::FlowRead), routes!(library::list)),
        (Needs(Scope::FlowWrite), routes!(library::create)),
        (Needs(Scope::FlowRead), routes!(library::show)),
        (Needs(Scope::FlowWrite), routes!(library::delete)),
        (Needs(Scope::FlowRead), routes!(beside::show_files)),
        (Needs(Scope::FlowWrite), routes!(beside::change_files)),
        (Needs(Scope::FlowRead), routes!(library::versions)),
        (Needs(Scope::FlowRead), routes!(library::version)),
        (Needs(Scope::FlowRead), routes!(files::list)),
        (Needs(Scope::FlowWrite), routes!(files::put)),
        (Needs(Scope::FlowRead), routes!(files::show)),
        (Needs(Scope::FlowRead), routes!(files::content)),
        (Needs(Scope::FlowWrite), routes!(files::remove)),
        (Needs(Scope::SecretWrite), routes!(secrets::list)),
        (Needs(Scope::SecretWrite), routes!(secrets::show)),
        (Needs(Scope::SecretWrite), routes!(secrets::set)),
        (Needs(Scope::SecretWrite), routes!(secrets::remove)),
        (Needs(Scope::SecretWrite), routes!(credentials::list)),
        (Needs(Scope::SecretWrite), routes!(credentials::show)),
        (Needs(Scope::SecretWrite), routes!(credentials::set)),
        (Needs(Scope::SecretWrite), routes!(credentials::remove)),
        (Needs(Scope::SecretWrite), routes!(consents::begin)),
        (Needs(Scope::SecretWrite), routes!(consents::finish)),
        (Needs(Scope::FlowRead), routes!(triggers::list)),
        (Needs(Scope::FlowWrite), routes!(triggers::create)),
        (Needs(Scope::FlowRead), routes!(triggers::show)),
        (Needs(Scope::FlowWrite), routes!(triggers::delete)),
        (Needs(Scope::FlowWrite), routes!(triggers::enable)),
        (Needs(Scope::FlowWrite), routes!(triggers::disable)),
        (Needs(Scope::RunCreate), routes!(triggers::fire)),
        (Signed, routes!(webhooks::receive)),
        (Needs(Scope::RunCreate), routes!(forms::create)),
        (Needs(Scope::RunCreate), routes!(forms::list)),
        (Needs(Scope::RunCreate), routes!(forms::revoke)),
        (Needs(Scope::FlowRead), routes!(catalog::list)),
        (Needs(Scope::FlowRead), routes!(catalog::show)),
        (Needs(Scope::FlowRead), routes!(catalog::flows)),
        (Needs(Scope::RunCreate), routes!(start::start)),
        (Needs(Scope::RunRead), routes!(runs::list)),
        (Needs(Scope::RunRead), routes!(runs::show)),
        (Needs(Scope::RunRead), routes!(runs::input)),
        (Needs(Scope::RunDelete), routes!(runs::delete)),
        (Needs(Scope::RunControl), routes!(steer::label)),
        (Needs(Scope::RunRead), routes!(moment::tree)),
        (Needs(Scope::RunRead), routes!(authoring::graph_of_run)),
        (Needs(Scope::RunRead), routes!(tasks::timeline)),
        (Needs(Scope::RunRead), routes!(tasks::list)),
        (Needs(Scope::RunRead), routes!(tasks::show)),
        (Needs(Scope::RunRead), routes!(agents::list)),
        (Needs(Scope::RunRead), routes!(agents::show)),
        (Needs(Scope::RunRead), routes!(moment::gates)),
        (Needs(Scope::RunRead), routes!(moment::gate)),
        (Needs(Scope::RunRead), routes!(inbox::list)),
        (Needs(Scope::RunRead), routes!(events::list)),
        (Needs(Scope::RunRead), routes!(events::stream)),
        (Needs(Scope::RunRead), routes!(notices::stream)),
        (Needs(Scope::RunRead), routes!(socket::socket)),
        (Needs(Scope::RunControl), routes!(steer::cancel)),
        (Needs(Scope::RunControl), routes!(steer::resume)),
        (Needs(Scope::RunCreate), routes!(retry::retry)),
        (Needs(Scope::RunCreate), routes!(migrate::migrate)),
        (Needs(Scope::RunControl), routes!(steer::send)),
        (Needs(Scope::RunControl), routes!(steer::send_to_node)),
        (Needs(Scope::RunControl), routes!(steer::send_to_agent)),
        (Needs(Scope::RunControl), routes!(steer::close_agent)),
        (Needs(Scope::GateDecide), routes!(steer::reply)),
        (Needs(Scope::RunControl), routes!(steer::emit)),
        (Needs(Scope::RunControl), routes!(steer::resolve)),
        (Needs(Scope::RunControl), routes!(steer::abort)),
        (Needs(Scope::RunRead), routes!(jobs::create)),
        (Needs(Scope::RunRead), routes!(jobs::list)),
        (Needs(Scope::RunRead), routes!(jobs::show)),
        (Needs(Scope::RunRead), routes!(jobs::pause)),
        (Needs(Scope::RunRead), routes!(jobs::resume)),
        (Needs(Scope::RunRead), routes!(jobs::cancel)),
        (Needs(Scope::RunRead), routes!(usage::usage)),
        (Needs(Scope::RunRead), routes!(breakers::own)),
        (Needs(Scope::Admin), routes!(audit::show)),
        (Needs(Scope::Admin), routes!(tokens::list)),
        (Needs(Scope::Admin), routes!(tokens::create)),
        (Needs(Scope::Admin), routes!(tokens::revoke)),
        (Needs(Scope::AdminRead), routes!(admin::tenants)),
        (Needs(Scope::AdminRead), routes!(admin::all_runs)),
        (Needs(Scope::AdminRead), routes!(admin::tenant_runs)),
        (Needs(Scope::AdminRead), routes!(processes::show)),
        (Needs(Scope::AdminRead), routes!(breakers::all)),
        (Needs(Scope::AdminWrite), routes!(admin::enable)),
        (Needs(Scope::AdminWrite), routes!(admin::disable)),
        (Needs(Scope::AdminWrite), routes!(admin::cancel)),
        (Needs(Scope::AdminWrite), routes!(admin::reload)),
        (Needs(Scope::FlowWrite), routes!(steps_api::create_flow)),
        (Needs(Scope::RunCreate), routes!(steps_api::run_flow)),
        (Needs(Scope::FlowRead), routes!(steps_api::list_flows)),
        (Needs(Scope::FlowRead), routes!(steps_api::describe_flow)),
        (Needs(Scope::RunRead), routes!(steps_api::flow_runs)),
    ]
}

/// Returns every route of the server, for tests and for the document. The routes of MCP are included.
pub fn routes() -> Vec<Route> {
    let mut all = Vec::new();
    for (access, (_, paths, _)) in table() {
        for (path, mut item) in paths.paths {
            let methods = operations(&mut item).map(|(method, _)| method);
            all.extend(methods.map(|method| Route { method, path: path.clone(), access }));
        }
    }
    all.extend(mcp::METHODS.map(|method| Route {
        method,
        path: mcp::PATH.to_owned(),
        access: Access::Needs(mcp::SCOPE),
    }));
    all
}

/// Builds the router and the OpenAPI document of its routes.
pub(super) fn router(app: &Arc<App>) -> (Router, OpenApi) {
    let mut all = OpenApiRouter::with_openapi(document::head());
    let tokens = app.identity.asks_for_tokens();
    for (access, (schemas, mut paths, methods)) in table() {
        paths.paths.values_mut().flat_map(operations).for_each(|(_, operation)| describe(operation, access, tokens));
        let admit = middleware::from_fn_with_state((app.clone(), access), admit);
        all = all.routes((schemas, paths, methods.route_layer(admit)));
    }
    let (router, mut document) = all.split_for_parts();
    need_members(&mut document);
    let admit = middleware::from_fn_with_state((app.clone(), Access::Needs(mcp::SCOPE)), admit);
    let router = router.route(mcp::PATH, mcp::routes(app).route_layer(admit));
    let router = router.fallback(unknown_route).method_not_allowed_fallback(not_allowed).with_state(app.clone());
    (router, document)
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = (Method, &mut Operation)> {
    let PathItem { get, post, put, delete, patch, .. } = item;
    let all = [
        (Method::GET, get),
        (Method::POST, post),
        (Method::PUT, put),
        (Method::DELETE, delete),
        (Method::PATCH, patch),
    ];
    all.into_iter().filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}

/// The description of a body without required members in the document. An empty body counts as such a body.
const OPTIONAL_BODY: &str = "optional";

/// Bodies whose members are optional, and that need at least one of them.
const NEED_A_MEMBER: [&str; 1] = ["Relabel"];

/// Says in the schemas of [`NEED_A_MEMBER`] that they need a member. The derive of utoipa 5.5 would write
/// `min_properties` as `maxProperties`.
fn need_members(document: &mut OpenApi) {
    let Some(components) = &mut document.components else { return };
    for name in NEED_A_MEMBER {
        if let Some(RefOr::T(Schema::Object(schema))) = components.schemas.get_mut(name) {
            schema.min_properties = Some(1);
        }
    }
}

/// Adds the needed scope to an operation of the document, and the bearer token if the server requires tokens. Says that a
/// body need not be sent if it is optional.
fn describe(operation: &mut Operation, access: Access, tokens: bool) {
    if let Some(body) =
        operation.request_body.as_mut().filter(|body| body.description.as_deref() == Some(OPTIONAL_BODY))
    {
        body.required = Some(Required::False);
    }
    let scope = match access {
        Access::Open | Access::Signed => return,
        Access::Known => None,
        Access::Needs(scope) => Some(scope.name()),
    };
    operation.extensions = scope.map(|scope| ExtensionsBuilder::new().add("x-flowcell-scope", scope).build());
    if tokens {
        operation.security = Some(vec![SecurityRequirement::new("token", scope)]);
    }
}

type Admission = Pin<Box<dyn Future<Output = Response> + Send>>;

/// Middleware that lets a request pass if its caller has the needed scope. It also limits the time to the answer and
/// writes the audit log.
fn admit(State((app, access)): State<(Arc<App>, Access)>, mut request: Request, next: Next) -> Admission {
    Box::pin(async move {
        let (mut permit, mut deed, mut tenant) = (None, None, None);
        match access {
            Access::Open if request.method().is_safe() => {}
            Access::Open | Access::Signed => {
                permit = Some(RequestPermit::new(None, app.posts.clone(), client_as_tenant(&request)))
            }
            Access::Known | Access::Needs(_) => {
                let scope = match access {
                    Access::Needs(scope) => Some(scope),
                    _ => None,
                };
                let token = app.cookie.credential(request.uri().path(), request.headers()).map(str::to_owned);
                let from = request.extensions().get().map(|ClientAddr(from)| *from);
                let (caller, place) = match authorize(&app, token.as_deref(), from, scope).await {
                    Ok(admitted) => admitted,
                    Err(error) => return error.into_response(),
                };
                deed = scope.and_then(|scope| AuditedAction::from_request(&caller, scope, &request));
                tenant = Some(RequestTenant(caller.tenant.clone()));
                permit = Some(RequestPermit::new(Some(place), app.bodies.clone(), caller.tenant.clone()));
                request.extensions_mut().insert(caller);
            }
        }
        let method = request.method().clone();
        if let Some(permit) = &permit {
            request.extensions_mut().insert(permit.clone());
        }
        let mut response = match deed {
            None => in_time(next.run(request)).await,
            Some(deed) => in_time(finish_detached(deed.finish_audited(next.run(request), app.clone()))).await,
        };
        // The audit log is already written, because the response to a change may block here until the tenant has free
        // bytes.
        if let Some(permit) = permit {
            response = in_time(permit.hold_until_sent(&method, &app.responses, response)).await;
        }
        if let Some(tenant) = tenant {
            response.extensions_mut().insert(tenant);
        }
        response
    })
}

/// Waits for a response. Returns 504 if it takes longer than [`ANSWER_TIMEOUT`].
async fn in_time(response: impl Future<Output = Response>) -> Response {
    tokio::time::timeout(ANSWER_TIMEOUT, response).await.unwrap_or_else(|_| {
        let why = format!("the request took longer than {} s", ANSWER_TIMEOUT.as_secs());
        ApiError::new(StatusCode::GATEWAY_TIMEOUT, "timeout", why).into_response()
    })
}

/// An action for the audit log: a change of flows, triggers or files.
struct AuditedAction {
    caller: Caller,
    action: String,
    subject: String,
}

impl AuditedAction {
    /// Returns the action of a request to a route with the scope `flow:write`. Returns `None` for all other routes,
    /// whose actions this middleware does not log.
    fn from_request(caller: &Caller, scope: Scope, request: &Request) -> Option<AuditedAction> {
        let route = request.extensions().get::<MatchedPath>().filter(|_| scope == Scope::FlowWrite)?;
        let action = format!("{} {}", request.method(), route.as_str());
        Some(AuditedAction { caller: caller.clone(), action, subject: request.uri().path().to_owned() })
    }

    /// If the response has the header `Location`, replaces the logged subject by it: an object that the request has
    /// created is then logged under its own path.
    fn with_location(self, response: &Response) -> AuditedAction {
        let place = response.headers().get(header::LOCATION).and_then(|place| place.to_str().ok());
        let subject = place.map_or(self.subject, str::to_owned);
        AuditedAction { subject, ..self }
    }

    /// Waits for the response to the request. If the response reports success, writes the action to the audit log. If
    /// that write fails, returns the error of the write in place of the response.
    async fn finish_audited(self, response: impl Future<Output = Response>, app: Arc<App>) -> Response {
        let response = response.await;
        if !response.status().is_success() {
            return response;
        }
        let AuditedAction { caller, action, subject } = self.with_location(&response);
        match app.write_audit_entry(&caller, action, subject).await {
            Ok(()) => response,
            Err(error) => error.into_response(),
        }
    }
}

/// Identifies the caller of a request, checks that it has the scope, if one is needed, and takes a permit for a request of
/// the caller's tenant.
///
/// Returns 401 for an unknown token, and 403 if the token does not have the scope. Returns 429 if too many tokens from
/// this address were unknown, or if the tenant has too many open requests.
async fn authorize(
    app: &App,
    token: Option<&str>,
    from: Option<IpAddr>,
    scope: Option<Scope>,
) -> Result<(Caller, Permit), ApiError> {
    let caller = identify(app, token, from).await?;
    // A tenant has no scope of the operators, whatever its identity provider says.
    if let Some(scope) = scope
        && (!caller.scopes.has(scope) || scope.is_for_operators() && !app.acts_for_operators(&caller))
    {
        return Err(ApiError::forbidden(scope));
    }
    let place = app.requests.try_take(&caller.tenant, 1);
    let full = || ApiError::busy("too_many_requests", "the tenant has too many open requests; try again later");
    Ok((caller, place.ok_or_else(full)?))
}

/// Identifies the caller of a request.
async fn identify(app: &App, token: Option<&str>, from: Option<IpAddr>) -> Result<Caller, ApiError> {
    let mut session = machine_session(app, token, from).await?;
    if let (Some(earlier), Some(token)) = (&session, token) {
        match app.identity.identify(Some(earlier)) {
            Err(AuthError::Unknown) => {}
            found => return Ok(found?),
        }
        // The session has ended before the token of the machine: others of its account have taken its place, for example.
        app.machines.forget(token, earlier);
        session = machine_session(app, Some(token), from).await?;
    }
    let shown = session.as_deref().or(token);
    app.failures.limited(from, "token", std::future::ready(()).map(|()| app.identity.identify(shown))).await
}

/// Returns the token of the session of a machine whose token is of an issuer, or `None` for any other caller. A wrong token
/// counts as an unknown one of its address.
async fn machine_session(app: &App, token: Option<&str>, from: Option<IpAddr>) -> Result<Option<String>, ApiError> {
    let Some((token, sign_ins)) = token.filter(|token| machines::is_issued(token)).zip(app.sign_ins.as_ref()) else {
        return Ok(None);
    };
    if !app.identity.asks_for_tokens() {
        return Ok(None);
    }
    let now = Instant::now();
    let _turn = match from {
        Some(from) => app.failures.wait_for_turn(from, now).await,
        None => None,
    };
    let sign_in = async { Ok::<_, ApiError>(sign_ins.sign_in_machine(token).await?) };
    let session = app.machines.session(token, app.host.now(), sign_in).await;
    if let (Err(error), Some(from)) = (&session, from)
        && error.status() == StatusCode::FORBIDDEN
    {
        app.failures.count_unknown_token(from, now);
    }
    session
}

/// Middleware that lets a large page hold a permit for its bytes until it is sent. Client addresses share the permits,
/// because the tenant of a page is known to its routes only.
pub(super) async fn hold_page(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let permit = RequestPermit::new(None, app.bodies.clone(), client_as_tenant(&request));
    let method = request.method().clone();
    let response = next.run(request).await;
    in_time(permit.hold_until_sent(&method, &app.responses, response)).await
}

/// Returns the client address of a request without a known tenant, converted to a tenant. The request takes its permits
/// for this tenant.
fn client_as_tenant(request: &Request) -> Tenant {
    let address = request.extensions().get().map(|ClientAddr(from)| counted_address(*from).to_string());
    address.unwrap_or_default().as_str().into()
}

async fn unknown_route(uri: Uri) -> ApiError {
    ApiError::not_found("not_found", format!("unknown path `{}`", uri.path()))
}

async fn not_allowed(method: Method, uri: Uri) -> ApiError {
    let why = format!("`{}` does not accept {method}", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", why)
}
