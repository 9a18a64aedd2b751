//! The route that repeats a run as a new run.

use axum::{
    Json,
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use flowcell_contract::NodeId;
use flowcell_runtime::{OpenError, Renames, Repeat, RunOptions};
use serde::Deserialize;
use utoipa::ToSchema;

use super::{
    api_error::{ApiError, ErrorBody},
    app::Request,
    identity::Scope,
    intake::{PathParam, QueryParams, Raw, parse_path_id},
    runs::RunView,
    start::{self, Waits},
    withheld,
};
use flowcell_platform::{FlowVersion, StartError, versions};

/// The part of a run to repeat.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Retry {
    /// Repeat only this node of the flow and the nodes after it; the other nodes keep their outputs.
    from: Option<String>,
    /// With `from`: keep the answers of people instead of asking them again. Needs the scope `gate:decide`.
    #[serde(default)]
    keep_answers: bool,
    /// The id of the new run.
    run_id: Option<String>,
    /// Another version of the flow in the library: its number, or `"latest"`. A node keeps its output if it succeeded,
    /// is unchanged and comes after no node that runs.
    #[schema(value_type = Option<Object>)]
    flow_version: Option<FlowVersion>,
    /// With `flowVersion`: the nodes that have another name in that version: their names in the version that the run
    /// uses, with the new names. They count as the same nodes. The new run has the new names.
    #[serde(default)]
    #[schema(value_type = Object)]
    rename: Renames,
    /// With `flowVersion`: answer with the plan, and begin nothing.
    #[serde(default)]
    check: bool,
}

/// Repeat a run as a new run with the same input, in the same version of the flow or in another one
///
/// With `check` the answer is 200 with the plan: `kept`, `runs` with the reason of each node and the calls that it
/// made, `skipped` and `gone`; nodes with another name are in `renamed`, too. Names that nodes cannot have are refused
/// with 409 `rename_refused`, and `details` has the reasons in `refused`. The same request with the same
/// `Idempotency-Key` begins one run and always answers with it. The run has the input of the earlier one, so without the
/// scope `run:read` the answer has only `runId`, `status` and `withheld`, and `check` is refused.
#[utoipa::path(post, path = "/v1/runs/{id}/retry", tag = "runs",
    params(("id" = String, Path,), Waits, ("Idempotency-Key" = Option<String>, Header, max_length = 256)),
    request_body(content = Retry, description = "optional"),
    responses((status = 201, body = RunView, headers(("location" = String))), (status = "default", body = ErrorBody)))]
pub(crate) async fn retry(
    request: Request,
    PathParam(id): PathParam<String>,
    QueryParams(Waits { wait }): QueryParams<Waits>,
    headers: HeaderMap,
    Raw(body, bytes): Raw<Retry>,
) -> Result<Response, ApiError> {
    let run = parse_path_id(&id)?;
    request.app.require_store()?;
    // Keeping an approval counts as giving it again, so the caller needs the scope to approve.
    if body.keep_answers && !request.caller.scopes.has(Scope::GateDecide) {
        return Err(ApiError::forbidden(Scope::GateDecide));
    }
    // The plan tells of the nodes and the calls of the earlier run.
    if body.check {
        withheld::require_read(&request.caller)?;
    }
    let (key, caller) = (start::run_id_from_key(&headers)?, request.caller.clone());
    if body.run_id.is_some() && key.is_some() {
        return Err(start::two_ids());
    }
    let app = request.app.clone();
    let mut options = RunOptions { without_events: true, ..RunOptions::default() };
    let mut place = None;
    // The key comes first: the run that it has begun stays, also if the repeated one was removed meanwhile.
    if let Some(new) = key.filter(|_| !body.check) {
        // The same body may repeat another run.
        let digest = start::request_digest(&[b"retry\0", run.as_str().as_bytes(), b"\0", &bytes]);
        place = Some(app.lock_start(request.tenant(), &new).await);
        if start::has_begun(&request, &new, &digest, "idempotency_conflict")? {
            drop(place);
            let view = start::known_view(request, new, wait).await?;
            return Ok(Json(view.for_caller(&caller)).into_response());
        }
        (options.run_id, options.request) = (Some(new), Some(digest));
    }
    request.row(&run)?;
    if body.check && body.flow_version.is_none() {
        return Err(ApiError::bad_request("`check` needs `flowVersion`"));
    }
    if !body.rename.is_empty() && body.flow_version.is_none() {
        return Err(ApiError::bad_request(
            "`rename` needs `flowVersion`, because nodes have other names only in another version",
        ));
    }
    if body.keep_answers && body.from.is_none() {
        return Err(ApiError::bad_request(
            "`keepAnswers` needs `from`, because a run that is repeated from the start asks again",
        ));
    }
    if let Some(chosen) = body.run_id.as_deref().map(start::parse_chosen_id).transpose()? {
        if request.host.record(&chosen)?.is_some() {
            return Err(StartError::from(OpenError::OtherRequest(chosen)).into());
        }
        options.run_id = Some(chosen);
    }
    let from = body.from.as_deref().map(NodeId::from);
    let repeat = Repeat { from, keep_answers: body.keep_answers, renames: body.rename };
    let (repeated, version) = (run.clone(), body.flow_version);
    if let Some(version) = version.filter(|_| body.check) {
        let plan = request
            .reading(move |request| Ok(versions::plan_retry(&request.host, &repeated, version, &repeat)?))
            .await?;
        return Ok(Json(plan).into_response());
    }
    let prepared = request
        .clone()
        .reading(move |request| Ok(versions::retry(&request.host, &repeated, version, repeat, options)?));
    let runner = prepared.await.map_err(|error| withheld::error_for(&caller, error))?;
    if body.keep_answers {
        request.write_audit_entry("gate.keep", format!("{run} {}", runner.run_id())).await?;
    }
    let view = start::admit_and_view(&request, runner, wait).await;
    drop(place);
    Ok(start::created(view?.for_caller(&caller)))
}
