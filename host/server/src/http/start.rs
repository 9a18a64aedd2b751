//! The route that starts a run, and helpers that prepare, admit and await runs.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{
    Json,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use flowcell_contract::RunId;
use flowcell_runtime::{Channel, Event, FlowRunner, OpenError, RunOptions, RunResult, RunStatus, ports::StoreError};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;
use utoipa::{IntoParams, ToSchema};

use super::{
    api_error::{ApiError, ErrorBody},
    app::Request,
    flows,
    intake::{QueryParams, Raw, parse_run_id},
    library,
    runs::{RunView, view},
};
use flowcell_platform::{
    CheckedFlow, LoadedFlow, StartError,
    jobs::RETRY_PREFIX,
    supervisor::{Admission, AdmitError, Overflow},
};

/// The longest wait for a run within one request. A client that wants to wait longer sends the request again.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(60);
/// The maximum length of an idempotency key in characters.
pub(crate) const MAX_KEY_CHARS: usize = 256;
/// The interval between two checks of a run that another process drives.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A run to start.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct StartRun {
    /// The name of a stored flow, or a flow as an object or as a text in YAML or JSON. A script is
    /// `{ "name", "script" }`.
    #[schema(value_type = serde_json::Value)]
    flow: Box<RawValue>,
    /// The version of a flow given by name; by default the newest.
    version: Option<u32>,
    /// Members of the input; they take precedence over the flow's defaults.
    #[serde(default)]
    #[schema(value_type = Object)]
    input: flowcell_contract::Json,
    /// The id of the run; by default a new one. If a run with this id exists, it must have begun with the same body.
    run_id: Option<String>,
    /// The labels of the run, at most 16 together with those of the flow: `{ "team": "billing" }`.
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// Whether the request waits for the run.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Waits {
    /// Answer when the run has ended or parks, after at most 60 s.
    #[serde(default)]
    pub(super) wait: bool,
}

/// Start a run; the answer follows once the run is on stable storage
///
/// The same request with the same `Idempotency-Key` starts one run and always answers with it.
#[utoipa::path(post, path = "/v1/runs", tag = "runs", request_body = StartRun,
    params(Waits, ("Idempotency-Key" = Option<String>, Header, max_length = 256),
        ("traceparent" = Option<String>, Header)),
    responses((status = 201, body = RunView, headers(("location" = String))), (status = 200, body = RunView),
        (status = "default", body = ErrorBody)))]
pub(crate) async fn start(
    request: Request,
    QueryParams(Waits { wait }): QueryParams<Waits>,
    headers: HeaderMap,
    Raw(body, bytes): Raw<StartRun>,
) -> Result<Response, ApiError> {
    let key = run_id_from_key(&headers)?;
    let conflict = if key.is_some() { "idempotency_conflict" } else { "run_exists" };
    let named = match (&body.run_id, key) {
        (Some(_), Some(_)) => return Err(two_ids()),
        (Some(id), None) => Some(parse_chosen_id(id)?),
        (None, key) => key,
    };
    let Some(run) = named else { return begin(&request, body, None, &headers, wait).await };
    let digest = request_digest(&[&bytes]);
    let app = request.app.clone();
    let place = app.lock_start(request.tenant(), &run).await;
    if has_begun(&request, &run, &digest, conflict)? {
        drop(place);
        return Ok(Json(known_view(request, run, wait).await?).into_response());
    }
    begin(&request, body, Some((run, digest)), &headers, wait).await
}

/// Returns the error for a request with both `runId` and `Idempotency-Key`.
pub(crate) fn two_ids() -> ApiError {
    ApiError::bad_request("send either `runId` or `Idempotency-Key`, not both")
}

/// Returns the digest of a request from its parts.
pub(crate) fn request_digest(parts: &[&[u8]]) -> Box<str> {
    let digest = parts.iter().fold(Sha256::new(), |digest, part| digest.chain_update(part));
    hex::encode(digest.finalize()).into()
}

/// Returns whether an earlier request with this digest has begun the run. Returns 409 with the code `conflict` if another
/// request has.
pub(crate) fn has_begun(
    request: &Request,
    run: &RunId,
    digest: &str,
    conflict: &'static str,
) -> Result<bool, ApiError> {
    match request.host.record(run).map_err(|error| store_error(request, run, error))? {
        None => Ok(false),
        Some(record) if record.request.as_deref() == Some(digest) => Ok(true),
        Some(_) => {
            let why = format!("the run `{run}` exists and began with another request");
            Err(ApiError::new(StatusCode::CONFLICT, conflict, why))
        }
    }
}

