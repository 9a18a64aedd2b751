//! The actions of jobs on runs. Each action has no effect if it comes a second time for the same job and run.

use flowcell_contract::{Json, NodeId, RunId, code};
use flowcell_runtime::{
    MigrationPlan, NoStart, OpenError, QuestionRef, RenameError, Repeat, RunCommand, RunOptions,
    ports::{LabelChange, MaybeStoreError, RelabelError, RunRow, StoreError, StoreErrorKind},
};
use sha2::{Digest, Sha256};

use super::{
    record::{Item, JobReason},
    request::{JobAction, JobParams, JobRequest},
};
use crate::{
    Host, StartError,
    host::retention::{self, ENDED},
    library::versions::{self, FlowVersion, MoveError, RetryError},
    operate::quota::QuotaError,
    runs::waiting,
};

/// The beginning of the ids of runs that jobs start.
pub const RETRY_PREFIX: &str = "job.";

/// The result of an action on a run.
#[derive(Debug)]
pub(super) enum Acted {
    /// The action is done.
    Done,
    /// The action does not fit the run, for the reason with this code.
    Skipped(&'static str),
    /// The action failed.
    Failed(JobReason),
    /// The action is not possible at present.
    Later(JobReason),
    /// The job may not go on.
    Stop(JobReason),
}

/// Selects a run for an action. Returns the code of the reason if the run's state does not fit the action.
pub(super) fn select(
    host: &Host,
    request: &JobRequest,
    own: &str,
    row: &RunRow,
) -> Result<Result<Item, &'static str>, StartError> {
    let has_ended = ENDED.contains(&&*row.status);
    let mut item = Item { run: row.run_id.clone(), question: None };
    let refused = match request.action {
        JobAction::Cancel | JobAction::Answer | JobAction::Resume | JobAction::Migrate if has_ended => {
            Some("run_not_active")
        }
        JobAction::Resume | JobAction::Migrate if row.status == "active" => Some("run_driven"),
        JobAction::Retry | JobAction::Delete if !has_ended => Some("run_not_ended"),
        // If the clock was set back, the runs of the job seem to have begun before it.
        JobAction::Retry if row.run_id.as_str().starts_with(own) => Some("run_of_job"),
        _ => None,
    };
    if let Some(code) = refused {
        return Ok(Err(code));
    }
    if request.action == JobAction::Answer {
        let gate = request.params.gate.as_deref().unwrap_or_default();
        let open = host.charged(|| waiting::question(host, &row.run_id, gate))?;
        match open {
            Some(open) => item.question = Some(QuestionRef::of_json(&Json::from(open))),
            None => return Ok(Err("gate_closed")),
        }
    }
    Ok(Ok(item))
}

/// Performs an action on a run, except `delete` and `label`. `is_repeated`: the job may have acted on this run before.
/// Then a run that already is in the state to which the action leads counts as done.
pub(super) async fn act(host: &Host, job: &str, request: &JobRequest, item: &Item, is_repeated: bool) -> Acted {
    match request.action {
        JobAction::Cancel => ask(host, item, RunCommand::Cancel, is_repeated).await,
        JobAction::Answer => {
            let gate = request.params.gate.clone().unwrap_or_default();
            let answer = request.params.answer.clone().unwrap_or(Json::Null);
            let question = item.question.clone().unwrap_or_default();
            ask(host, item, RunCommand::reply(gate, answer, question), is_repeated).await
        }
        JobAction::Resume => resume(host, &item.run, is_repeated).await,
        JobAction::Retry => retry(host, job, request, &item.run).await,
        JobAction::Migrate => migrate(host, request, &item.run, is_repeated).await,
        // These act on whole batches.
        JobAction::Delete => Acted::Skipped("run_not_ended"),
        JobAction::Label => Acted::Skipped("run_not_found"),
    }
}

async fn ask(host: &Host, item: &Item, command: RunCommand, is_repeated: bool) -> Acted {
    let is_cancel = command == RunCommand::Cancel;
    let Err(error) = host.ask(&item.run, command).await else { return Acted::Done };
    match error.code() {
        "run_not_active" if is_cancel && is_repeated && has_status(host, &item.run, "cancelled") => Acted::Done,
        "gate_closed" if is_repeated => Acted::Done,
        // The process has lost its claim of a shared store, and the run goes on.
        "run_not_active" if is_live(host, &item.run) => Acted::Later(JobReason::new("store_unavailable", &error)),
        code @ ("run_not_active" | "gate_closed" | "run_not_found") => Acted::Skipped(code),
        "not_accepted" => of_store(host, "not_accepted", &error, None),
        code => Acted::Failed(JobReason::new(code, &error)),
    }
}

fn is_live(host: &Host, run: &RunId) -> bool {
    ["active", "parked", "needs_attention"].iter().any(|status| has_status(host, run, status))
}

fn has_status(host: &Host, run: &RunId, status: &str) -> bool {
    let row = host.runs().and_then(|runs| runs.run(host.tenant(), run).ok().flatten());
    row.is_some_and(|(row, _)| row.status == status)
}

