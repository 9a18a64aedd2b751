//! The tenant's triggers, as people see and change them.

use axum::{
    Json,
    http::{StatusCode, header},
    response::IntoResponse,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    app::Request,
    fault::{Fault, FaultBody},
    intake::{Body, Place},
    steer::Nothing,
};
use crate::{
    FlowLibrary,
    triggers::operation::{Act, TriggerDesk, TriggerError},
};

/// All triggers of the tenant.
#[derive(Serialize, ToSchema)]
pub(super) struct TriggerList {
    /// By flow and id.
    #[schema(value_type = Vec<Object>)]
    triggers: Vec<Value>,
}

/// A trigger to be bound to a flow.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewTrigger {
    /// Which flow it starts.
    flow: String,
    /// `{ id, cron | webhook | event, … }`, as a flow's file would have it.
    #[schema(value_type = Object)]
    trigger: Value,
}

impl Request {
    /// Does something at the desk of the tenant, and lets the server see it.
    async fn desk<T: Send + 'static>(
        self,
        work: impl FnOnce(TriggerDesk<'_>) -> Result<T, TriggerError> + Send + 'static,
    ) -> Result<T, Fault> {
        let (app, tenant) = (self.app.clone(), self.tenant().clone());
        let done = self.blocking(move |request| {
            let library = FlowLibrary::open(request.app.flows_of(request.tenant()));
            Ok(work(TriggerDesk::new(&request.host, library))?)
        });
        let done = done.await?;
        app.triggers.refresh(&tenant).await?;
        app.triggers.changed();
        Ok(done)
    }

    async fn act(self, (flow, id): (String, String), act: Act) -> Result<Value, Fault> {
        self.desk(move |desk| desk.act(&flow, &id, &act)).await
    }
}

/// List the triggers
#[utoipa::path(get, path = "/v1/triggers", tag = "triggers",
    responses((status = 200, body = TriggerList), (status = "default", body = FaultBody)))]
pub(super) async fn list(request: Request) -> Result<Json<TriggerList>, Fault> {
    Ok(Json(TriggerList { triggers: request.desk(|desk| desk.list()).await? }))
}

/// Bind a trigger to a flow
#[utoipa::path(post, path = "/v1/triggers", tag = "triggers", request_body = NewTrigger,
    responses((status = 201, body = Object, headers(("location" = String))), (status = "default", body = FaultBody)))]
pub(super) async fn create(request: Request, Body(new): Body<NewTrigger>) -> Result<impl IntoResponse, Fault> {
    let NewTrigger { flow, trigger } = new;
    let place = format!("/v1/triggers/{flow}/{}", trigger["id"].as_str().unwrap_or_default());
    let made = request.act((flow, String::new()), Act::Create { trigger }).await?;
    Ok((StatusCode::CREATED, [(header::LOCATION, place)], Json(made)))
}

/// Show a trigger
#[utoipa::path(get, path = "/v1/triggers/{flow}/{trigger}", tag = "triggers",
    params(("flow" = String, Path,), ("trigger" = String, Path,)),
    responses((status = 200, body = Object), (status = "default", body = FaultBody)))]
pub(super) async fn show(request: Request, Place((flow, id)): Place<(String, String)>) -> Result<Json<Value>, Fault> {
    Ok(Json(request.desk(move |desk| desk.show(&flow, &id)).await?))
}

/// Take a trigger away that was bound to a flow
#[utoipa::path(delete, path = "/v1/triggers/{flow}/{trigger}", tag = "triggers",
    params(("flow" = String, Path,), ("trigger" = String, Path,)),
    responses((status = 204, description = "it is gone"), (status = "default", body = FaultBody)))]
pub(super) async fn delete(request: Request, Place(place): Place<(String, String)>) -> Result<StatusCode, Fault> {
    request.act(place, Act::Delete).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Let a trigger start its flow from now on
#[utoipa::path(post, path = "/v1/triggers/{flow}/{trigger}/enable", tag = "triggers",
    params(("flow" = String, Path,), ("trigger" = String, Path,)),
    request_body(content = Nothing, description = "may be left out"),
    responses((status = 200, body = Object), (status = "default", body = FaultBody)))]
pub(super) async fn enable(
    request: Request,
    Place(place): Place<(String, String)>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Json<Value>, Fault> {
    Ok(Json(request.act(place, Act::Enable).await?))
}

/// Let a trigger start nothing
#[utoipa::path(post, path = "/v1/triggers/{flow}/{trigger}/disable", tag = "triggers",
    params(("flow" = String, Path,), ("trigger" = String, Path,)),
    request_body(content = Nothing, description = "may be left out"),
    responses((status = 200, body = Object), (status = "default", body = FaultBody)))]
pub(super) async fn disable(
    request: Request,
    Place(place): Place<(String, String)>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Json<Value>, Fault> {
    Ok(Json(request.act(place, Act::Disable).await?))
}

/// Start the flow of a trigger once, now
#[utoipa::path(post, path = "/v1/triggers/{flow}/{trigger}/fire", tag = "triggers",
    params(("flow" = String, Path,), ("trigger" = String, Path,)),
    request_body(content = Nothing, description = "may be left out"),
    responses((status = 202, body = Object), (status = "default", body = FaultBody)))]
pub(super) async fn fire(
    request: Request,
    Place(place): Place<(String, String)>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<impl IntoResponse, Fault> {
    Ok((StatusCode::ACCEPTED, Json(request.act(place, Act::Fire).await?)))
}
