//! The route for the tenant's usage.

use axum::Json;
use utoipa::ToSchema;

use super::{
    api_error::{ApiError, ErrorBody},
    app::Request,
};
use flowcell_platform::{policy::PerDay, usage::Used};

/// The usage of the tenant on this day (UTC), and its limits.
#[derive(serde::Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UsageView {
    /// The compute time of the tenant's attempts, in milliseconds.
    compute_ms: f64,
    /// The number of events of the tenant's runs.
    events: u64,
    /// The approximate number of bytes that the tenant has written to the store as events and files.
    written_bytes: u64,
    /// The known cost of models and images, in USD.
    model_usd: f64,
    /// The limits of the policy: `computeMs`, `events`, `writtenMib`, `modelUsd`.
    #[schema(value_type = Object)]
    per_day: PerDay,
}

impl UsageView {
    /// Creates the view of a day's usage with its limits.
    pub(crate) fn new(used: Used, per_day: PerDay) -> UsageView {
        let Used { compute_ms, events, written_bytes, model_usd } = used;
        UsageView { compute_ms, events, written_bytes, model_usd, per_day }
    }
}

/// Show the usage of the tenant on this day (UTC)
///
/// The usage of the last two seconds may be missing. A server without tokens counts nothing.
#[utoipa::path(get, path = "/v1/usage", tag = "tenant",
    responses((status = 200, body = UsageView), (status = "default", body = ErrorBody)))]
pub(crate) async fn usage(request: Request) -> Result<Json<UsageView>, ApiError> {
    let per_day = request.host.policy().per_day;
    let used = request.blocking(|request| Ok(request.host.usage().of_today(request.tenant())?)).await?;
    Ok(Json(UsageView::new(used, per_day)))
}