/// Returns the view of a run that an earlier request has begun.
pub(crate) async fn known_view(request: Request, run: RunId, wait: bool) -> Result<RunView, ApiError> {
    if wait { wait_for_outcome(request, run).await } else { view(request, run).await }
}

/// Prefixes of the run ids that are derived from triggers, idempotency keys and jobs. A caller that chose such an id
/// could block a later start by a trigger, a key or a job.
const RESERVED_PREFIXES: [&str; 7] = ["cron.", "event.", "form.", "hook.", "manual.", "idem-", RETRY_PREFIX];

/// Parses a run id that a caller has chosen. Returns 400 if its prefix is reserved or its characters are not allowed.
///
/// Browsers and clients drop `.` and `..` from paths, so runs with these ids could not be reached.
pub(crate) fn parse_chosen_id(id: &str) -> Result<RunId, ApiError> {
    if matches!(id, "." | "..") {
        return Err(ApiError::bad_request(format!("`{id}` cannot be the id of a run, since no address reaches it")));
    }
    match RESERVED_PREFIXES.iter().find(|reserved| id.starts_with(*reserved)) {
        Some(reserved) => Err(ApiError::bad_request(format!(
            "ids that begin with `{reserved}` are reserved for triggers, jobs and `Idempotency-Key`; choose another one"
        ))),
        None => parse_run_id(id),
    }
}

/// Converts an error that the store returned for a run. Returns 409 `run_removed` if the run was removed, since its id
/// is never used again, and otherwise 503.
fn store_error(request: &Request, run: &RunId, error: StoreError) -> ApiError {
    let row = request.runs().ok().and_then(|runs| runs.run(request.tenant(), run).ok().flatten());
    match row {
        Some((row, _)) if row.status == "removed" => {
            let why = format!("the run `{run}` was removed, and its id cannot be used again");
            ApiError::new(StatusCode::CONFLICT, "run_removed", why)
        }
        _ => error.into(),
    }
}

/// Returns the header `Idempotency-Key`. Returns `None` without the header, and 400 if the key is empty or too long.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<&[u8]>, ApiError> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    if !(1..=MAX_KEY_CHARS).contains(&key.len()) {
        return Err(ApiError::bad_request(format!("an `Idempotency-Key` must have 1 to {MAX_KEY_CHARS} characters")));
    }
    Ok(Some(key.as_bytes()))
}

/// Derives a run id from the header `Idempotency-Key`.
pub(crate) fn run_id_from_key(headers: &HeaderMap) -> Result<Option<RunId>, ApiError> {
    let id = |key: &[u8]| RunId::from(format!("idem-{}", &request_digest(&[key])[..32]));
    Ok(idempotency_key(headers)?.map(id))
}

async fn begin(
    request: &Request,
    body: StartRun,
    named: Option<(RunId, Box<str>)>,
    headers: &HeaderMap,
    wait: bool,
) -> Result<Response, ApiError> {
    let (run, digest) = named.unzip();
    let (runner, _) = prepare(request, body, run, digest).await?;
    if let Some(parent) = headers.get("traceparent").and_then(|parent| parent.to_str().ok()) {
        request.host.link(runner.run_id(), parent);
    }
    admit_and_view(request, runner, wait).await.map(created)
}

/// Prepares a new run, and returns it with its flow. Returns an error if the server stops, if the tenant is over quota,
/// or if the flow is not valid.
pub(crate) async fn prepare(
    request: &Request,
    body: StartRun,
    run: Option<RunId>,
    digest: Option<Box<str>>,
) -> Result<(FlowRunner, LoadedFlow), ApiError> {
    request.app.require_store()?;
    // The quota is checked first, so that a tenant over quota causes no further work.
    request.host.check_quota_for(run.as_ref()).map_err(StartError::from)?;
    let StartRun { flow, version, input, labels, .. } = body;
    let flow = flows::with_home(request, load_or_check(request, &flow, version).await?).await?;
    let options =
        RunOptions { run_id: run, input, labels, request: digest, without_events: true, ..RunOptions::default() };
    Ok((request.host.runner(&flow, options)?, flow))
}

/// Loads the flow that a body names, or checks the flow that it contains.
pub(crate) async fn load_or_check(
    request: &Request,
    flow: &RawValue,
    version: Option<u32>,
) -> Result<LoadedFlow, ApiError> {
    load_or_check_with(request, flow, version, BTreeMap::new()).await
}

