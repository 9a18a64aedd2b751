//! Routes that show and change the tenant's triggers.

use axum::{
    Json,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    api_error::{ApiError, ErrorBody},
    app::Request,
    intake::{Body, PathParam, QueryParams},
    page::{self, After, BY_BYTES},
    start::idempotency_key,
    steer::Nothing,
};
use flowcell_platform::triggers::operation::{TriggerAdmin, TriggerError, TriggerOperation};

/// A page of the tenant's triggers.
#[derive(Serialize, ToSchema)]
pub(crate) struct TriggerList {
    /// The triggers by flow and id, at most 16 MiB.
    #[schema(value_type = Vec<Object>)]
    triggers: Vec<Value>,
    /// The `cursor` of the next page; the last page has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// A trigger to bind to a flow.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewTrigger {
    /// The flow that the trigger starts.
    flow: String,
    /// The trigger `{ id, cron | webhook | event, … }`, as in the file of a flow.
    #[schema(value_type = Object)]
    trigger: Value,
}

/// Runs blocking work on the tenant's triggers, and reloads them in the server afterwards.
async fn handle<T: Send + 'static>(
    request: Request,
    work: impl FnOnce(TriggerAdmin<'_>) -> Result<T, TriggerError> + Send + 'static,
) -> Result<T, ApiError> {
    let (app, tenant) = (request.app.clone(), request.tenant().clone());
    let done = request.blocking(move |request| Ok(work(admin(request))?)).await?;
    app.triggers.refresh(&tenant).await?;
    app.triggers.changed();
    Ok(done)
}

fn admin(request: &Request) -> TriggerAdmin<'_> {
    TriggerAdmin::new(&request.host, request.flows())
}

async fn act(request: Request, (flow, id): (String, String), operation: TriggerOperation) -> Result<Value, ApiError> {
    handle(request, move |admin| admin.act(&flow, &id, &operation)).await
}

/// List the triggers
#[utoipa::path(get, path = "/v1/triggers", tag = "triggers", params(After),
    responses((status = 200, body = TriggerList), (status = "default", body = ErrorBody)))]
pub(crate) async fn list(
    request: Request,
    QueryParams(After { cursor }): QueryParams<After>,
) -> Result<Response, ApiError> {
    request.app.triggers.refresh(request.tenant()).await?;
    request.app.triggers.changed();
    page::respond_with_page(request, move |request| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let key = |trigger: &Value| format!("{}/{}", text(&trigger["flow"]), text(&trigger["id"]));
        let triggers = admin(request).list()?.into_iter();
        let triggers = triggers.filter(|trigger| cursor.as_ref().is_none_or(|cursor| key(trigger) > *cursor));
        let (triggers, next) = page::fill_page(triggers, BY_BYTES, key);
        Ok(TriggerList { triggers, next })
    })
    .await
}

/// Bind a trigger to a flow
#[utoipa::path(post, path = "/v1/triggers", tag = "triggers", request_body = NewTrigger,
    responses((status = 201, body = Object, headers(("location" = String))), (status = "default", body = ErrorBody)))]
pub(crate) async fn create(request: Request, Body(new): Body<NewTrigger>) -> Result<impl IntoResponse, ApiError> {
    let NewTrigger { flow, trigger } = new;
    let place = format!("/v1/triggers/{flow}/{}", trigger["id"].as_str().unwrap_or_default());
    let made = act(request, (flow, String::new()), TriggerOperation::Create { trigger }).await?;
    Ok((StatusCode::CREATED, [(header::LOCATION, place)], Json(made)))
}

/// Show a trigger
#[utoipa::path(get, path = "/v1/triggers/{flow}/{trigger}", tag = "triggers",
    params(("flow" = String, Path,), ("trigger" = String, Path,)),
    responses((status = 200, body = Object), (status = "default", body = ErrorBody)))]
pub(crate) async fn show(
    request: Request,
    PathParam((flow, id)): PathParam<(String, String)>,
) -> Result<Json<Value>, ApiError> {
    Ok(Json(handle(request, move |admin| admin.show(&flow, &id)).await?))
}

/// Remove a bound trigger
#[utoipa::path(delete, path = "/v1/triggers/{flow}/{trigger}", tag = "triggers",
    params(("flow" = String, Path,), ("trigger" = String, Path,)),
    responses((status = 204, description = "removed"), (status = "default", body = ErrorBody)))]
pub(crate) async fn delete(
    request: Request,
    PathParam(place): PathParam<(String, String)>,
) -> Result<StatusCode, ApiError> {
    act(request, place, TriggerOperation::Delete).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Enable a trigger: it starts its flow again
#[utoipa::path(post, path = "/v1/triggers/{flow}/{trigger}/enable", tag = "triggers",
    params(("flow" = String, Path,), ("trigger" = String, Path,)),
    request_body(content = Nothing, description = "optional"),
    responses((status = 200, body = Object), (status = "default", body = ErrorBody)))]
pub(crate) async fn enable(
    request: Request,
    PathParam(place): PathParam<(String, String)>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Json<Value>, ApiError> {
    Ok(Json(act(request, place, TriggerOperation::Enable).await?))
}

/// Disable a trigger: it does not start its flow
#[utoipa::path(post, path = "/v1/triggers/{flow}/{trigger}/disable", tag = "triggers",
    params(("flow" = String, Path,), ("trigger" = String, Path,)),
    request_body(content = Nothing, description = "optional"),
    responses((status = 200, body = Object), (status = "default", body = ErrorBody)))]
pub(crate) async fn disable(
    request: Request,
    PathParam(place): PathParam<(String, String)>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Json<Value>, ApiError> {
    Ok(Json(act(request, place, TriggerOperation::Disable).await?))
}

/// Start the flow of a trigger once, now
///
/// The same `Idempotency-Key` starts one run, as long as it is among the latest 64 keys of the trigger.
#[utoipa::path(post, path = "/v1/triggers/{flow}/{trigger}/fire", tag = "triggers",
    params(("flow" = String, Path,), ("trigger" = String, Path,),
        ("Idempotency-Key" = Option<String>, Header, max_length = 256)),
    request_body(content = Nothing, description = "optional"),
    responses((status = 202, body = Object), (status = "default", body = ErrorBody)))]
pub(crate) async fn fire(
    request: Request,
    PathParam((flow, id)): PathParam<(String, String)>,
    headers: HeaderMap,
    Body(Nothing {}): Body<Nothing>,
) -> Result<impl IntoResponse, ApiError> {
    let key = idempotency_key(&headers)?.map(<[u8]>::to_vec);
    let fired = handle(request, move |admin| admin.fire(&flow, &id, key.as_deref())).await?;
    Ok((StatusCode::ACCEPTED, Json(fired)))
}
