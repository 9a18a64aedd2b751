//! The routes that show a run as a tree of its tasks and its waits, and the moment that these routes may show.

use axum::Json;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::{
    api_error::{ApiError, ErrorBody},
    app::Request,
    intake::{PathParam, QueryParams, parse_path_id},
};
use flowcell_platform::{
    tree::{Tree, Twig, is_zero},
    waiting,
};

/// The moment of a run that a request asks for.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Moment {
    /// The number of an event: the run is shown as it was before it. By default as it is.
    #[param(minimum = 0)]
    before: Option<u64>,
}

impl Moment {
    /// Returns the number of the first event that does not count.
    pub(crate) fn end(&self) -> u64 {
        self.before.unwrap_or(u64::MAX)
    }
}

/// A run as a tree of its tasks.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunTree {
    run_id: String,
    /// The tasks of the flow, ordered by their first event.
    tasks: Vec<Twig>,
    /// The number of the latest tasks, which are left out because the tree exceeds 16 MiB; `…/events` has all tasks.
    #[serde(skip_serializing_if = "is_zero")]
    tasks_left_out: u64,
}

/// Show a run as a tree of its tasks
#[utoipa::path(get, path = "/v1/runs/{id}/tree", tag = "runs", params(("id" = String, Path,), Moment),
    responses((status = 200, body = RunTree), (status = "default", body = ErrorBody)))]
pub(crate) async fn tree(
    request: Request,
    PathParam(id): PathParam<String>,
    QueryParams(moment): QueryParams<Moment>,
) -> Result<Json<RunTree>, ApiError> {
    let run = parse_path_id(&id)?;
    let tree = request
        .reading(move |request| {
            request.row(&run)?;
            let tree = Tree::before(&request.host, &run, moment.end())?;
            Ok(RunTree { run_id: run.to_string(), tasks_left_out: tree.left_out(), tasks: tree.tasks() })
        })
        .await?;
    Ok(Json(tree))
}

/// The questions and waits of a run.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Gates {
    run_id: String,
    /// The list of `{ kind, address, since, … }`: a `gate` with its `prompt`, `choices`, `allowText`, `schema?`, `attempt`,
    /// `digest` and `expires?`, an `event` with its name, a `message` with its `agentRunId`, a `decision` with its
    /// `reason`. `since` and `expires` are milliseconds since 1970. A question that
    /// shows only a part of a call's arguments has all of them in `arguments`, or their address in `wholeAt`. A list of
    /// more than 16 MiB ends with a `more` whose `leftOut` counts the omitted entries.
    #[schema(value_type = Vec<Object>)]
    waiting: Vec<Value>,
}

/// List the questions and waits of a run and of the runs that it called
///
/// With `before`, the list has the waits that were open then. Of the runs that it called, the events before the time of
/// that event count. Arguments that are left out have no address in `wholeAt`.
#[utoipa::path(get, path = "/v1/runs/{id}/gates", tag = "runs", params(("id" = String, Path,), Moment),
    responses((status = 200, body = Gates), (status = "default", body = ErrorBody)))]
pub(crate) async fn gates(
    request: Request,
    PathParam(id): PathParam<String>,
    QueryParams(moment): QueryParams<Moment>,
) -> Result<Json<Gates>, ApiError> {
    let run = parse_path_id(&id)?;
    let gates = request
        .reading(move |request| {
            request.row(&run)?;
            Ok(Gates { waiting: waiting::list_before(&request.host, &run, moment.end())?, run_id: run.to_string() })
        })
        .await?;
    Ok(Json(gates))
}

/// Show the open question at an address, with its complete arguments
#[utoipa::path(get, path = "/v1/runs/{id}/gates/{gate}", tag = "runs",
    params(("id" = String, Path,), ("gate" = String, Path,)),
    responses((status = 200, body = Object), (status = "default", body = ErrorBody)))]
pub(crate) async fn gate(
    request: Request,
    PathParam((id, gate)): PathParam<(String, String)>,
) -> Result<Json<Value>, ApiError> {
    let run = parse_path_id(&id)?;
    let question = request
        .reading(move |request| {
            request.row(&run)?;
            let open = waiting::question(&request.host, &run, &gate)?;
            open.ok_or_else(|| ApiError::not_found("gate_not_found", format!("no question is open at `{gate}`")))
        })
        .await?;
    Ok(Json(question))
}
