//! The routes that list, show and delete runs.

use std::collections::BTreeMap;

use axum::{Json, http::StatusCode};
use flowcell_contract::{RunId, code};
use flowcell_runtime::{
    OpenError, RunError, RunResult, RunStatus, Waiting,
    earlier::EarlierRun,
    fact::{RunEnd, WaitsFor},
    limits::{MAX_COUNT_READS, MAX_READ_RUNS},
    paging::{PAGE_BYTES, PageLimits},
    ports::{Filter, MaybeStoreError, Record, RunRow, SearchPage},
};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    api_error::{ApiError, ErrorBody},
    app::{Request, finish_detached},
    identity::Caller,
    intake::{PathParam, QueryParams, parse_path_id},
    moment::Moment,
    page::fill_page,
    search::{PLACE_MARK, RunCount, RunQuery, list_counts},
    withheld::missing_scope,
};
use flowcell_platform::{
    StartError,
    facts::{CutInput, MAX_SHOWN_INPUT_BYTES, PinnedPack, RunFacts},
    shape,
};

/// The maximum number of repeating runs that one run shows.
const MAX_SHOWN_REPEATS: usize = 20;

/// One run.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunView {
    /// The id of the run.
    pub(crate) run_id: String,
    /// The name of the flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) flow: Option<String>,
    /// `running`, `parked`, `needs_attention`, `succeeded`, `failed` or `cancelled`.
    pub(crate) status: String,
    /// The time when the run began, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<u64>,
    /// The time of the last change of the status, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    updated: Option<u64>,
    /// The time when the next timer of a parked run is due, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    due: Option<u64>,
    /// The first item that a parked run waits for: `{ reason, task?, others? }`. The reason is `gate`, `message`,
    /// `event`, `ambiguous`, `nondeterministic`, `undo_failed`, `crash_loop` or `restored`; `others` counts the further
    /// waits. Absent if the run waits only for the time `due`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    waits_for: Option<WaitsFor>,
    /// `quota_exceeded`: the run is parked because its tenant has used up a quota, and goes on by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// The time when that quota renews, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    paused_until: Option<u64>,
    /// The outputs of an ended run; for a run that did not succeed, the outputs until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    pub(crate) outputs: Option<Value>,
    /// The error of a failed run: `{ code, message, retryable, details?, task? }`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    pub(crate) error: Option<Value>,
    /// The questions and waits of a parked run, in answers to requests that waited for the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<Object>)]
    waiting: Option<Vec<Value>>,
    /// The version of the flow, if the run was started from a library.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u32>,
    /// The names of nodes in this version by the ids that the run keeps, where they differ (only for one run).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    node_names: BTreeMap<String, String>,
    /// The labels of the flow, the trigger and the start.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    /// The trigger that started the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    trigger: Option<String>,
    /// The run that this one repeats.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_of: Option<String>,
    /// The runs that repeat this one, the latest 20 (only for one run).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    retried_by: Vec<String>,
    /// The run that has called this one (only for one run).
    #[serde(skip_serializing_if = "Option::is_none")]
    called_by: Option<String>,
    /// The code of the error of a failed run.
    #[serde(skip_serializing_if = "Option::is_none")]
    error_code: Option<String>,
    /// The node that failed, such as `each.fetch` for a node in the body of `each`.
    #[serde(skip_serializing_if = "Option::is_none")]
    failed_node: Option<String>,
    /// The number of its events so far (only for one run).
    #[serde(skip_serializing_if = "Option::is_none")]
    events: Option<u64>,
    /// The packs that the run is pinned to (only for one run).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    packs: Vec<PinnedPack>,
    /// The reason why the packs are unknown, such as damaged content (only for one run).
    #[serde(skip_serializing_if = "Option::is_none")]
    packs_unknown: Option<String>,
    /// True if a node of the flow can run agents: `…/agents` lists them (only for one run).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    has_agents: bool,
    /// The input with the defaults of the flow (only for one run).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    input: Option<Value>,
    /// The beginning of an input of more than 16 KiB, in place of `input`; `…/input` has all of it (only for one run).
    #[serde(skip_serializing_if = "Option::is_none")]
    input_cut: Option<CutInput>,
    /// The damage of the store that makes the input unknown (only for one run).
    #[serde(skip_serializing_if = "Option::is_none")]
    input_unknown: Option<String>,
    /// The scope that the token lacks: without `run:read` it gets the id and the status of the run alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    withheld: Option<&'static str>,
    /// The damage of the store that makes the outputs and the error of an ended run unknown (only for one run).
    #[serde(skip_serializing_if = "Option::is_none")]
    outputs_unknown: Option<String>,
}

