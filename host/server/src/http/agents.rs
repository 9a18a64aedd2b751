//! The routes that show the agent runs of a run, and their conversations.

use axum::{body::Bytes, response::Response};
use flowcell_contract::RunId;
use flowcell_platform::agents::{AgentRun, AgentRuns, AgentWindow, Conversation, EntryWindow};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    api_error::{ApiError, ErrorBody},
    app::Request,
    intake::{PathParam, QueryParams, parse_path_id},
    page::{BY_BYTES, check_limit, response_with_permit},
};

/// The number of entries of a page, unless the request has another one.
const DEFAULT_PAGE_ENTRIES: usize = 50;
/// The maximum number of entries of a page.
const MAX_PAGE_ENTRIES: usize = 200;
/// The maximum number of bytes of a text that a preview shows whole.
const MAX_PREVIEW_BYTES: u32 = 1 << 20;

/// The maximum number of agent runs of a page.
const MAX_PAGE_AGENTS: usize = 500;

/// The agent runs that a request asks for.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct AgentQuery {
    /// The `next` of the previous page: the number of agent runs before the page.
    #[param(minimum = 0)]
    from: Option<u64>,
    /// The maximum number of agent runs. By default as many as 16 MiB hold.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u32>,
}

/// The entries of a conversation that a request asks for.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct EntryQuery {
    /// The number of the first entry.
    #[param(minimum = 0)]
    from: Option<u64>,
    /// List only entries with smaller numbers. Without `from` the page has the last of them.
    #[param(minimum = 0)]
    before: Option<u64>,
    /// The maximum number of entries.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<u32>,
    /// Cut texts of messages and answers, and inputs of tools, that have more than this many bytes.
    #[param(minimum = 0, maximum = 1048576)]
    preview: Option<u32>,
}

impl EntryQuery {
    fn window(&self) -> Result<EntryWindow, ApiError> {
        let limit = check_limit(self.limit, DEFAULT_PAGE_ENTRIES, MAX_PAGE_ENTRIES)?;
        if self.preview.is_some_and(|bytes| bytes > MAX_PREVIEW_BYTES) {
            return Err(ApiError::bad_request(format!("`preview` must be from 0 to {MAX_PREVIEW_BYTES} bytes")));
        }
        let preview = self.preview.map(|bytes| bytes as usize);
        Ok(EntryWindow { from: self.from, before: self.before, limit, preview })
    }
}

/// A page of the conversation of an agent run.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only the OpenAPI document reads it; the platform writes pages")]
#[schema(rename_all = "camelCase")]
pub(crate) struct AgentPage {
    /// The agent run.
    agent: AgentRun,
    /// The entries in order: `{ number, kind, seq, at, text, textBytes?, others?, … }`. `kind` is `message` (to the
    /// agent, with `messageId` and `state`), `answer` (of a model, with `provider`, `model`, `stop`, `tookMs`, `usage`
    /// and `tools`) or `note` (with `name`). `textBytes` is the size of a text that was cut; the event `seq` has all
    /// of it. A tool is `{ call?, tool, status, input, inputBytes?, output?, error?, gate?, decision?, tookMs?, runId?
    /// }`: its status is `pending`, `asking`, `running`, `succeeded` or `failed`, `output` has the first KiB, and
    /// `runId` is the run of the call. A page has at most 16 MiB, so it may have fewer than `limit`.
    #[schema(value_type = Vec<Object>)]
    entries: Vec<flowcell_platform::agents::Entry>,
    /// The `before` of the page before this one. Absent if no entry is before this page.
    #[schema(nullable = false)]
    previous: Option<u64>,
    /// The `from` of the next page; the last page has none.
    #[schema(nullable = false)]
    next: Option<u64>,
}

/// List the agent runs of a run, with their states, tokens and cost
///
/// Agents of the runs that this run has called are in the lists of those runs. With `limit` the list is a page.
#[utoipa::path(get, path = "/v1/runs/{id}/agents", tag = "runs", operation_id = "list_agents",
    params(("id" = String, Path,), AgentQuery),
    responses((status = 200, body = AgentRuns), (status = "default", body = ErrorBody)))]
pub(crate) async fn list(
    request: Request,
    PathParam(id): PathParam<String>,
    QueryParams(AgentQuery { from, limit }): QueryParams<AgentQuery>,
) -> Result<Response, ApiError> {
    let limit = limit.map(|limit| check_limit(Some(limit), MAX_PAGE_AGENTS, MAX_PAGE_AGENTS)).transpose()?;
    let window = AgentWindow { from: from.unwrap_or(0), limit };
    respond(request, parse_path_id(&id)?, move |request, run| Ok(AgentRuns::of(&request.host, run, window)?)).await
}

/// Show the conversation of an agent run by page, with its calls of tools
#[utoipa::path(get, path = "/v1/runs/{id}/agents/{agentRunId}", tag = "runs", operation_id = "show_agent",
    params(("id" = String, Path,), ("agentRunId" = String, Path,), EntryQuery),
    responses((status = 200, body = AgentPage), (status = "default", body = ErrorBody)))]
pub(crate) async fn show(
    request: Request,
    PathParam((id, agent)): PathParam<(String, String)>,
    QueryParams(query): QueryParams<EntryQuery>,
) -> Result<Response, ApiError> {
    let window = query.window()?;
    let read = move |request: &Request, run: &RunId| {
        let found = Conversation::read(&request.host, run, &agent, window)?;
        let unknown = || format!("the run `{run}` has no agent run `{agent}`; `…/agents` lists those that have begun");
        found.ok_or_else(|| ApiError::not_found("agent_not_found", unknown()))
    };
    respond(request, parse_path_id(&id)?, read).await
}

/// Reads a page from the events of a run, and returns it as a response that holds a permit for its bytes.
async fn respond<T: Serialize>(
    request: Request,
    run: RunId,
    read: impl FnOnce(&Request, &RunId) -> Result<T, ApiError> + Send + 'static,
) -> Result<Response, ApiError> {
    let mut permit = request.app.broadcasts.take_page_permit(request.tenant(), BY_BYTES).await;
    let text = request.reading(move |request| {
        request.row(&run)?;
        Ok(Bytes::from(serde_json::to_vec(&read(request, &run)?).map_err(ApiError::internal)?))
    });
    let text = text.await?;
    permit.shrink(text.len() as u64);
    Ok(response_with_permit(text, permit))
}
