//! The route for posts to triggers. It is the only route that accepts the proof of a webhook's scheme, such as a
//! signature, instead of a token.

use std::sync::Arc;

use axum::{
    Json,
    body::Body,
    extract::{Request, State},
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use flowcell_contract::{RunId, Tenant, http_answer::HttpAnswer};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use super::{
    api_error::{ApiError, ErrorBody},
    app::App,
    auth_rate_limiter::ClientAddr,
    connection::wait_for_server_end,
    intake::{PathParam, read_body},
    permit::RequestPermit,
    seats::counted_address,
};
use flowcell_platform::triggers::{
    reply::{AwaitedReply, Reply, wait_for_reply},
    webhook::{ChallengeReply, POST_BYTES, PostResult},
};

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

/// The policy of the answers of flows: they run no code and are not part of the origin of the console.
const SANDBOX: HeaderValue =
    HeaderValue::from_static("sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'");

/// Start a flow by a post that is signed as the scheme of the trigger demands
///
/// Posts with the same id and body start one run. The same id with another body is a conflict. The headers are those of
/// Standard Webhooks, the default scheme. If the trigger says so, the run answers, with a status, headers and a body of
/// the flow.
#[utoipa::path(post, path = "/v1/hooks/{tenant}/{flow}/{trigger}", tag = "triggers",
    params(("tenant" = String, Path,), ("flow" = String, Path,), ("trigger" = String, Path,),
        ("webhook-id" = Option<String>, Header,), ("webhook-timestamp" = Option<String>, Header,),
        ("webhook-signature" = Option<String>, Header,)),
    request_body(content = Object, content_type = "application/json"),
    responses((status = 202, body = HookView), (status = 200, body = HookView),
        (status = 204, description = "accepted, for a sender that expects no body"),
        (status = "default", body = ErrorBody)))]
pub(crate) async fn receive(
    State(app): State<Arc<App>>,
    PathParam((tenant, flow, trigger)): PathParam<(String, String, String)>,
    request: Request,
) -> Result<Response, ApiError> {
    let headers = request.headers().clone();
    let from = request.extensions().get().map(|ClientAddr(from)| counted_address(*from));
    let permit = request.extensions().get::<Arc<RequestPermit>>().cloned();
    let body = read_body(request, POST_BYTES).await?;
    let tenant = Tenant::from(tenant);
    let place = (&tenant, flow.as_str(), trigger.as_str());
    let taken = app.triggers.receive(place, from, &headers, &body, app.host.now()).await?;
    drop((body, headers));
    match taken {
        PostResult::Started(run) => Ok(view(StatusCode::ACCEPTED, Some(&run), None)),
        PostResult::Known(run) => Ok(view(StatusCode::OK, Some(&run), None)),
        PostResult::Taken => Ok(no_content()),
        PostResult::Challenge(challenge) => Ok(reply_to_challenge(challenge)),
        PostResult::Awaits(post) => {
            // The post may wait for long, and its body is part of the run by now.
            permit.iter().for_each(|permit| permit.shrink_body(0));
            reply(&app, &post).await
        }
    }
}

fn reply_to_challenge(reply: ChallengeReply) -> Response {
    match reply {
        ChallengeReply::Empty => view(StatusCode::OK, None, None),
        ChallengeReply::Repeat(challenge) => view(StatusCode::OK, None, Some(challenge)),
        ChallengeReply::NoContent => no_content(),
        ChallengeReply::Pong => Json(json!({ "type": 1 })).into_response(),
    }
}

/// Returns 204 without a body. Discord also demands a media type.
fn no_content() -> Response {
    (StatusCode::NO_CONTENT, [(header::CONTENT_TYPE, "application/json")]).into_response()
}

fn view(status: StatusCode, run: Option<&RunId>, challenge: Option<String>) -> Response {
    (status, Json(HookView { run_id: run.map(RunId::to_string), challenge })).into_response()
}

/// Waits for the run of a post, and answers as it says. When the server ends, the answer is the id of the run.
async fn reply(app: &App, post: &AwaitedReply) -> Result<Response, ApiError> {
    let mut ends = app.ends.subscribe();
    let reply = tokio::select! {
        reply = wait_for_reply(&app.triggers, post, &app.journals) => reply,
        () = wait_for_server_end(&mut ends) => Reply::Late,
    };
    let run = post.run();
    let failed = |code, why: String| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, code, why);
    match reply {
        Reply::Answer(answer) => send(answer),
        Reply::Nothing => Ok(view(StatusCode::OK, Some(run), None)),
        Reply::Late => Ok(view(StatusCode::ACCEPTED, Some(run), None)),
        Reply::Failed { status, code } => {
            let details = json!({ "runId": run.as_str(), "status": status, "code": code });
            Err(failed("run_failed", format!("the run `{run}` has ended without an answer")).with_details(details))
        }
        Reply::Invalid(why) => {
            tracing::warn!("the answer of the run `{run}` to a post cannot be sent: {why}");
            Err(failed("response_refused", format!("the answer of the run `{run}` cannot be sent: {why}")))
        }
    }
}

/// Returns the answer of a flow. The headers that protect the console's origin cannot be replaced by those of the flow.
fn send(answer: HttpAnswer) -> Result<Response, ApiError> {
    let mut response = Response::new(Body::from(answer.body.unwrap_or_default()));
    *response.status_mut() = StatusCode::from_u16(answer.status).map_err(ApiError::internal)?;
    let headers = response.headers_mut();
    for (name, value) in answer.headers {
        let name = HeaderName::try_from(name).map_err(ApiError::internal)?;
        headers.insert(name, HeaderValue::try_from(value).map_err(ApiError::internal)?);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_SECURITY_POLICY, SANDBOX);
    Ok(response)
}
