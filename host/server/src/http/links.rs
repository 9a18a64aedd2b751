//! Links that answer a gate: the routes that show the question of a link, and answer it. They need no token: the code of
//! the link is signed, and counts for one question of one run.

use std::{net::IpAddr, sync::Arc};

use axum::{Extension, Json, extract::State, http::StatusCode};
use flowcell_contract::{Json as Value, Tenant};
use flowcell_platform::{
    notify::{
        Notifications,
        link::{AnswerLink, LinkError},
    },
    shape::time,
    waiting,
};
use flowcell_runtime::{QuestionRef, RunCommand, ports::StoreError};
use serde::Deserialize;
use serde_json::json;
use utoipa::ToSchema;

use super::{
    api_error::{ApiError, ErrorBody},
    app::{App, Request, finish_detached},
    auth_rate_limiter::ClientAddr,
    identity::{AuthError, Caller, Scope},
    intake::Body,
    permit::RequestPermit,
    steer::{self, Accepted},
};
use crate::blocking::blocking;

/// A link.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LinkCode {
    /// The code of the link: the part of its URL behind `#`.
    pub(super) code: String,
}

/// The answer of a person with a link.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LinkAnswer {
    /// The code of the link: the part of its URL behind `#`.
    code: String,
    /// The answer: a text, or `{ "content", "choice"? }`.
    #[schema(value_type = serde_json::Value)]
    answer: Value,
}

/// Show the question of a link
///
/// The answer has the members of an open question at `GET /v1/runs/{id}/gates/{gate}`, and `runId`, `flow` and `linkEnds`,
/// the end of the link in milliseconds since 1970. Nothing changes, so a link can be shown again and again.
#[utoipa::path(post, path = "/v1/links/question", tag = "steering", request_body = LinkCode,
    responses((status = 200, body = Object), (status = "default", body = ErrorBody)))]
pub(crate) async fn show_linked_question(
    State(app): State<Arc<App>>,
    from: Option<Extension<ClientAddr>>,
    Body(LinkCode { code }): Body<LinkCode>,
) -> Result<Json<serde_json::Value>, ApiError> {
    let linked = Linked::open(&app, from, code).await?;
    Ok(Json(linked.question().await?))
}

/// Answer the question of a link
///
/// The first answer counts, whether by link or by token. A later one gets 409 `gate_closed`, with the time of the first one in
/// `details.answeredAt`.
#[utoipa::path(post, path = "/v1/links/answer", tag = "steering", request_body = LinkAnswer,
    responses((status = 200, body = Accepted), (status = "default", body = ErrorBody)))]
pub(crate) async fn answer_by_link(
    State(app): State<Arc<App>>,
    from: Option<Extension<ClientAddr>>,
    Body(LinkAnswer { code, answer }): Body<LinkAnswer>,
) -> Result<Json<Accepted>, ApiError> {
    let linked = Linked::open(&app, from, code).await?;
    // The error of a closed question or an ended run is that of the page.
    linked.question().await?;
    finish_detached(async move {
        let AnswerLink { run, address, digest, .. } = &linked.link;
        let question = QuestionRef { attempt: None, digest: Some(digest.as_str().into()) };
        let command = RunCommand::reply(address.clone(), answer, question);
        match steer::perform(&linked.request, run, command).await {
            Err(error) if error.status() == StatusCode::CONFLICT => Err(linked.closed().await?),
            performed => performed.map(|()| Json(Accepted::new(run))),
        }
    })
    .await
}

/// A request with a link whose code is right.
struct Linked {
    request: Request,
    link: AnswerLink,
    notifications: Notifications,
    /// A place among the requests of the tenant, until the answer.
    _permit: Arc<RequestPermit>,
}

