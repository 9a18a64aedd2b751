//! Routes of jobs: one action on all runs that a filter selects.

use std::time::Duration;

use axum::{
    Json,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

use super::{
    api_error::{ApiError, ErrorBody},
    app::{Request, finish_detached},
    intake::{Body, PathParam, QueryParams},
    start::{MAX_WAIT, idempotency_key},
    steer::Nothing,
};
use flowcell_platform::jobs::{Creator, Job, JobCommand, JobRequest, JobState, Jobs, Preview};

/// The interval between two checks of a job that a request waits for.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A job to create.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "it describes `JobRequest`")]
pub(crate) struct NewJob {
    /// `cancel`, `resume`, `retry`, `answer`, `delete`, `label` or `migrate`.
    action: String,
    /// Selects the runs; all given members must match, and one is needed: `status`, `flow`, `version`, `since`, `before`,
    /// `error`, `text`, `node`, `labels` (an object), `trigger`, `parent`, `retryOf`, `minDurationMs`, `maxDurationMs`.
    #[schema(value_type = Object)]
    filter: Map<String, Value>,
    /// For `answer`: `gate` and `answer`. For `retry`: `from`, `keepAnswers`, `flowVersion` (a version or `latest`) and
    /// with it `rename`. For `label`: `set` (an object) and `remove` (names). For `migrate`: `to` (a version),
    /// `keepAnswers` and `rename` (an object of new names by the old ones). With the number of a version and with
    /// `rename` the filter needs `flow`.
    #[schema(value_type = Object, nullable = false, required = false)]
    params: Option<Map<String, Value>>,
    /// The maximum number of runs, the latest first, up to 1,000,000. Default: 10,000.
    #[schema(nullable = false)]
    max_runs: Option<u64>,
    /// The maximum number of runs per second, up to 10,000. Default: 500.
    #[schema(nullable = false)]
    rate_per_second: Option<u32>,
}

/// Whether the request only previews the job.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Previews {
    /// Answer with the runs that the job would select, and create no job.
    #[serde(default)]
    preview: bool,
}

/// Whether the request waits for the job.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct WaitsForJob {
    /// Answer when the job has ended or is paused, after at most 60 s.
    #[serde(default)]
    wait: bool,
}

/// The jobs of a tenant.
#[derive(Serialize, ToSchema)]
pub(crate) struct JobList {
    /// The jobs, the latest first: those that have not ended, and the last 100 that have.
    #[schema(value_type = Vec<Object>)]
    jobs: Vec<Job>,
}

fn check_scopes(request: &Request, job: &JobRequest) -> Result<(), ApiError> {
    match job.scopes().into_iter().find(|scope| !request.caller.scopes.has(*scope)) {
        Some(missing) => Err(ApiError::forbidden(missing)),
        None => Ok(()),
    }
}

/// Act on all runs of a filter in the background, or preview that
///
/// Besides `run:read`, the token needs the scope of the action: `run:control` for `cancel`, `resume` and `label`,
/// `run:create` for `retry` and `migrate`, `gate:decide` for `answer` and for `keepAnswers`, `run:delete` for `delete`.
/// The job stops if the token becomes invalid. The preview of `migrate` has `moves`: `checked`, `unchecked`, `refused` (the
/// numbers of runs that would not move, by code) and `first` (20 of them: `run`, `code`, `message`). The preview of `retry`
/// with `flowVersion` has the same in `retries`, about the runs that would not be repeated. The same
/// request with the same `Idempotency-Key` creates one job and answers with it, as long as the server lists the job.
#[utoipa::path(post, path = "/v1/jobs", tag = "jobs", operation_id = "create_job",
    params(Previews, ("Idempotency-Key" = Option<String>, Header, max_length = 256)),
    request_body = NewJob,
    responses((status = 202, body = Object, headers(("location" = String))),
        (status = 200, body = Object, description = "the preview"), (status = "default", body = ErrorBody)))]
pub(crate) async fn create(
    request: Request,
    QueryParams(Previews { preview }): QueryParams<Previews>,
    headers: HeaderMap,
    Body(job): Body<JobRequest>,
) -> Result<Response, ApiError> {
    if preview {
        return Ok(Json(preview_job(request, job).await?).into_response());
    }
    let key = idempotency_key(&headers)?.map(<[u8]>::to_vec);
    let job = create_job(request, job, key).await?;
    let place = format!("/v1/jobs/{}", job.id);
    Ok((StatusCode::ACCEPTED, [(header::LOCATION, place)], Json(job)).into_response())
}