const _: () = assert!(MAX_SHOWN_INPUT_BYTES == 16 * 1024, "the documentation of `input_cut` names the limit");

impl RunView {
    /// Creates the view of a run that was just admitted.
    pub(crate) fn new_running(run: &RunId) -> RunView {
        RunView {
            run_id: run.to_string(),
            flow: None,
            status: "running".into(),
            created: None,
            updated: None,
            due: None,
            waits_for: None,
            reason: None,
            paused_until: None,
            outputs: None,
            error: None,
            waiting: None,
            version: None,
            node_names: BTreeMap::new(),
            labels: BTreeMap::new(),
            trigger: None,
            retry_of: None,
            retried_by: Vec::new(),
            called_by: None,
            error_code: None,
            failed_node: None,
            events: None,
            packs: Vec::new(),
            packs_unknown: None,
            has_agents: false,
            input: None,
            input_cut: None,
            input_unknown: None,
            outputs_unknown: None,
            withheld: None,
        }
    }

    /// Returns the part of the view that a caller of a route without the scope `run:read` may see.
    pub(crate) fn for_caller(self, caller: &Caller) -> RunView {
        match missing_scope(caller) {
            Some(scope) => RunView {
                status: self.status,
                withheld: Some(scope.name()),
                ..RunView::new_running(&RunId::from(self.run_id))
            },
            None => self,
        }
    }

    pub(crate) fn from_row(row: &RunRow) -> RunView {
        let status = if row.status == "active" { "running" } else { &row.status };
        RunView {
            flow: Some(row.flow.clone()),
            status: status.into(),
            created: Some(row.created),
            updated: Some(row.updated),
            due: row.due,
            waits_for: row.waits_for.clone(),
            reason: row.paused_until.map(|_| code::QUOTA_EXCEEDED),
            paused_until: row.paused_until,
            version: row.version,
            labels: row.labels.clone(),
            trigger: row.trigger.clone(),
            retry_of: row.retry_of.as_ref().map(ToString::to_string),
            error_code: row.error.clone().filter(|_| row.paused_until.is_none()),
            failed_node: row.node.clone(),
            ..RunView::new_running(&row.run_id)
        }
    }

    /// Adds the facts of the run that are fixed at its start.
    fn with_facts(self, facts: &RunFacts) -> RunView {
        let RunFacts { packs, packs_unknown, has_agents, input, input_cut, input_unknown } = facts.clone();
        RunView { packs, packs_unknown, has_agents, input, input_cut, input_unknown, ..self }
    }

    /// Returns the view as it was before an event. The facts that are fixed at the start, the labels, the packs and the runs
    /// that repeat this one stay.
    fn at(self, earlier: EarlierRun, record: &Record) -> RunView {
        let EarlierRun { row, events, moves, end, .. } = earlier;
        let names = moves.checked_sub(1).and_then(|last| record.moves.get(last)).map(|moved| &moved.names);
        let view = RunView {
            called_by: self.called_by,
            node_names: names.into_iter().flatten().map(|(id, name)| (id.to_string(), name.to_string())).collect(),
            events: Some(events),
            retried_by: self.retried_by,
            packs: self.packs,
            packs_unknown: self.packs_unknown,
            has_agents: self.has_agents,
            input: self.input,
            input_cut: self.input_cut,
            input_unknown: self.input_unknown,
            ..RunView::from_row(&row)
        };
        match end {
            Some(end) => view.ended(end),
            None => view,
        }
    }

    /// Creates the view from the result of a run.
    pub(crate) fn from_result(result: &RunResult) -> RunView {
        let status = serde_json::to_value(result.status).unwrap_or_default();
        let parked = matches!(result.status, RunStatus::Parked | RunStatus::NeedsAttention);
        RunView {
            flow: Some(result.flow.to_string()),
            status: status.as_str().unwrap_or_default().into(),
            outputs: (!parked).then(|| result.outputs.to_serde()),
            error: result.error.as_ref().map(shape::run_error),
            reason: result.quota.as_ref().map(|_| code::QUOTA_EXCEEDED),
            paused_until: result.quota.as_ref().map(|hold| hold.until),
            waiting: parked.then(|| result.waiting.iter().map(waiting_json).collect()),
            ..RunView::new_running(&result.run_id)
        }
    }

