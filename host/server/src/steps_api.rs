//! The routes `/api/…` for flows by name. They behave exactly as the routes of the earlier flow engine.
//!
//! Every answer is `{ "success", "data", "error": { "code", "message" } | null }`.
//!
//! | route | data | codes of errors |
//! |---|---|---|
//! | `POST /api/create_flow` `{ "flow" }` | 201 `{ "message" }` | `BAD_REQUEST`, `CREATE_FLOW_FAILED` |
//! | `POST /api/run_flow` `{"flow_name", "inputs"?}` | `{ "result" }` | `BAD_REQUEST`, `NOT_FOUND`, `RUN_FLOW_FAILED` |
//! | `GET /api/flows` | `{ "flows" }` | `TOO_LARGE` |
//! | `GET /api/flow/<name>` | `{ "flow" }` | `NOT_FOUND` |
//! | `GET /api/flow_runs/<name>?limit=20` | `{ "runs" }` | `BAD_REQUEST`, `NOT_FOUND` |
//!
//! Errors of the server itself have the code `INTERNAL_ERROR`. A flow file that is a link out of its folder gets
//! `LINK_REFUSED`. Errors that arise before a route, such as an unknown token, have their usual code in capitals.

mod envelope;

/// The prefix of the paths of these routes.
pub(super) const PREFIX: &str = "/api/";

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{
    extract::{FromRequest, FromRequestParts, Path, Query, Request},
    http::{StatusCode, request::Parts},
    response::{IntoResponse, Response},
};
use flowcell_contract::{Json, shell::shell_word};
use flowcell_runtime::{
    Channel, Event, FlowRunner, Hub, RunOptions, RunResult, RunStatus,
    paging::{Filling, PAGE_BYTES},
};
use serde::Serialize;
use utoipa::ToSchema;

pub(super) use self::envelope::enveloped;
use self::envelope::{Envelope, ErrorResponse, error_response, success};
use crate::http::{
    api_error::ApiError,
    app::{self, App},
    intake,
    page::{self, BY_BYTES},
    runs::RunView,
    start,
};
use flowcell_platform::{
    FlowEntry, QuotaError, StartError,
    library::LibraryError,
    library::service::{FlowError, FlowService, MAX_LOG_LINES},
};

/// The default number of log lines in the answer to `GET /api/flow_runs/<name>`.
const DEFAULT_LINES: usize = 20;

/// The flow service of the caller's tenant.
pub(super) struct Flows(Arc<FlowService>);

impl FromRequestParts<Arc<App>> for Flows {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Flows, Response> {
        let request = app::Request::from_request_parts(parts, app).await.map_err(IntoResponse::into_response)?;
        let folder = app.flows_of(request.tenant());
        Ok(Flows(Arc::new(FlowService::open(request.host, folder))))
    }
}

/// The body of a request, which must be a JSON object.
pub(super) struct JsonBody(Json);

impl<S: Send + Sync> FromRequest<S> for JsonBody {
    type Rejection = ErrorResponse;

    async fn from_request(request: Request, _: &S) -> Result<JsonBody, ErrorResponse> {
        let read = intake::read_body(request, intake::MAX_BODY_BYTES).await;
        let read = read.and_then(|bytes| intake::check_values(&bytes).map(|()| bytes));
        let bytes =
            read.map_err(|error| ErrorResponse::new(error.status(), "BAD_REQUEST", error.message().to_owned()))?;
        let text = std::str::from_utf8(&bytes)
            .map_err(|error| bad_request(&format!("the body is not UTF-8 text: {error}")))?;
        let json = Json::parse(text).map_err(|error| bad_request(&format!("the body is not JSON: {error}")))?;
        match json.as_object() {
            Some(_) => Ok(JsonBody(json)),
            None => Err(bad_request(&format!("the body must be a JSON object, not {}", json.type_name()))),
        }
    }
}

/// A flow to create.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only the OpenAPI document reads it; bodies are read member by member")]
pub(super) struct CreateFlow {
    /// A flow of the `steps` dialect, or a script `{ "name", "script" }`.
    #[schema(value_type = Object)]
    flow: serde_json::Value,
}

/// A flow to run.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only the OpenAPI document reads it; bodies are read member by member")]
pub(super) struct RunFlow {
    /// The name of the flow.
    flow_name: String,
    /// The inputs of the flow by name.
    #[schema(value_type = Option<Object>)]
    inputs: Option<serde_json::Value>,
}

/// Create a flow
#[utoipa::path(post, path = "/api/create_flow", tag = "spec6", request_body = CreateFlow,
    responses((status = 201, body = Envelope), (status = "default", body = Envelope)))]
