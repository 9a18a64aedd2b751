//! The routes that show the inputs of a run's tasks, and their times.

use axum::{body::Bytes, response::Response};
use flowcell_contract::RunId;
use flowcell_runtime::paging::PageLimits;
use serde::Deserialize;
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::{
    api_error::{ApiError, ErrorBody},
    app::Request,
    intake::{PathParam, QueryParams, parse_path_id},
    page::{BY_BYTES, check_limit, response_with_permit},
};
use flowcell_platform::{
    inputs::{PAGE_BYTES, TaskInputs, Window},
    timeline::Timeline,
};

/// The default number of attempts in a page.
pub(crate) const DEFAULT_PAGE_ATTEMPTS: usize = 50;
/// The maximum number of attempts in a page.
pub(crate) const MAX_PAGE_ATTEMPTS: usize = 1_000;

/// The range of attempts that a request asks for.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct AttemptRange {
    /// The number of the first attempt, counted from 0.
    #[param(minimum = 0)]
    from: Option<u64>,
    /// The maximum number of entries.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// The inputs of a task.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "only the OpenAPI document reads it; the runtime writes the pages")]
pub(crate) struct TaskPage {
    run_id: String,
    /// The address of the task.
    task: String,
    /// The type of the task's node.
    node_type: String,
    /// The attempts in order: `{ attempt, resumes, began, status, input, config?, inputDigest, calls? }`. A page has at
    /// most 16 MiB, so it may have fewer than `limit`. The host renders an input again from the journal; `inputDigest`
    /// is the result of the comparison with the recorded digest: `matches`, `differs`, `not_recorded`, `not_ended` or
    /// `not_run`. `sameInput` replaces an `input` that equals the one of the previous attempt, and `inputError` one
    /// that cannot be rendered.
    #[schema(value_type = Vec<Object>)]
    attempts: Vec<Value>,
    /// The `from` of the next page; the last page has none.
    next: Option<u64>,
}

/// Show the input of a task in each of its attempts
///
/// The path names the task by its address: `pay`, `process[3].pay`, or `review/pay` in the run that the task `review`
/// called.
#[utoipa::path(get, path = "/v1/runs/{id}/tasks/{task}", tag = "runs",
    params(("id" = String, Path,), ("task" = String, Path,), AttemptRange),
    responses((status = 200, body = TaskPage), (status = "default", body = ErrorBody)))]
pub(crate) async fn show(
    request: Request,
    PathParam((id, task)): PathParam<(String, String)>,
    QueryParams(which): QueryParams<AttemptRange>,
) -> Result<Response, ApiError> {
    let limit = check_limit(which.limit, DEFAULT_PAGE_ATTEMPTS, MAX_PAGE_ATTEMPTS)?;
    let window = Window { from: which.from.unwrap_or(0), limit, bytes: PAGE_BYTES };
    let most = PageLimits { items: limit, bytes: PAGE_BYTES };
    let mut permit = request.app.broadcasts.take_page_permit(request.tenant(), most).await;
    let inputs = read_inputs(request, parse_path_id(&id)?, task, window).await?;
    let text = Bytes::from(serde_json::to_vec(&inputs).map_err(ApiError::internal)?);
    permit.shrink(text.len() as u64);
    Ok(response_with_permit(text, permit))
}

/// Show when the tasks of a run began and ended, in columns
///
/// The timeline has everything before the event `next`, from which on a client goes on with the events of the run.
#[utoipa::path(get, path = "/v1/runs/{id}/timeline", tag = "runs", operation_id = "show_timeline",
    params(("id" = String, Path,)),
    responses((status = 200, body = Timeline), (status = "default", body = ErrorBody)))]
pub(crate) async fn timeline(request: Request, PathParam(id): PathParam<String>) -> Result<Response, ApiError> {
    let run = parse_path_id(&id)?;
    let mut permit = request.app.broadcasts.take_page_permit(request.tenant(), BY_BYTES).await;
    let read = request.reading(move |request| {
        request.row(&run)?;
        let timeline = Timeline::of(&request.host, &run)?;
        Ok(Bytes::from(serde_json::to_vec(&timeline).map_err(ApiError::internal)?))
    });
    let text = read.await?;
    permit.shrink(text.len() as u64);
    Ok(response_with_permit(text, permit))
}

/// Reads the inputs of a task. Returns 404 `task_not_found` if no attempt of it has begun.
pub(crate) async fn read_inputs(
    request: Request,
    run: RunId,
    task: String,
    window: Window,
) -> Result<TaskInputs, ApiError> {
    let read = request.reading(move |request| {
        request.row(&run)?;
        let inputs = request.host.task_inputs(request.host.runs(), &run, &task, window)?;
        let Some(mut why) = inputs.missing() else { return Ok(inputs) };
        if !inputs.elsewhere.is_empty() {
            why += &format!("; the addresses of the node include {}", inputs.elsewhere.join(", "));
        }
        Err(ApiError::not_found("task_not_found", why))
    });
    read.await
}
