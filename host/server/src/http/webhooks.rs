//! The route for posts to triggers. It is the only route that accepts the proof of a webhook's scheme, such as a
//! signature, instead of a token.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use flowcell_contract::Tenant;
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    api_error::{ApiError, ErrorBody},
    app::App,
    auth_rate_limiter::ClientAddr,
    intake::{PathParam, read_body},
    seats::counted_address,
};
use flowcell_platform::triggers::webhook::{POST_BYTES, PostResult};

/// The result of a post.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HookView {
    /// The run that this post, or an earlier one with the same id, started. A test of the address has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<String>,
    /// The `challenge` of a test of the address, which the sender expects in the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    challenge: Option<String>,
}

/// Start a flow by a post that is signed as the scheme of the trigger demands
///
/// Posts with the same id and body start one run. The same id with another body is a conflict. The headers are those of
/// Standard Webhooks, the default scheme.
#[utoipa::path(post, path = "/v1/hooks/{tenant}/{flow}/{trigger}", tag = "triggers",
    params(("tenant" = String, Path,), ("flow" = String, Path,), ("trigger" = String, Path,),
        ("webhook-id" = Option<String>, Header,), ("webhook-timestamp" = Option<String>, Header,),
        ("webhook-signature" = Option<String>, Header,)),
    request_body(content = Object, content_type = "application/json"),
    responses((status = 202, body = HookView), (status = 200, body = HookView), (status = "default", body = ErrorBody)))]
pub(crate) async fn receive(
    State(app): State<Arc<App>>,
    PathParam((tenant, flow, trigger)): PathParam<(String, String, String)>,
    request: Request,
) -> Result<Response, ApiError> {
    let headers = request.headers().clone();
    let from = request.extensions().get().map(|ClientAddr(from)| counted_address(*from));
    let body = read_body(request, POST_BYTES).await?;
    let tenant = Tenant::from(tenant);
    let place = (&tenant, flow.as_str(), trigger.as_str());
    let (status, run, challenge) = match app.triggers.receive(place, from, &headers, &body, app.host.now()).await? {
        PostResult::Started(run) => (StatusCode::ACCEPTED, Some(run), None),
        PostResult::Known(run) => (StatusCode::OK, Some(run), None),
        PostResult::Challenge(challenge) => (StatusCode::OK, None, challenge),
    };
    let run_id = run.map(|run| run.to_string());
    Ok((status, Json(HookView { run_id, challenge })).into_response())
}