/// Returns the runs that a job would select, and those that would not move or be repeated in another version. Returns 403
/// if the caller does not have the scopes of its action.
pub(crate) async fn preview_job(request: Request, job: JobRequest) -> Result<Preview, ApiError> {
    check_scopes(&request, &job)?;
    let reads_journals = job.changes_version();
    let preview = move |request: &Request| Ok(Jobs::of(&request.host).preview(&job)?);
    match reads_journals {
        true => request.reading(preview).await,
        false => request.blocking(preview).await,
    }
}

/// Creates a job; with an idempotency key, unless a listed job has it. Returns 403 if the caller does not have the
/// scopes of its action.
pub(crate) async fn create_job(request: Request, job: JobRequest, key: Option<Vec<u8>>) -> Result<Job, ApiError> {
    check_scopes(&request, &job)?;
    if request.app.is_draining() {
        return Err(ApiError::draining());
    }
    let created = request.blocking(move |request| {
        let creator = Creator::of(&request.caller);
        Ok(Jobs::of(&request.host).create_once(key.as_deref(), job, &creator, request.caller.scopes)?)
    });
    finish_detached(created).await
}

/// List the jobs, the latest first
#[utoipa::path(get, path = "/v1/jobs", tag = "jobs", operation_id = "list_jobs",
    responses((status = 200, body = JobList), (status = "default", body = ErrorBody)))]
pub(crate) async fn list(request: Request) -> Result<Json<JobList>, ApiError> {
    let jobs = request.blocking(|request| Ok(Jobs::of(&request.host).list()?)).await?;
    Ok(Json(JobList { jobs }))
}

/// Show a job with its progress
#[utoipa::path(get, path = "/v1/jobs/{job}", tag = "jobs", operation_id = "show_job",
    params(("job" = String, Path,), WaitsForJob),
    responses((status = 200, body = Object), (status = "default", body = ErrorBody)))]
pub(crate) async fn show(
    request: Request,
    PathParam(id): PathParam<String>,
    QueryParams(WaitsForJob { wait }): QueryParams<WaitsForJob>,
) -> Result<Json<Job>, ApiError> {
    let until = tokio::time::Instant::now() + MAX_WAIT;
    loop {
        let job = read(&request, &id).await?;
        if !wait || job.state != JobState::Running || tokio::time::Instant::now() >= until || !request.is_known() {
            return Ok(Json(job));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Reads a job of the caller's tenant.
pub(crate) async fn read(request: &Request, id: &str) -> Result<Job, ApiError> {
    let id = id.to_owned();
    request.clone().blocking(move |request| Ok(Jobs::of(&request.host).show(&id)?)).await
}

/// Steers a job. Returns 403 if the caller does not have the scopes of its action.
pub(crate) async fn steer(request: Request, id: String, command: JobCommand) -> Result<Json<Job>, ApiError> {
    let job = read(&request, &id).await?;
    check_scopes(&request, &job.request)?;
    let steered = request
        .blocking(move |request| Ok(Jobs::of(&request.host).steer(&id, command, &Creator::of(&request.caller))?));
    finish_detached(steered).await.map(Json)
}

/// Pause a job; the token needs the scopes that creating the job needs
#[utoipa::path(post, path = "/v1/jobs/{job}/pause", tag = "jobs", operation_id = "pause_job",
    params(("job" = String, Path,)), request_body(content = Nothing, description = "optional"),
    responses((status = 200, body = Object), (status = "default", body = ErrorBody)))]
pub(crate) async fn pause(
    request: Request,
    PathParam(id): PathParam<String>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Json<Job>, ApiError> {
    steer(request, id, JobCommand::Pause).await
}

/// Resume a paused job; the token needs the scopes that creating the job needs
#[utoipa::path(post, path = "/v1/jobs/{job}/resume", tag = "jobs", operation_id = "resume_job",
    params(("job" = String, Path,)), request_body(content = Nothing, description = "optional"),
    responses((status = 200, body = Object), (status = "default", body = ErrorBody)))]
pub(crate) async fn resume(
    request: Request,
    PathParam(id): PathParam<String>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Json<Job>, ApiError> {
    steer(request, id, JobCommand::Resume).await
}

/// Cancel a job; runs that it has acted on stay as they are
#[utoipa::path(post, path = "/v1/jobs/{job}/cancel", tag = "jobs", operation_id = "cancel_job",
    params(("job" = String, Path,)), request_body(content = Nothing, description = "optional"),
    responses((status = 200, body = Object), (status = "default", body = ErrorBody)))]
pub(crate) async fn cancel(
    request: Request,
    PathParam(id): PathParam<String>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Json<Job>, ApiError> {
    steer(request, id, JobCommand::Cancel).await
}