pub(super) async fn create_flow(
    request: app::Request,
    Flows(flows): Flows,
    JsonBody(body): JsonBody,
) -> Result<Response, ErrorResponse> {
    let flow = body.get("flow").filter(|flow| flow.as_object().is_some());
    let flow = flow.ok_or_else(|| bad_request("the body must have an object `flow`: send { \"flow\": { … } }"))?;
    let text = serde_json::to_string_pretty(flow).map_err(|error| ErrorResponse::internal(&error))? + "\n";
    let created = request.computing(move |_| Ok(flows.create_flow(&text))).await;
    let created = created.map_err(|error| admission_error(&error))?;
    created.map_err(|error| match error {
        LibraryError::Folder { .. } | LibraryError::Store(_) => ErrorResponse::internal(&error),
        LibraryError::Exists(_) | LibraryError::Moved { .. } | LibraryError::Deployed { .. } => {
            ErrorResponse::new(StatusCode::CONFLICT, "CREATE_FLOW_FAILED", error.to_string())
        }
        _ => ErrorResponse::new(StatusCode::BAD_REQUEST, "CREATE_FLOW_FAILED", error.to_string()),
    })?;
    Ok(success(StatusCode::CREATED, "message", &"Flow created"))
}

/// Run a flow to its end
#[utoipa::path(post, path = "/api/run_flow", tag = "spec6", request_body = RunFlow,
    responses((status = 200, body = Envelope), (status = "default", body = Envelope)))]
pub(super) async fn run_flow(
    request: app::Request,
    Flows(flows): Flows,
    JsonBody(body): JsonBody,
) -> Result<Response, ErrorResponse> {
    let name = body.get("flow_name").and_then(Json::as_str);
    let name = name.ok_or_else(|| bad_request("the body must have a text `flow_name`"))?.to_owned();
    let inputs = body.get("inputs").cloned().unwrap_or_default();
    if !inputs.is_null() && inputs.as_object().is_none() {
        return Err(bad_request("`inputs` must be an object: { \"name\": value }"));
    }
    request.app.require_store().map_err(|error| admission_error(&error))?;
    let (prepares, of) = (flows.clone(), name.clone());
    let prepared = request.clone().computing(move |_| {
        let options = RunOptions { without_events: true, ..RunOptions::default() };
        Ok(prepares.prepare(&of, inputs, options))
    });
    let runner = prepared.await.map_err(|error| admission_error(&error))?.map_err(flow_error)?;
    // The run continues and its steps are logged even if the caller disconnects.
    let run = tokio::spawn(drive_to_end(request, flows, name, runner));
    run.await.map_err(|error| ErrorResponse::internal(&error))?
}

/// Hands a run to the server's supervisor, as `POST /v1/runs` does, and waits until the run ends or only a person or
/// an event can continue it.
async fn drive_to_end(
    request: app::Request,
    flows: Arc<FlowService>,
    name: String,
    mut runner: FlowRunner,
) -> Result<Response, ErrorResponse> {
    let (run, graph) = (runner.run_id().clone(), runner.graph().clone());
    let began = Arc::new(StartRecorder::default());
    runner.attach(began.clone());
    let entered = start::admit(&request, runner, true).await.map_err(|error| admission_error(&error))?;
    if let Some(result) = entered {
        return result_of(result);
    }
    let view = loop {
        let view =
            start::wait_for_outcome(request.clone(), run.clone()).await.map_err(|error| admission_error(&error))?;
        if !view.continues_by_itself() {
            break view;
        }
        if view.status != "running" {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    // The channel that logs steps is attached to `runner`. If the run began later with another runner, its steps are
    // logged here.
    if !began.0.load(Ordering::Acquire) {
        offload(&request, move || flows.log_missing(&name, graph, &run)).await?.map_err(flow_error)?;
    }
    view_of(&view)
}

/// The interval between two checks of a parked run that waits for a timer.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A channel that is attached to one [`FlowRunner`]. It records whether that runner has started the run. False if the
/// run has begun later with another runner.
#[derive(Default)]
struct StartRecorder(AtomicBool);

impl Channel for StartRecorder {
    fn on_start(&self, _hub: &Hub) {
        self.0.store(true, Ordering::Release);
    }

    fn on_event(&self, _event: &Event) {}
}

fn admission_error(error: &ApiError) -> ErrorResponse {
    let code = if error.status().is_server_error() { "INTERNAL_ERROR" } else { "RUN_FLOW_FAILED" };
    ErrorResponse::new(error.status(), code, error.message().to_owned())
}

fn flow_error(error: FlowError) -> ErrorResponse {
    match error {
        FlowError::Library(LibraryError::Invalid(_))
        | FlowError::Start(StartError::Input(_) | StartError::Disabled(_)) => {
            ErrorResponse::new(StatusCode::BAD_REQUEST, "RUN_FLOW_FAILED", error.to_string())
        }
        FlowError::Start(StartError::Quota(ref quota))
            if !matches!(quota, QuotaError::Store(_) | QuotaError::StoreFull { .. }) =>
        {
            ErrorResponse::new(StatusCode::TOO_MANY_REQUESTS, "RUN_FLOW_FAILED", error.to_string())
        }
        error => error_response(error),
    }
}

fn result_of(run: RunResult) -> Result<Response, ErrorResponse> {
    match run.status {
        RunStatus::Succeeded => Ok(success(StatusCode::OK, "result", &run.outputs)),
        _ => view_of(&RunView::from_result(&run)),
    }
}

fn view_of(run: &RunView) -> Result<Response, ErrorResponse> {
    let text = |member: &str| run.error.as_ref().and_then(|error| error[member].as_str());
    let why = match (run.status.as_str(), text("code"), text("task")) {
        ("succeeded", ..) => return Ok(success(StatusCode::OK, "result", &run.outputs)),
        (_, Some(code), task) => {
            let task = task.map(|task| format!("`{task}`: ")).unwrap_or_default();
            format!("{task}{code}: {}", text("message").unwrap_or_default())
        }
        ("parked" | "needs_attention", ..) => {
            format!(
                "the run {} is parked: `flowcell runs show {}` shows its open questions",
                run.run_id,
                shell_word(run.run_id.as_str())
            )
        }
        (status, ..) => format!("the run {} has the status {status}", run.run_id),
    };
    Err(ErrorResponse::new(StatusCode::UNPROCESSABLE_ENTITY, "RUN_FLOW_FAILED", why))
}

/// List the flows
#[utoipa::path(get, path = "/api/flows", tag = "spec6",
    responses((status = 200, body = Envelope), (status = "default", body = Envelope)))]
