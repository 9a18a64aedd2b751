//! The route that lists what the tenant's runs wait for a person to do.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use axum::{body::Bytes, response::Response};
use flowcell_contract::RunId;
use flowcell_runtime::{
    paging::{PAGE_BYTES, PageLimits},
    ports::RunRow,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::{
    api_error::{ApiError, ErrorBody},
    app::Request,
    identity::Scope,
    intake::QueryParams,
    page::{check_limit, response_with_permit},
};
use flowcell_platform::inbox::{Inbox, InboxFilter, InboxPlace, WaitKind, needs_person};

/// The default number of waits in a page.
const DEFAULT_PAGE_WAITS: usize = 50;
/// The maximum number of waits in a page.
pub(crate) const MAX_PAGE_WAITS: usize = 200;
/// The maximum length of a cursor. The longest address of a task is shorter.
const MAX_CURSOR_BYTES: usize = 16 << 10;
/// The time for which a page asks drivers of runs what they wait for. The runs of the others are read from the store.
const ASK_TIME: Duration = Duration::from_secs(1);

/// The waits that a request asks for.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct InboxQuery {
    /// List only waits of this kind.
    #[param(inline)]
    kind: Option<WaitKind>,
    /// List only waits of runs of this flow.
    flow: Option<String>,
    /// The maximum number of entries.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<u32>,
    /// The `next` of the previous page.
    #[param(pattern = r"^([0-9a-f]{2})+$")]
    cursor: Option<String>,
}

/// A page of the inbox.
#[derive(Serialize, ToSchema)]
pub(crate) struct InboxPage {
    /// The list of `{ kind, runId, flow, version?, labels?, address?, since, expires?, mayDecide, … }`. A `gate` and an
    /// `approval` of an agent's call have `prompt`, `choices`, `allowText`, `schema?`, `attempt` and `digest`; an approval
    /// that shows only a part of a call's arguments has all of them in `arguments`, or their address in `wholeAt`. A
    /// `message` has an `agentRunId`, and a `blocked` task a `reason` and a `message`. Without an `address` the whole run is
    /// blocked. `mayDecide` is true if the caller's token has the scope to end the wait.
    #[schema(value_type = Vec<Object>)]
    gates: Vec<Value>,
    /// The `cursor` of the next page; the last page has none. A page may have fewer entries than `limit`, or none, and still
    /// have a `next`: one page reads at most 2,000 rows and the events of 50 runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

const _: () = assert!(
    flowcell_platform::inbox::MAX_PAGE_ROWS == 2_000 && flowcell_platform::inbox::MAX_PAGE_RUNS == 50,
    "the documentation of `next` names the limits"
);

/// List what all runs of the tenant wait for a person to do, the longest waiting run first
///
/// Answer a gate or an approval by `POST /v1/runs/{id}/gates/{gate}/reply` with its `address` as `gate`, a message by
/// `POST /v1/runs/{id}/agents/{agentRunId}/send`, and a blocked task by `POST /v1/runs/{id}/tasks/{task}/resolve`.
#[utoipa::path(get, path = "/v1/gates", tag = "runs", operation_id = "list_gates", params(InboxQuery),
    responses((status = 200, body = InboxPage), (status = "default", body = ErrorBody)))]
pub(crate) async fn list(request: Request, QueryParams(query): QueryParams<InboxQuery>) -> Result<Response, ApiError> {
    let InboxQuery { kind, flow, limit, cursor } = query;
    let items = check_limit(limit, DEFAULT_PAGE_WAITS, MAX_PAGE_WAITS)?;
    let after = cursor.as_deref().map(parse_cursor).transpose()?;
    let most = PageLimits { items, bytes: PAGE_BYTES };
    let mut permit = request.app.broadcasts.take_page_permit(request.tenant(), most).await;
    let (mut gates, next) = read_page(&request, Inbox::new(InboxFilter { kind, flow }, after, items)).await?;
    for gate in &mut gates {
        let is_question = matches!(gate["kind"].as_str(), Some("gate" | "approval"));
        let scope = if is_question { Scope::GateDecide } else { Scope::RunControl };
        gate["mayDecide"] = request.caller.scopes.has(scope).into();
    }
    let page = InboxPage { gates, next: next.map(|place| place.to_text()) };
    let text = Bytes::from(serde_json::to_vec(&page).map_err(ApiError::internal)?);
    permit.shrink(text.len() as u64);
    Ok(response_with_permit(text, permit))
}

fn parse_cursor(text: &str) -> Result<InboxPlace, ApiError> {
    let place = Some(text).filter(|text| text.len() <= MAX_CURSOR_BYTES).and_then(InboxPlace::parse);
    place.ok_or_else(|| ApiError::bad_request("`cursor` must be the `next` of a page of `/v1/gates`"))
}

async fn read_page(request: &Request, mut inbox: Inbox) -> Result<(Vec<Value>, Option<InboxPlace>), ApiError> {
    let until = Instant::now() + ASK_TIME;
    loop {
        let step = request.clone().blocking(move |request| {
            let rows = inbox.next_rows(&request.host, request.runs()?)?;
            Ok((inbox, rows))
        });
        let (begun, rows) = step.await?;
        inbox = begun;
        if rows.is_empty() {
            return Ok(inbox.finish());
        }
        let without = ask_drivers(request, &rows, until).await;
        let step = request.clone().reading(move |request| {
            inbox.read(&request.host, &rows, &without)?;
            Ok(inbox)
        });
        inbox = step.await?;
    }
}

/// Returns the runs among these that this process drives and that wait for no person. Until the time `until`, asks their
/// drivers.
async fn ask_drivers(request: &Request, rows: &[RunRow], until: Instant) -> HashSet<RunId> {
    let mut without = HashSet::new();
    for row in rows.iter().filter(|row| row.status == "active") {
        let Some(hub) = request.host.hubs().get(request.tenant(), &row.run_id) else { continue };
        match tokio::time::timeout_at(until.into(), hub.waiting()).await {
            Ok(Some(waiting)) if !needs_person(&waiting) => _ = without.insert(row.run_id.clone()),
            Ok(_) => {}
            Err(_) => break,
        }
    }
    without
}
