//! The route for posts to triggers. It is the only route that accepts a signature instead of a token.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    body::Body,
    extract::{Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use flowcell_contract::Tenant;
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    app::App,
    fault::{Fault, FaultBody},
    intake::{Patience, Place},
};
use flowcell_platform::triggers::hook::{POST_BYTES, Taken};

/// What has become of a post.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HookView {
    /// The run that it has started, now or before.
    run_id: String,
}

/// Start a flow by a post that is signed as Standard Webhooks are
///
/// The same `webhook-id` gives the same run, however often it is sent; with another body it is a conflict.
#[utoipa::path(post, path = "/v1/hooks/{tenant}/{flow}/{trigger}", tag = "triggers",
    params(("tenant" = String, Path,), ("flow" = String, Path,), ("trigger" = String, Path,),
        ("webhook-id" = Option<String>, Header,), ("webhook-timestamp" = Option<String>, Header,),
        ("webhook-signature" = Option<String>, Header,)),
    request_body(content = Object, content_type = "application/json"),
    responses((status = 202, body = HookView), (status = 200, body = HookView), (status = "default", body = FaultBody)))]
pub(crate) async fn receive(
    State(app): State<Arc<App>>,
    Place((tenant, flow, trigger)): Place<(String, String, String)>,
    request: Request,
) -> Result<Response, Fault> {
    let patience = Patience::with(&request);
    let (head, body) = request.into_parts();
    let body = read(body, patience).await?;
    let tenant = Tenant::from(tenant);
    let place = (&tenant, flow.as_str(), trigger.as_str());
    let (status, run) = match app.triggers.receive(place, &head.headers, &body, app.host.now()).await? {
        Taken::Started(run) => (StatusCode::ACCEPTED, run),
        Taken::Known(run) => (StatusCode::OK, run),
    };
    Ok((status, Json(HookView { run_id: run.to_string() })).into_response())
}

async fn read(body: Body, patience: Duration) -> Result<axum::body::Bytes, Fault> {
    let read = tokio::time::timeout(patience, axum::body::to_bytes(body, POST_BYTES)).await;
    let late = || Fault::new(StatusCode::REQUEST_TIMEOUT, "timeout", "the body did not come in time");
    read.map_err(|_| late())?.map_err(|_| {
        let why = format!("a post has at most {POST_BYTES} bytes");
        Fault::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", why)
    })
}