/// Loads the flow that a body names, or checks the flow that it contains, which reads these files beside it.
pub(crate) async fn load_or_check_with(
    request: &Request,
    flow: &RawValue,
    version: Option<u32>,
    files: BTreeMap<String, String>,
) -> Result<LoadedFlow, ApiError> {
    if let Some(name) = flows::stored_flow_name(flow) {
        if !files.is_empty() {
            return Err(ApiError::bad_request("`files` needs a whole flow, but the request names a stored one"));
        }
        return library::load(request.clone(), name, version).await;
    }
    if version.is_some() {
        return Err(ApiError::bad_request("`version` needs the name of a flow, but the request contains a whole flow"));
    }
    match flows::check(request, flows::source(flow)?, files).await? {
        CheckedFlow { flow: Some(flow), .. } => Ok(flow),
        CheckedFlow { diagnostics, .. } => Err(ApiError::invalid_flow(&diagnostics)),
    }
}

/// Admits a new run and returns its view once the run is on stable storage. With `wait` it returns when the run has ended
/// or is parked, or after [`MAX_WAIT`].
pub(crate) async fn admit_and_view(request: &Request, runner: FlowRunner, wait: bool) -> Result<RunView, ApiError> {
    let run = runner.run_id().clone();
    Ok(match (admit(request, runner, wait).await?, wait) {
        (Some(result), _) => RunView::from_result(&result),
        (None, true) => wait_for_outcome(request.clone(), run).await?,
        (None, false) => RunView::new_running(&run),
    })
}

/// Returns 201 with the view of a new run and its place.
pub(crate) fn created(view: RunView) -> Response {
    let place = format!("/v1/runs/{}", percent_encoded(&view.run_id));
    (StatusCode::CREATED, [(header::LOCATION, place)], Json(view)).into_response()
}

/// Hands a run to the admission queue. If `wait` is true, and the run starts at once and ends or parks within
/// [`MAX_WAIT`], returns the run's result. Otherwise returns `None`.
pub(crate) async fn admit(
    request: &Request,
    mut runner: FlowRunner,
    wait: bool,
) -> Result<Option<RunResult>, ApiError> {
    let (witness, ended) = ResultSender::new();
    if wait {
        runner.attach(Arc::new(witness));
    }
    let until = tokio::time::Instant::now() + MAX_WAIT;
    let admitted = request.app.admission.admit(request.tenant().clone(), runner, Overflow::Refuse).await;
    let admission = admitted.map_err(|error| match error {
        // The process has lost the claim of the new run before the run was stored, as in an outage of the store.
        AdmitError::Open(OpenError::Driven(run)) => {
            let message = format!("the run `{run}` may have been stored; send the request again");
            ApiError::unavailable(&StoreError::unavailable(message))
        }
        error => error.into(),
    })?;
    if !wait || admission == Admission::Waits {
        return Ok(None);
    }
    // If the run takes longer, the caller gets its current state.
    Ok(tokio::time::timeout_at(until, ended).await.ok().and_then(Result::ok))
}

/// Waits up to [`MAX_WAIT`] until an existing run is no longer `running`, and returns its state.
pub(crate) async fn wait_for_outcome(request: Request, run: RunId) -> Result<RunView, ApiError> {
    let until = tokio::time::Instant::now() + MAX_WAIT;
    loop {
        let hub = request.host.hubs().get(request.tenant(), &run);
        let view = view(request.clone(), run.clone()).await?;
        if view.status != "running" || tokio::time::Instant::now() >= until {
            return Ok(view);
        }
        match hub {
            Some(hub) => {
                let (witness, ended) = ResultSender::new();
                // If the run has ended in the meantime, the next check sees it.
                if hub.attach(Arc::new(witness)).await.is_ok() {
                    let _ = tokio::time::timeout_at(until, ended).await;
                }
            }
            None => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}

/// A channel that sends the result of a run once it has ended or is parked.
struct ResultSender(Mutex<Option<oneshot::Sender<RunResult>>>);

impl ResultSender {
    fn new() -> (ResultSender, oneshot::Receiver<RunResult>) {
        let (ended, sees_end) = oneshot::channel();
        (ResultSender(Mutex::new(Some(ended))), sees_end)
    }
}

impl Channel for ResultSender {
    fn on_event(&self, _event: &Event) {}

    fn on_complete(&self, result: &RunResult) {
        let ended = self.0.lock().take();
        // The status `Running` means that another process has taken over the run, so its result is unknown here.
        if result.status != RunStatus::Running {
            _ = ended.map(|ended| ended.send(result.clone()).is_ok());
        }
    }
}

/// Percent-encodes a text as one segment of a path.
fn percent_encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_id_is_encoded_as_one_path_segment() {
        assert_eq!(percent_encoded("run-1.a[3]/b"), "run-1.a%5B3%5D%2Fb");
    }
}