    /// Returns true if the run continues without a command: it is running, or a timer is set.
    pub(crate) fn continues_by_itself(&self) -> bool {
        self.status == "running" || self.status == "parked" && self.due.is_some()
    }

    fn ended(self, end: RunEnd) -> RunView {
        let (outputs, error) = match end {
            RunEnd::Succeeded { outputs } | RunEnd::Cancelled { outputs } => (outputs, None),
            RunEnd::Failed { outputs, failure, task } => (outputs, Some(RunError { failure, task })),
        };
        RunView { outputs: Some(outputs.to_serde()), error: error.as_ref().map(shape::run_error), ..self }
    }
}

fn waiting_json(waiting: &Waiting) -> Value {
    let mut object = shape::waiting(waiting);
    if let Waiting::Answer { question, .. } = waiting {
        object["choices"] = question.choices.iter().map(|choice| choice.value.as_str()).collect();
    }
    object["kind"] = match waiting {
        Waiting::Answer { .. } => "gate",
        Waiting::Decision { .. } => "decision",
        Waiting::Message { .. } => "message",
        Waiting::Event { .. } => "event",
    }
    .into();
    object
}

/// A page of runs.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunPage {
    /// The runs, newest first.
    runs: Vec<RunView>,
    /// The `cursor` of the next page; the last page has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// The time at which the last run began that was read for this page, in milliseconds since 1970. The page has it if its
    /// search ended after 20,000 runs, and may then have fewer runs than `limit`, or none. `next` continues the search.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    searched_to: Option<u64>,
    /// The values of `countBy` with their numbers of runs, the most frequent first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    counts: Option<Vec<RunCount>>,
    /// With `countBy`: true if earlier runs are not counted. At most 10,000 runs are counted, and at most 200,000 read.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    more: Option<bool>,
}

/// List runs, newest first
///
/// With `countBy`, the answer also counts all runs that the filter selects, by that member.
#[utoipa::path(get, path = "/v1/runs", tag = "runs", params(RunQuery),
    responses((status = 200, body = RunPage), (status = "default", body = ErrorBody)))]
pub(crate) async fn list(
    request: Request,
    QueryParams(query): QueryParams<RunQuery>,
) -> Result<Json<RunPage>, ApiError> {
    let (items, group) = (query.page_size()?, query.group()?);
    let filter = query.into_filter()?;
    let read = request.blocking(move |request| {
        let (runs, tenant) = (request.runs()?, request.tenant());
        let all = Filter { after: None, after_place: None, ..filter.clone() };
        let counts = group.map(|group| runs.count(tenant, &all, &group, MAX_COUNT_READS)).transpose()?;
        Ok((runs.search(tenant, &filter, MAX_READ_RUNS)?, counts))
    });
    let (SearchPage { rows, searched_to }, counts) = read.await?;
    let most = PageLimits { items, bytes: PAGE_BYTES };
    let (runs, next) = fill_page(rows.iter().map(RunView::from_row), most, |run| run.run_id.clone());
    let more = counts.as_ref().map(|counts| counts.more);
    // A page that was cut for its size goes on after its last run.
    let searched_to = searched_to.filter(|_| next.is_none());
    let next = next.or_else(|| searched_to.map(|to| format!("{PLACE_MARK}{to}")));
    let searched_to = searched_to.map(|to| to.created);
    Ok(Json(RunPage { runs, next, searched_to, counts: counts.map(list_counts), more }))
}

/// Show a run with its input and its packs, and with its outputs once it has ended
///
/// With `before`, the labels, the packs and the runs that repeat the run are those of now.
#[utoipa::path(get, path = "/v1/runs/{id}", tag = "runs", params(("id" = String, Path,), Moment),
    responses((status = 200, body = RunView), (status = "default", body = ErrorBody)))]
