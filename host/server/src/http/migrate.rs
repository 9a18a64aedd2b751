//! The route that moves a run to another version of its flow.

use axum::Json;
use flowcell_contract::RunId;
use flowcell_runtime::{Migration, MigrationPlan, MoveOptions, Renames, RunOptions};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    api_error::{ApiError, ErrorBody},
    app::{Request, finish_detached},
    identity::{Caller, Scope},
    intake::{Body, PathParam, parse_path_id},
    start, withheld,
};
use flowcell_platform::{FlowVersion, MoveError, versions};

/// The version to which a run moves.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Migrate {
    /// The version of the flow in the library: its number, or `"latest"`.
    #[schema(value_type = Object)]
    to: FlowVersion,
    /// Let the answers of people also count for new and changed nodes after them. Needs the scope `gate:decide`.
    #[serde(default)]
    keep_answers: bool,
    /// The nodes that have another name in the version: their names in the version that the run uses, with the new
    /// names. The nodes keep their ids in the run.
    #[serde(default)]
    #[schema(value_type = Object)]
    rename: Renames,
    /// Answer with the plan, and change nothing.
    #[serde(default)]
    check: bool,
}

/// The plan of a move. Without `check` and with an empty `refused`, the run has moved.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Planned {
    run_id: String,
    #[serde(flatten)]
    #[schema(value_type = Object)]
    plan: MigrationPlan,
    /// The scope that the token lacks: without `run:read` it gets the versions alone, and all lists are empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    withheld: Option<&'static str>,
}

impl Planned {
    /// Returns the part of a plan that a caller may see: the nodes tell of the run.
    fn for_caller(run: &RunId, plan: MigrationPlan, caller: &Caller) -> Planned {
        let run_id = run.to_string();
        let Some(scope) = withheld::missing_scope(caller) else { return Planned { run_id, plan, withheld: None } };
        let MigrationPlan { from_version, version, .. } = plan;
        let plan = MigrationPlan { from_version, version, ..MigrationPlan::default() };
        Planned { run_id, plan, withheld: Some(scope.name()) }
    }
}

/// Move a run that has not ended to another version of its flow, and resume it
///
/// The answer has the nodes in lists: `kept`, `moved`, `waiting`, `starts` and `gone`; nodes with
/// another name are in `renamed`, too. With `check` it also has the reasons that keep the run from moving, in
/// `refused`. Without `check` such a run is refused with 409 `migration_refused`, and `details` has the plan. Without the
/// scope `run:read` the answer has only the versions and `withheld`, an error has no plan, and `check` is refused.
#[utoipa::path(post, path = "/v1/runs/{id}/migrate", tag = "runs", params(("id" = String, Path,)), request_body = Migrate,
    responses((status = 200, body = Planned), (status = "default", body = ErrorBody)))]
pub(crate) async fn migrate(
    request: Request,
    PathParam(id): PathParam<String>,
    Body(body): Body<Migrate>,
) -> Result<Json<Planned>, ApiError> {
    let run = parse_path_id(&id)?;
    request.row(&run)?;
    request.app.require_store()?;
    // Keeping an approval counts as giving it again, so the caller needs the scope to approve.
    if body.keep_answers && !request.caller.scopes.has(Scope::GateDecide) {
        return Err(ApiError::forbidden(Scope::GateDecide));
    }
    if body.check {
        withheld::require_read(&request.caller)?;
    }
    let caller = request.caller.clone();
    let (moved, Migrate { to, keep_answers, rename, check }) = (run.clone(), body);
    let options = MoveOptions { keep_answers, renames: rename };
    let prepared =
        request.clone().reading(move |request| Ok(versions::migration(&request.host, &moved, to, &options)?));
    let migration = prepared.await?;
    if check {
        return Ok(Json(Planned::for_caller(&run, migration.plan().clone(), &caller)));
    }
    let moved = finish_detached(perform(request, run.clone(), migration, keep_answers)).await;
    let plan = moved.map_err(|error| withheld::error_for(&caller, error))?;
    Ok(Json(Planned::for_caller(&run, plan, &caller)))
}

/// Notes the move in the audit log, moves the run and resumes it.
async fn perform(
    request: Request,
    run: RunId,
    migration: Migration,
    keep_answers: bool,
) -> Result<MigrationPlan, ApiError> {
    let plan = migration.plan();
    if !plan.refused.is_empty() {
        return Err(MoveError::Refused(Box::new(plan.clone())).into());
    }
    let number = |version: Option<u32>| version.map_or_else(|| "-".to_owned(), |version| version.to_string());
    let subject = format!("{run} {} {}", number(plan.from_version), number(plan.version));
    request.write_audit_entry("run.migrate", subject).await?;
    if keep_answers {
        request.write_audit_entry("gate.keep", format!("{run} {run}")).await?;
    }
    let plan = migration.perform().await.map_err(MoveError::from)?;
    let options = RunOptions { by_hand: true, without_events: true, ..RunOptions::default() };
    // The run is due at once: if this process does not resume it now, the next look for due runs does.
    let resumed = request.clone().reading(move |request| Ok(request.host.resume(&run, options)));
    if let Ok(Ok(runner)) = resumed.await {
        let admitted = start::admit(&request, runner, false).await;
        admitted.err().into_iter().for_each(|error| tracing::info!("a moved run waits: {error:?}"));
    }
    Ok(plan)
}
