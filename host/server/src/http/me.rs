//! The route that shows the caller to itself.

use axum::Json;
use flowcell_runtime::{limits::MAX_REQUEST_BYTES, paging::PAGE_BYTES};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    api_error::{ApiError, ErrorBody},
    app::Request,
    events::MAX_PAGE_EVENTS,
    identity::OwnToken,
    intake::MAX_BODY_BYTES,
    search::MAX_PAGE_RUNS,
    start::MAX_WAIT,
};
use flowcell_platform::{library::MAX_FLOW_BYTES, policy::PerDay};

/// The caller of a request, its permissions, and the limits that apply to it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Me {
    /// The tenant that the caller acts for. Absent for a token of the operators, which belongs to no tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    /// The caller's token. Absent for a caller without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<MyToken>,
    /// The scopes of the caller.
    scopes: Vec<String>,
    /// True if the server requires no tokens: every caller on its machine is then the tenant `local`.
    local: bool,
    /// True if the caller may act on all tenants, see `/v1/admin`.
    operator: bool,
    /// The version of Flowcell.
    version: &'static str,
    /// The version of this interface.
    api: &'static str,
    /// The time of the server, in milliseconds since 1970.
    now: u64,
    /// The limits of requests and of the tenant.
    limits: MyLimits,
}

/// The caller's token, without its secret.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct MyToken {
    /// The id of the token, as audit logs and `flowcell token list` show it.
    id: String,
    /// Its name. Absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// The time when it expires, in milliseconds since 1970. Absent if it never expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<u64>,
    /// A warning in its last seven days, such as `expires in 3 days`.
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
}

/// The limits that matter to a client. The page `limits` of the manual has all others.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct MyLimits {
    /// The maximum size of a request's body in bytes, except that of a file.
    body_bytes: usize,
    /// The maximum size of the text of a flow in bytes.
    flow_bytes: usize,
    /// The maximum size of an answer, an event or a message to a run, in bytes of JSON text.
    answer_bytes: usize,
    /// The maximum size of a page of a list in bytes of JSON text.
    page_bytes: u64,
    /// The maximum number of runs in a page.
    page_runs: usize,
    /// The maximum number of events in a page.
    page_events: usize,
    /// The maximum time for which `wait=true` waits, in milliseconds.
    wait_ms: u64,
    /// The interval at which a stream sends a comment, in milliseconds.
    heartbeat_ms: u64,
    /// The maximum number of the tenant's runs that have not ended. Absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    live_runs: Option<u32>,
    /// The quotas of the tenant per day: `computeMs`, `events`, `writtenMib`, `modelUsd`. `/v1/usage` has the use.
    #[schema(value_type = Object)]
    per_day: PerDay,
}

impl MyLimits {
    fn of(request: &Request) -> MyLimits {
        let policy = &request.caller.policy;
        MyLimits {
            body_bytes: MAX_BODY_BYTES,
            flow_bytes: MAX_FLOW_BYTES,
            answer_bytes: MAX_REQUEST_BYTES,
            page_bytes: PAGE_BYTES,
            page_runs: MAX_PAGE_RUNS,
            page_events: MAX_PAGE_EVENTS,
            wait_ms: MAX_WAIT.as_millis() as u64,
            heartbeat_ms: request.app.heartbeat.as_millis() as u64,
            live_runs: policy.max_live_runs,
            per_day: policy.per_day,
        }
    }
}

/// Show the caller: its tenant, its token without the secret, its scopes and its limits
///
/// Any valid token may ask, whatever its scopes are.
#[utoipa::path(get, path = "/v1/me", tag = "tenant", operation_id = "show_me",
    responses((status = 200, body = Me), (status = "default", body = ErrorBody)))]
pub(crate) async fn me(request: Request) -> Result<Json<Me>, ApiError> {
    let me = request.blocking(|request| {
        let (app, caller) = (&request.app, &request.caller);
        let OwnToken { name, expires, warning } = app.identity.token_of(caller)?;
        let name = Some(name).filter(|name| !name.is_empty());
        let token = caller.token.as_ref().map(|id| MyToken { id: id.to_string(), name, expires, warning });
        Ok(Me {
            tenant: (!caller.is_operator()).then(|| caller.tenant.to_string()),
            token,
            scopes: caller.scopes.names(),
            local: !app.identity.asks_for_tokens(),
            operator: app.acts_for_operators(caller),
            version: env!("CARGO_PKG_VERSION"),
            api: "v1",
            now: app.host.now(),
            limits: MyLimits::of(request),
        })
    });
    Ok(Json(me.await?))
}
