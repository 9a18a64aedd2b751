//! The routes that list the circuit breakers of this process: those of the tenant, and for the operators those of all
//! tenants.

use std::time::Duration;

use axum::Json;
use flowcell_contract::Tenant;
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    api_error::{ApiError, ErrorBody},
    app::Request,
};
use flowcell_platform::{BreakerState, OpenBreaker};

/// Maximum number of circuit breakers in an answer. A tenant has at most 256.
pub(crate) const MAX_BREAKERS: usize = 1_000;

/// The state of a circuit breaker that is not closed.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
enum BreakerPhase {
    /// No request leaves. From `until` on, the next request is a probe.
    Open,
    /// A probe is under way, and no other request leaves until its end, or until `until`.
    HalfOpen,
    /// The probe was answered. The rate of requests grows, and the breaker is closed at `until`.
    Recovering,
}

/// A circuit breaker that is not closed.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BreakerView {
    tenant: String,
    /// The scheme, host and port of the server that has failed.
    origin: String,
    state: BreakerPhase,
    /// The time at which the breaker opened, in milliseconds since 1970.
    since: u64,
    /// The time of the next probe, or the time at which a recovering breaker is closed, in milliseconds since 1970. The
    /// present time if an open breaker waits for a request.
    until: u64,
}

/// The circuit breakers of this process that are not closed.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BreakerList {
    /// The breakers, those that are open for longest first, at most 1,000.
    breakers: Vec<BreakerView>,
    /// The number of further breakers. Absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<u64>,
    /// The time of this process, in milliseconds since 1970.
    now: u64,
}

impl BreakerView {
    fn new(breaker: OpenBreaker, now: u64) -> BreakerView {
        let OpenBreaker { tenant, origin, state, open_for, remaining } = breaker;
        let state = match state {
            BreakerState::Open => BreakerPhase::Open,
            BreakerState::Probing => BreakerPhase::HalfOpen,
            BreakerState::Recovering => BreakerPhase::Recovering,
        };
        let (since, until) = (now.saturating_sub(millis(open_for)), now.saturating_add(millis(remaining)));
        BreakerView { tenant: tenant.to_string(), origin: origin.to_string(), state, since, until }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the breakers of one tenant, or of all.
fn list(request: &Request, only: Option<&Tenant>) -> BreakerList {
    let now = request.app.host.now();
    let mut breakers = request.app.host.breakers(only);
    let left_out = Some(breakers.len().saturating_sub(MAX_BREAKERS) as u64).filter(|more| *more > 0);
    breakers.truncate(MAX_BREAKERS);
    BreakerList {
        breakers: breakers.into_iter().map(|breaker| BreakerView::new(breaker, now)).collect(),
        left_out,
        now,
    }
}

/// List the circuit breakers of the tenant that are not closed, in this process
#[utoipa::path(get, path = "/v1/breakers", tag = "tenant", operation_id = "list_breakers",
    responses((status = 200, body = BreakerList), (status = "default", body = ErrorBody)))]
pub(crate) async fn own(request: Request) -> Result<Json<BreakerList>, ApiError> {
    Ok(Json(list(&request, Some(request.tenant()))))
}

/// List the circuit breakers of all tenants that are not closed, in this process
#[utoipa::path(get, path = "/v1/admin/breakers", tag = "admin", operation_id = "list_breakers_of_all_tenants",
    responses((status = 200, body = BreakerList), (status = "default", body = ErrorBody)))]
pub(crate) async fn all(request: Request) -> Result<Json<BreakerList>, ApiError> {
    Ok(Json(list(&request, None)))
}