impl Linked {
    /// Opens a code. A code that is not signed by this store, and a link whose tenant or target has no links now, get the same
    /// error, and count as a guess of their address.
    async fn open(app: &Arc<App>, from: Option<Extension<ClientAddr>>, code: String) -> Result<Linked, ApiError> {
        let from: Option<IpAddr> = from.map(|Extension(ClientAddr(from))| from);
        let notifications = app.notifications.clone();
        let look_up = async {
            // A server without notifications has made no link.
            let notifications = notifications.ok_or(AuthError::Unknown)?;
            let found = blocking(move || {
                let opened = notifications.open_link(&code);
                (notifications, opened)
            });
            let (notifications, opened) = found.await.map_err(|_| AuthError::Unavailable)?;
            match opened {
                Ok(link) => Ok(Ok((notifications, link))),
                Err(LinkError::Ended(at)) => Ok(Err(at)),
                Err(LinkError::Unknown) => Err(AuthError::Unknown),
                Err(LinkError::Unavailable) => Err(AuthError::Unavailable),
            }
        };
        let found = app.failures.limited(from, "link", look_up).await;
        let found =
            found.map_err(|error| if error.status() == StatusCode::UNAUTHORIZED { invalid() } else { error })?;
        let (notifications, link) = found.map_err(|at| {
            let why = format!("the link ended at {}; the question may be answered elsewhere", time(at));
            ApiError::new(StatusCode::GONE, "link_ended", why).with_details(json!({ "endedAt": at }))
        })?;
        let (request, permit) = request_of(app, link.tenant.clone(), Scope::GateDecide, link.actor()).await?;
        Ok(Linked { request, link, notifications, _permit: permit })
    }

    /// Returns the question, if it is open.
    async fn question(&self) -> Result<serde_json::Value, ApiError> {
        let (link, request) = (&self.link, &self.request);
        let run = link.run.clone();
        let row = request.clone().blocking(move |request| Ok(request.runs()?.run(request.tenant(), &run)?)).await?;
        let Some((row, _)) = row else { return Err(self.closed().await?) };
        if !self.notifications.hears(link, &row.flow) {
            return Err(invalid());
        }
        if row.status == "removed" || row.has_ended() {
            return Err(self.closed().await?);
        }
        let (run, gate) = (link.run.clone(), link.address.clone());
        let open = request.clone().reading(move |request| Ok(waiting::question(&request.host, &run, &gate)?)).await?;
        let Some(mut question) = open.filter(|question| question["digest"] == link.digest.as_str()) else {
            return Err(self.closed().await?);
        };
        question["runId"] = json!(link.run);
        question["flow"] = json!(row.flow);
        question["linkEnds"] = json!(link.ends);
        Ok(question)
    }

    /// Returns the error of a question that is not open any more. It says when it was answered, and not by whom, which is in
    /// the audit log.
    async fn closed(&self) -> Result<ApiError, ApiError> {
        let link = self.link.clone();
        self.request
            .clone()
            .reading(move |request| {
                let closed = |why: &str| ApiError::new(StatusCode::CONFLICT, "gate_closed", why);
                let row = request.runs()?.run(request.tenant(), &link.run)?.map(|(row, _)| row);
                let Some(row) = row.filter(|row| row.status != "removed") else {
                    return Ok(closed("the run of this link does not exist any more"));
                };
                let children = |run: &flowcell_contract::RunId| match request.host.runs() {
                    Some(runs) => runs.children(request.tenant(), run),
                    None => Err(StoreError::unavailable("the host has no durable store")),
                };
                let answered = waiting::answered_at(&request.host, &link.run, &link.address, children)?;
                Ok(match answered.filter(|at| *at >= link.since) {
                    Some(at) => closed(&format!("the question was answered at {}", time(at)))
                        .with_details(json!({ "answeredAt": at })),
                    None if row.has_ended() => closed("the run of this link has ended, and needs no answer"),
                    None => closed(
                        "the question of this link is not open any more; the run asks something else, or nothing",
                    ),
                })
            })
            .await
    }
}

/// Returns the request of a link with this one scope, and its place among the requests of the tenant.
pub(super) async fn request_of(
    app: &Arc<App>,
    tenant: Tenant,
    scope: Scope,
    actor: Arc<str>,
) -> Result<(Request, Arc<RequestPermit>), ApiError> {
    let (identity, of) = (app.identity.clone(), tenant.clone());
    let policy = blocking(move || identity.policy(&of)).await.map_err(ApiError::internal)??;
    let scopes = [scope].into_iter().collect();
    let caller = Caller { tenant: tenant.clone(), scopes, token: Some(actor), policy: Arc::new(policy) };
    let full = || ApiError::busy("too_many_requests", "the tenant has too many open requests; try again later");
    let place = app.requests.try_take(&tenant, 1).ok_or_else(full)?;
    let permit = RequestPermit::new(Some(place), app.bodies.clone(), tenant);
    let request = Request { app: app.clone(), host: app.host_of(&caller), caller, place: Arc::downgrade(&permit) };
    Ok((request, permit))
}

/// Returns the error of a link that opens nothing. It does not tell why, so a guess learns nothing.
fn invalid() -> ApiError {
    let why = "the link is not valid, or not valid any more; open it again from the message, or ask its sender";
    ApiError::not_found("link_invalid", why)
}