/// Stores that a run is resumed. The supervisor then finds it and drives it, when its turn comes.
async fn resume(host: &Host, run: &RunId, is_repeated: bool) -> Acted {
    let options = RunOptions { by_hand: true, without_events: true, ..RunOptions::default() };
    match host.charged(|| host.resume(run, options)) {
        Ok(runner) if runner.ended().is_some() => Acted::Skipped("run_not_active"),
        Ok(runner) => accepted(host, runner.accept().await),
        Err(StartError::Open(OpenError::Driven(_))) if is_repeated => Acted::Done,
        Err(error) => of_start(host, &error),
    }
}

/// Stores a run that repeats another one. The supervisor drives it when its turn comes.
async fn retry(host: &Host, job: &str, request: &JobRequest, run: &RunId) -> Acted {
    let new = RunId::from(format!("{}{}", own_prefix(job), &hex::encode(Sha256::digest(run.as_str()))[..32]));
    match host.knows(&new) {
        Ok(true) => return Acted::Done,
        Ok(false) => {}
        Err(error) => return of_start(host, &OpenError::Store(error).into()),
    }
    let (repeat, version) = (repeat_of(request), request.params.flow_version);
    let options = RunOptions { run_id: Some(new), without_events: true, ..RunOptions::default() };
    match host.charged(|| versions::retry(host, run, version, repeat, options)) {
        Ok(runner) if !runner.is_new() => Acted::Done,
        Ok(runner) => accepted(host, runner.accept().await),
        Err(error) => not_repeated(host, error),
    }
}

/// Returns the part of each run that a job repeats.
pub(super) fn repeat_of(request: &JobRequest) -> Repeat {
    let JobParams { from, keep_answers, rename, .. } = &request.params;
    Repeat { from: from.as_deref().map(NodeId::from), keep_answers: *keep_answers, renames: rename.clone() }
}

/// Returns the result for a run that is not repeated, or whose version cannot be used.
pub(super) fn not_repeated(host: &Host, error: RetryError) -> Acted {
    match error {
        RetryError::Start(error) => of_start(host, &error),
        RetryError::Version(error) => match error.code() {
            code @ "store_unavailable" => Acted::Later(JobReason::new(code, error)),
            code => Acted::Failed(JobReason::new(code, error)),
        },
    }
}

/// Moves a run to another version of its flow, and leaves it due at once. The supervisor then resumes it.
async fn migrate(host: &Host, request: &JobRequest, run: &RunId, is_repeated: bool) -> Acted {
    let to = request.params.to.unwrap_or_default();
    let options = request.params.move_options();
    let moved = match host.charged(|| versions::migration(host, run, FlowVersion::Number(to), &options)) {
        Ok(migration) => migration.perform().await.map(drop).map_err(MoveError::from),
        Err(error) => Err(error.into()),
    };
    let Err(error) = moved else { return Acted::Done };
    // The job has moved the run before, and then a driver may have begun or ended it.
    if is_repeated && host.record(run).is_ok_and(|record| record.is_some_and(|record| record.version == Some(to))) {
        return Acted::Done;
    }
    not_moved(host, run, error)
}

/// Returns the result for a run that did not move.
pub(super) fn not_moved(host: &Host, run: &RunId, error: MoveError) -> Acted {
    match error {
        MoveError::Refused(plan) => refused_move(&plan),
        // Nobody drives the run: a process that ended has claimed it, or this one has lost its claim, perhaps before the
        // commit. The next try sees whether the move took effect.
        MoveError::Prepare(RetryError::Start(error @ StartError::Open(OpenError::Driven(_))))
            if !has_status(host, run, "active") =>
        {
            Acted::Later(JobReason::new("store_unavailable", error))
        }
        MoveError::Prepare(error) => not_repeated(host, error),
    }
}

/// Returns the result for a run that cannot move: the code is the kind of the first reason.
fn refused_move(plan: &MigrationPlan) -> Acted {
    match plan.refused.first().map(|refused| refused.obstacle.code()) {
        Some("same_version") => Acted::Skipped("same_version"),
        Some(code) => Acted::Failed(JobReason::new(code, MoveError::Refused(Box::new(plan.clone())))),
        None => Acted::Failed(JobReason::new("migration_refused", "the run did not move")),
    }
}

/// Returns the beginning of the ids of the runs that a job starts.
pub(super) fn own_prefix(job: &str) -> String {
    format!("{RETRY_PREFIX}{job}.")
}

fn accepted(host: &Host, accepted: Result<(), OpenError>) -> Acted {
    match accepted {
        Ok(()) => Acted::Done,
        // This process has lost its claim, perhaps before the commit. The next try sees whether it took effect.
        Err(error @ OpenError::Driven(_)) => Acted::Later(JobReason::new("store_unavailable", error)),
        Err(error) => of_start(host, &error.into()),
    }
}