pub(crate) async fn show(
    request: Request,
    PathParam(id): PathParam<String>,
    QueryParams(moment): QueryParams<Moment>,
) -> Result<Json<RunView>, ApiError> {
    let (run, end) = (parse_path_id(&id)?, moment.end());
    let (_, next) = request.row(&run)?;
    // A view of now reads no journal.
    if end >= next {
        return view(request, run).await.map(Json);
    }
    let of = run.clone();
    let read = request.clone().reading(move |request| {
        let (row, _) = request.row(&of)?;
        let record = request.host.record(&of)?.ok_or_else(|| ApiError::run_not_found(of.as_str()))?;
        Ok((request.host.run_before(row, &record, end)?, record))
    });
    let (earlier, record) = read.await?;
    let now = view(request, run).await?;
    Ok(Json(now.at(earlier, &record)))
}

/// Reads the current state of a run, with its outputs once it has ended. If a part of the run is damaged, the view has the
/// other parts, and the damage.
pub(crate) async fn view(request: Request, run: RunId) -> Result<RunView, ApiError> {
    request
        .blocking(move |request| {
            let (host, (row, next)) = (&request.host, request.row(&run)?);
            let view = RunView { events: Some(next), ..RunView::from_row(&row) };
            let mut view = match host.record(&run) {
                Ok(record) => {
                    let record = record.ok_or_else(|| OpenError::Unknown(run.clone())).map_err(StartError::from)?;
                    let names = record.node_names().into_iter().map(|(id, name)| (id.to_string(), name.to_string()));
                    let (called_by, node_names) = (record.parent.map(|run| run.to_string()), names.collect());
                    RunView {
                        called_by,
                        node_names,
                        ..view.with_facts(&*request.app.facts.read(host, &row, record.pin)?)
                    }
                }
                Err(error) => {
                    let packs_unknown = Some(error.damage().ok_or(error)?);
                    log_damage(request, &run, packs_unknown.as_deref());
                    view.with_facts(&RunFacts { packs_unknown, ..RunFacts::default() }.with_input(host, &run)?)
                }
            };
            let repeats = Filter { retry_of: Some(run.clone()), limit: MAX_SHOWN_REPEATS, ..Filter::default() };
            let repeats = request.runs()?.runs(request.tenant(), &repeats)?;
            view.retried_by = repeats.iter().map(|row| row.run_id.to_string()).collect();
            let view = match host.end_of(&run, next) {
                Ok(Some(end)) => view.ended(end),
                Ok(None) => view,
                Err(error) => RunView { outputs_unknown: Some(error.damage().ok_or(error)?), ..view },
            };
            log_damage(request, &run, view.input_unknown.as_deref());
            log_damage(request, &run, view.outputs_unknown.as_deref());
            Ok(view)
        })
        .await
}

fn log_damage(request: &Request, run: &RunId, damage: Option<&str>) {
    if let Some(why) = damage {
        tracing::error!(tenant = %request.tenant(), %run, "a part of a run cannot be shown: {why}");
    }
}

/// The input of a run.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunInput {
    run_id: String,
    /// The whole input, with the defaults of the flow.
    input: Value,
}

/// Show the whole input of a run
#[utoipa::path(get, path = "/v1/runs/{id}/input", tag = "runs", operation_id = "show_run_input",
    params(("id" = String, Path,)),
    responses((status = 200, body = RunInput), (status = "default", body = ErrorBody)))]
pub(crate) async fn input(request: Request, PathParam(id): PathParam<String>) -> Result<Json<RunInput>, ApiError> {
    let run = parse_path_id(&id)?;
    let input = request
        .reading(move |request| {
            request.row(&run)?;
            let input = request.host.input_of(&run)?.ok_or_else(|| ApiError::run_not_found(run.as_str()))?;
            Ok(RunInput { run_id: run.to_string(), input: input.to_serde() })
        })
        .await?;
    Ok(Json(input))
}

/// Delete an ended run with its child runs; its id is not used again
#[utoipa::path(delete, path = "/v1/runs/{id}", tag = "runs", operation_id = "delete_run",
    params(("id" = String, Path,)),
    responses((status = 204, description = "deleted"), (status = "default", body = ErrorBody)))]
pub(crate) async fn delete(request: Request, PathParam(id): PathParam<String>) -> Result<StatusCode, ApiError> {
    let run = parse_path_id(&id)?;
    finish_detached(async move {
        let deleted = run.clone();
        request
            .clone()
            .reading(move |request| {
                request.host.delete_runs(&[deleted])?;
                Ok(request.host.mark_unswept(request.host.now())?)
            })
            .await?;
        request.write_audit_entry("run.delete", run.to_string()).await?;
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}
