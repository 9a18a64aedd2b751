//! The routes that show the attempts of a run's tasks, and their times.

use axum::{body::Bytes, response::Response};
use flowcell_contract::RunId;
use flowcell_runtime::paging::PageLimits;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::{
    api_error::{ApiError, ErrorBody},
    app::Request,
    intake::{PathParam, QueryParams, parse_path_id},
    moment::Moment,
    page::{BY_BYTES, check_limit, fill_page, response_with_permit},
};
use flowcell_platform::{
    inputs::{PAGE_BYTES, TaskInputs, Window},
    timeline::Timeline,
    tree::{STATUSES, TaskFilter, TaskItem, Tree, is_zero},
};

/// The default number of attempts in a page.
pub(crate) const DEFAULT_PAGE_ATTEMPTS: usize = 50;
/// The default number of tasks in a page.
const DEFAULT_PAGE_TASKS: usize = 200;
/// The maximum number of attempts, or of tasks, in a page.
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
    /// The number of an event of the run: the attempts are shown as they were before it. By default as they are.
    #[param(minimum = 0)]
    before: Option<u64>,
    /// The number of a call: each attempt has its whole reply, also of more than 4 KiB.
    #[param(minimum = 1)]
    call: Option<u32>,
}

/// The attempts of a task, with their inputs, calls and outputs.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "only the OpenAPI document reads it; the runtime writes the pages")]
pub(crate) struct TaskPage {
    run_id: String,
    /// The address of the task.
    task: String,
    /// The type of the task's node.
    node_type: String,
    /// The attempts in order: `{ attempt, resumes, began, ended?, status, input, config?, inputDigest, calls?, output?,
    /// error? }`. A call is `{ call, interface, function, about, preview?, reply?, error? }`; of a reply of more than 4 KiB,
    /// `replyCut` has the size in `bytes` and the beginning, `start`, unless `call` names the call. A page has at
    /// most 16 MiB, so it may have fewer than `limit`. The host renders an input again from the journal; `inputDigest`
    /// is the result of the comparison with the recorded digest: `matches`, `differs`, `not_recorded`, `not_ended` or
    /// `not_run`. `sameInput` replaces an `input` that equals the one of the previous attempt, and `inputError` one
    /// that cannot be rendered.
    #[schema(value_type = Vec<Object>)]
    attempts: Vec<Value>,
    /// The `from` of the next page; the last page has none.
    next: Option<u64>,
}

/// The maximum number of bytes of an address in [`TaskQuery`].
const MAX_ADDRESS: usize = 4_096;

/// The tasks that a request asks for.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TaskQuery {
    /// The address of a task with a body, such as `each`, for its passes, or of a pass, such as `each[3]`, for its tasks. By
    /// default the tasks of the flow.
    under: Option<String>,
    /// The address of a task: the page has this task alone. 404 if it has no event yet.
    task: Option<String>,
    /// True for all tasks below that place.
    #[serde(default)]
    deep: bool,
    /// The states, such as `failed,blocked`. By default all.
    status: Option<String>,
    /// The number of an event: the tasks are shown as they were before it. By default as they are.
    #[param(minimum = 0)]
    before: Option<u64>,
    /// `urgent` for blocked and failed tasks first. By default the tasks are in the order of their first events.
    order: Option<String>,
    /// The number of the first entry, counted from 0.
    #[param(minimum = 0)]
    from: Option<u64>,
    /// The maximum number of entries.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

impl TaskQuery {
    fn filter(&self) -> Result<TaskFilter, ApiError> {
        let statuses: Vec<_> = self.status.iter().flat_map(|list| list.split(',')).map(str::to_owned).collect();
        if let Some(unknown) = statuses.iter().find(|status| !STATUSES.contains(&status.as_str())) {
            let why = format!("`status` has the unknown state `{unknown}`; the states are {}", STATUSES.join(", "));
            return Err(ApiError::bad_request(why));
        }
        let urgent_first = match self.order.as_deref() {
            None => false,
            Some("urgent") => true,
            Some(_) => return Err(ApiError::bad_request("`order` can only be `urgent`")),
        };
        if [&self.under, &self.task].into_iter().flatten().any(|address| address.len() > MAX_ADDRESS) {
            return Err(ApiError::bad_request(format!("`under` and `task` may have {MAX_ADDRESS} bytes at most")));
        }
        if self.task.is_some() && (self.under.is_some() || self.deep || !statuses.is_empty()) {
            return Err(ApiError::bad_request("`task` excludes `under`, `deep` and `status`"));
        }
        Ok(TaskFilter { under: self.under.clone(), task: self.task.clone(), deep: self.deep, statuses, urgent_first })
    }
}

