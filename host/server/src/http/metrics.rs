//! The route `/metrics`, and the middleware that counts and logs every request.

use std::{sync::Arc, time::Instant};

use axum::{
    extract::{MatchedPath, Request, State},
    http::{HeaderValue, Method, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use flowcell_contract::Tenant;

use super::{
    api_error::ErrorBody,
    app::{App, Request as ApiRequest},
};
use flowcell_platform::observe::metrics::ScrapeValues;

/// The content type of the answer.
const OPENMETRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The header with the id of a request in the log.
const REQUEST_ID_HEADER: &str = "x-request-id";
/// The maximum length of a request id from a client, in characters.
pub(crate) const MAX_REQUEST_ID_CHARS: usize = 128;

/// The tenant that sent a request, as an extension of the response, for the log.
#[derive(Clone)]
pub(crate) struct RequestTenant(pub(crate) Tenant);

/// Show metrics in the format of Prometheus
///
/// A token of a tenant sees the tenant's own series alone; a token of the operators, and every caller of a server without
/// tenants, sees those of the whole server.
#[utoipa::path(get, path = "/metrics", tag = "server",
    responses((status = 200, body = String, content_type = "application/openmetrics-text"),
        (status = "default", body = ErrorBody)))]
pub(crate) async fn metrics(request: ApiRequest) -> Response {
    let app = &request.app;
    let (fleet, now) = (app.fleet.read().await, app.host.now());
    if !app.acts_for_operators(&request.caller) {
        let text = app.host.metrics().render_for(request.tenant(), fleet.as_deref(), now);
        return ([(header::CONTENT_TYPE, OPENMETRICS_TYPE)], text).into_response();
    }
    let room = app.host.store().and_then(|store| store.room());
    let now = ScrapeValues {
        runs_waiting: app.admission.waiting_count() as u64,
        runs_below: app.host.live().all_children(),
        requests_active: app.requests.taken(),
        subscribers: app.subscribers.taken(),
        free_room: room.map(|room| room.free),
        least_room: room.map(|room| room.least),
        store_available: app.host.shared().is_none_or(|store| store.outage().is_none()),
        started: app.fleet.began(),
        now,
        fleet,
        commits: app.host.store().map(|store| store.commits()).or_else(|| Some(app.host.shared()?.commits())),
    };
    ([(header::CONTENT_TYPE, OPENMETRICS_TYPE)], app.host.metrics().render(&now)).into_response()
}

/// Counts and logs a request. The log has its route, but not its path, query or content.
pub(crate) async fn measure(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let method = method_label(request.method());
    let matched = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let route = matched.as_deref().unwrap_or("other");
    let id = request_id(&request);
    let mut response = next.run(request).await;
    let (status, took) = (response.status().as_u16(), began.elapsed());
    app.host.metrics().count_request(method, route, status, took);
    let tenant = response.extensions().get::<RequestTenant>();
    let tenant = tenant.map_or("", |RequestTenant(tenant)| tenant.as_str());
    let ms = took.as_secs_f64() * 1e3;
    tracing::info!(target: "flowcell::http", request = %id, tenant, method, route, status, ms, "answered");
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID_HEADER, id);
    }
    response
}

/// Returns the id of a request: the client's own, from the header [`REQUEST_ID_HEADER`], if its length and characters
/// are allowed, or else a random one.
fn request_id(request: &Request) -> String {
    let given = request.headers().get(REQUEST_ID_HEADER).and_then(|id| id.to_str().ok());
    let plain = |id: &&str| {
        (1..=MAX_REQUEST_ID_CHARS).contains(&id.len())
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    given.filter(plain).map_or_else(|| format!("{:016x}", rand::random::<u64>()), str::to_owned)
}

/// Returns the label of a method. Methods without routes share the label `other`.
fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        Method::PATCH => "PATCH",
        _ => "other",
    }
}