pub(super) async fn list_flows(request: app::Request, Flows(flows): Flows) -> Result<Response, ErrorResponse> {
    let list = move || {
        let mut filling = Filling::new(BY_BYTES);
        flows.library().page(None, |entry| filling.take(page::json_size(entry)))
    };
    let (listed, more) = offload(&request, list).await?.map_err(|error| error_response(error.into()))?;
    if more {
        let why =
            format!("the list of flows is larger than {} MiB; read it by page at `GET /v1/flows`", PAGE_BYTES >> 20);
        return Err(ErrorResponse::new(StatusCode::PAYLOAD_TOO_LARGE, "TOO_LARGE", why));
    }
    let flows: Vec<_> = listed.iter().map(ListedFlow::of).collect();
    Ok(success(StatusCode::OK, "flows", &flows))
}

/// A flow in the list, with the members that this interface has always had.
#[derive(Serialize)]
struct ListedFlow<'a> {
    name: &'a str,
    version: u32,
    description: Option<&'a str>,
}

impl ListedFlow<'_> {
    fn of(entry: &FlowEntry) -> ListedFlow<'_> {
        ListedFlow { name: &entry.name, version: entry.version, description: entry.description.as_deref() }
    }
}

/// Show a flow
#[utoipa::path(get, path = "/api/flow/{name}", tag = "spec6", params(("name" = String, Path)),
    responses((status = 200, body = Envelope), (status = "default", body = Envelope)))]
pub(super) async fn describe_flow(
    request: app::Request,
    Flows(flows): Flows,
    Path(name): Path<String>,
) -> Result<Response, ErrorResponse> {
    let flow =
        offload(&request, move || flows.describe_flow(&name)).await?.map_err(|error| error_response(error.into()))?;
    Ok(success(StatusCode::OK, "flow", &flow))
}

/// List the latest steps of a flow's runs
#[utoipa::path(get, path = "/api/flow_runs/{name}", tag = "spec6",
    params(("name" = String, Path), ("limit" = Option<u64>, Query, minimum = 1, maximum = 1000)),
    responses((status = 200, body = Envelope), (status = "default", body = Envelope)))]
pub(super) async fn flow_runs(
    request: app::Request,
    Flows(flows): Flows,
    Path(name): Path<String>,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Response, ErrorResponse> {
    let limit = query.get("limit").map_or(Ok(DEFAULT_LINES), |limit| limit.parse());
    let limit = limit.ok().filter(|limit| (1..=MAX_LOG_LINES).contains(limit));
    let limit =
        limit.ok_or_else(|| bad_request(&format!("`limit` must be a whole number from 1 to {MAX_LOG_LINES}")))?;
    let runs = offload(&request, move || flows.get_flow_runs(&name, limit)).await?.map_err(error_response)?;
    Ok(success(StatusCode::OK, "runs", &runs))
}

/// Runs work that accesses files on a thread that it may block. The request keeps its permits until the work is done.
async fn offload<T: Send + 'static>(
    request: &app::Request,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ErrorResponse> {
    request.clone().blocking(move |_| Ok(work())).await.map_err(|error| admission_error(&error))
}

fn bad_request(message: &str) -> ErrorResponse {
    ErrorResponse::new(StatusCode::BAD_REQUEST, "BAD_REQUEST", message.to_owned())
}