/// A page of the tasks of a run.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TaskList {
    run_id: String,
    /// The tasks, or the passes.
    tasks: Vec<TaskItem>,
    /// The number of tasks, or passes, that the request selects.
    total: u64,
    /// The `from` of the next page; the last page has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
    /// The number of the latest tasks of the run, which are left out because its tree exceeds 16 MiB.
    #[serde(skip_serializing_if = "is_zero")]
    tasks_left_out: u64,
}

/// List the tasks of a run by page: those of the flow, the passes of a body, or those of a pass
#[utoipa::path(get, path = "/v1/runs/{id}/tasks", tag = "runs", operation_id = "list_tasks",
    params(("id" = String, Path,), TaskQuery),
    responses((status = 200, body = TaskList), (status = "default", body = ErrorBody)))]
pub(crate) async fn list(
    request: Request,
    PathParam(id): PathParam<String>,
    QueryParams(query): QueryParams<TaskQuery>,
) -> Result<Response, ApiError> {
    let run = parse_path_id(&id)?;
    let limit = check_limit(query.limit, DEFAULT_PAGE_TASKS, MAX_PAGE_ATTEMPTS)?;
    let filter = query.filter()?;
    let from = usize::try_from(query.from.unwrap_or(0)).unwrap_or(usize::MAX);
    let mut permit = request.app.broadcasts.take_page_permit(request.tenant(), BY_BYTES).await;
    let read = request.reading(move |request| {
        request.row(&run)?;
        let tree = Tree::before(&request.host, &run, query.before.unwrap_or(u64::MAX))?;
        let tasks_left_out = tree.left_out();
        let unknown = || {
            let place = filter.task.as_deref().or(filter.under.as_deref()).unwrap_or_default();
            ApiError::not_found("task_not_found", format!("the run `{run}` has no task and no pass at `{place}`"))
        };
        let all = tree.select(&filter).ok_or_else(unknown)?;
        let total = all.len() as u64;
        let most = PageLimits { items: limit, bytes: PAGE_BYTES };
        let (tasks, _) = fill_page(all.into_iter().skip(from), most, |task| task.address.clone());
        let end = (from.min(usize::MAX - tasks.len()) + tasks.len()) as u64;
        let next = (end < total).then_some(end);
        let list = TaskList { run_id: run.to_string(), tasks, total, next, tasks_left_out };
        Ok(Bytes::from(serde_json::to_vec(&list).map_err(ApiError::internal)?))
    });
    let text = read.await?;
    permit.shrink(text.len() as u64);
    Ok(response_with_permit(text, permit))
}

/// Show the input, the calls and the output of a task in each of its attempts
///
/// The path names the task by its address: `pay`, `process[3].pay`, or `review/pay` in the run that the task `review`
/// called. With `before`, only the events before it count, and of a run that was called those before its time.
#[utoipa::path(get, path = "/v1/runs/{id}/tasks/{task}", tag = "runs",
    params(("id" = String, Path,), ("task" = String, Path,), AttemptRange),
    responses((status = 200, body = TaskPage), (status = "default", body = ErrorBody)))]
pub(crate) async fn show(
    request: Request,
    PathParam((id, task)): PathParam<(String, String)>,
    QueryParams(which): QueryParams<AttemptRange>,
) -> Result<Response, ApiError> {
    let limit = check_limit(which.limit, DEFAULT_PAGE_ATTEMPTS, MAX_PAGE_ATTEMPTS)?;
    let (from, end) = (which.from.unwrap_or(0), which.before.unwrap_or(u64::MAX));
    let window = Window { from, limit, end, whole_call: which.call, bytes: PAGE_BYTES };
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
    params(("id" = String, Path,), Moment),
    responses((status = 200, body = Timeline), (status = "default", body = ErrorBody)))]
pub(crate) async fn timeline(
    request: Request,
    PathParam(id): PathParam<String>,
    QueryParams(moment): QueryParams<Moment>,
) -> Result<Response, ApiError> {
    let run = parse_path_id(&id)?;
    let mut permit = request.app.broadcasts.take_page_permit(request.tenant(), BY_BYTES).await;
    let read = request.reading(move |request| {
        request.row(&run)?;
        let timeline = Timeline::before(&request.host, &run, moment.end())?;
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
