//! The route for the tenant's usage.

use axum::Json;
use utoipa::ToSchema;

use super::{
    app::Request,
    fault::{Fault, FaultBody},
};

/// What the tenant has used up today, by UTC, and what the operator lets it use up.
#[derive(serde::Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UsageView {
    /// Milliseconds that its attempts computed.
    compute_ms: f64,
    /// Events of its runs.
    events: u64,
    /// Bytes of these events and of files, about.
    written_bytes: u64,
    /// What models and images cost, in USD, as far as it is known.
    model_usd: f64,
    /// The most of each, as the policy has it: `computeMs`, `events`, `writtenMib`, `modelUsd`.
    #[schema(value_type = Object)]
    per_day: flowcell_platform::policy::PerDay,
}

/// Show what the tenant has used up today
///
/// What was counted in the last second or two may be missing. Nothing is counted where everybody is the tenant `local`.
#[utoipa::path(get, path = "/v1/usage", tag = "tenant",
    responses((status = 200, body = UsageView), (status = "default", body = FaultBody)))]
pub(crate) async fn usage(request: Request) -> Result<Json<UsageView>, Fault> {
    let per_day = request.host.policy().per_day;
    let used = request.blocking(|request| Ok(request.host.usage().of_today(request.tenant())?)).await?;
    let (compute_ms, events) = (used.compute_ms, used.events);
    Ok(Json(UsageView { compute_ms, events, written_bytes: used.written_bytes, model_usd: used.model_usd, per_day }))
}