/// Returns the result of an action whose run cannot be opened.
pub(super) fn of_start(host: &Host, error: &StartError) -> Acted {
    let code = match error {
        StartError::TenantDisabled(_) => return Acted::Stop(JobReason::new("tenant_disabled", error)),
        StartError::Quota(QuotaError::Store(_)) | StartError::Open(OpenError::Store(_)) => {
            return of_store(host, "not_accepted", error, error.store_error().map(StoreError::kind));
        }
        StartError::Quota(QuotaError::StoreFull { .. }) => {
            return Acted::Later(JobReason::new("store_full", error));
        }
        // The run goes on by itself when the quota has renewed.
        StartError::Quota(QuotaError::Paused { .. }) => return Acted::Skipped("quota_exceeded"),
        StartError::Quota(_) => return Acted::Later(JobReason::new("quota_exceeded", error)),
        StartError::Open(OpenError::Unknown(_)) => return Acted::Skipped("run_not_found"),
        StartError::Open(OpenError::Driven(_)) => return Acted::Skipped("run_driven"),
        StartError::Open(OpenError::Called { .. }) => return Acted::Skipped("called_run"),
        StartError::Open(OpenError::NoNode(NoStart::Unknown(_) | NoStart::OtherName { .. })) => "node_not_found",
        StartError::Open(OpenError::NoNode(NoStart::KeepsNothing { .. })) => "no_answer_kept",
        StartError::Open(OpenError::NoNode(NoStart::LeftEarly { .. })) => "cycle_left",
        StartError::Open(OpenError::NoNode(NoStart::TakenOver { .. })) => "node_taken_over",
        StartError::Open(OpenError::NoNode(NoStart::NotEnded { .. })) => "run_not_ended",
        StartError::Open(OpenError::Pin(_)) => "flow_not_found",
        StartError::Open(OpenError::OtherNeeds(failure)) if failure.code == code::SCHEMA_TOO_COSTLY => {
            code::SCHEMA_TOO_COSTLY
        }
        StartError::Open(OpenError::OtherNeeds(_)) => code::INVALID_INPUT,
        StartError::Open(OpenError::OtherNames(errors)) => errors.first().map_or("rename_refused", RenameError::code),
        StartError::Disabled(_) => "flow_disabled",
        StartError::Renewed(_) => "invalid_flow",
        _ => "not_accepted",
    };
    Acted::Failed(JobReason::new(code, error))
}

/// Returns the result of an action that failed because of the store. If the store answers other queries, the run itself
/// is damaged, and the action fails. Otherwise the action is tried later.
fn of_store(host: &Host, code: &str, error: &dyn std::fmt::Display, kind: Option<StoreErrorKind>) -> Acted {
    match kind {
        Some(StoreErrorKind::Outage | StoreErrorKind::Unavailable | StoreErrorKind::Conflict) => {
            return Acted::Later(JobReason::new("store_unavailable", error));
        }
        Some(StoreErrorKind::Damaged) => return Acted::Failed(JobReason::new(code, error)),
        _ => {}
    }
    match host.documents().list(host.tenant(), "job", "", 1) {
        Ok(_) => Acted::Failed(JobReason::new(code, error)),
        Err(lost) => unavailable(&lost),
    }
}

fn unavailable(error: &StoreError) -> Acted {
    Acted::Later(JobReason::new("store_unavailable", error))
}

/// Changes the labels of runs in one commit. Returns the result for each run.
pub(super) fn relabel(host: &Host, items: &[Item], change: &LabelChange) -> Vec<(RunId, Acted)> {
    let runs: Vec<_> = items.iter().map(|item| item.run.clone()).collect();
    match host.charged(|| retention::relabel(host, &runs, change)) {
        Ok(results) => {
            let acted = |result: Result<(), RelabelError>| match result {
                Ok(()) => Acted::Done,
                Err(RelabelError::Unknown(_)) => Acted::Skipped("run_not_found"),
                Err(error) => Acted::Failed(JobReason::new(error.code(), error)),
            };
            runs.into_iter().zip(results.into_iter().map(acted)).collect()
        }
        Err(error) => runs.into_iter().take(1).map(|run| (run, unavailable(&error))).collect(),
    }
}

/// Deletes runs in one commit. Returns the result for each run.
pub(super) fn delete(host: &Host, items: &[Item], is_repeated: bool) -> Vec<(RunId, Acted)> {
    let runs: Vec<_> = items.iter().map(|item| item.run.clone()).collect();
    let deleted = host.charged(|| {
        host.mark_unswept(host.now())?;
        retention::delete_deletable(host, &runs)
    });
    match deleted {
        Ok(results) => {
            let acted = |refused: Option<&'static str>| match refused {
                None => Acted::Done,
                Some("run_not_found") if is_repeated => Acted::Done,
                Some(code) => Acted::Skipped(code),
            };
            results.into_iter().map(|(run, refused)| (run, acted(refused))).collect()
        }
        Err(error) => runs.into_iter().take(1).map(|run| (run, unavailable(&error))).collect(),
    }
}
