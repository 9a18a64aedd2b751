//! The tools that a caller's token may use, and their calls.

use std::sync::Arc;

use flowcell_flow::graph::Graph;
use flowcell_runtime::paging::Filling;
use rmcp::{
    ErrorData, RoleServer,
    model::{CallToolRequestParams, CallToolResult, ListToolsResult, Tool, ToolAnnotations},
    service::RequestContext,
};
use serde_json::{Value, json};

use super::{
    arguments::{PREFIX, input_schema, parse},
    builtin, call,
    calls::Calls,
    outcome,
};
use crate::http::{
    api_error::ApiError,
    app::Request,
    identity::Scope,
    page::{self, BY_BYTES},
    start::StartRun,
};
use flowcell_platform::LoadedFlow;

/// The maximum number of flows in a page of tools.
pub(crate) const FLOWS_PER_PAGE: usize = 200;
/// The scope that a tool call needs if the tool is a flow.
const CALL_SCOPE: Scope = Scope::RunCreate;

/// Returns a page of tools. The first page begins with the built-in tools. The flows follow, sorted by name. A flow
/// that cannot run is left out.
pub(super) async fn list(request: Request, cursor: Option<String>) -> Result<ListToolsResult, ApiError> {
    let scopes = request.caller.scopes;
    let mut tools = if cursor.is_none() { builtin::tools(scopes) } else { Vec::new() };
    let mut next_cursor = None;
    if scopes.has(CALL_SCOPE) {
        let (flows, next) = flows(request, cursor).await?;
        tools.extend(flows);
        next_cursor = next;
    }
    Ok(ListToolsResult { next_cursor, ..ListToolsResult::with_all_items(tools) })
}

/// Returns the tools of the flows whose names follow `after`. The second value is the last name of the page if more
/// flows follow, and otherwise `None`.
async fn flows(request: Request, after: Option<String>) -> Result<(Vec<Tool>, Option<String>), ApiError> {
    let page = request.checking(move |flows, host| {
        let mut names = flows.names()?;
        names.retain(|name| after.as_ref().is_none_or(|after| name > after) && !name.starts_with(PREFIX));
        let (mut tools, mut filling) = (Vec::new(), Filling::new(BY_BYTES));
        for (index, name) in names.iter().enumerate() {
            let tool = flows.load(host, name, None).ok().map(|flow| of_flow(&flow));
            if index == FLOWS_PER_PAGE || tool.as_ref().is_some_and(|tool| !filling.take(page::json_size(tool))) {
                return Ok((tools, index.checked_sub(1).map(|last| names[last].clone())));
            }
            tools.extend(tool);
        }
        Ok((tools, None))
    });
    page.await
}

/// Calls a tool. If the tool call fails, the error becomes part of the result, so that the model can read it. Only an
/// unknown tool is an error of the protocol.
pub(super) async fn call(
    request: Request,
    asked: CallToolRequestParams,
    context: &RequestContext<RoleServer>,
    calls: &Calls,
) -> Result<CallToolResult, ErrorData> {
    let arguments = Value::Object(asked.arguments.unwrap_or_default());
    let answer = match asked.name.strip_prefix(PREFIX) {
        Some(name) => match builtin::Builtin::named(name) {
            Some(builtin) => builtin.call(request, arguments, context, calls).await,
            None => Err(unknown_tool(&asked.name)),
        },
        None => call_flow(&request, &asked.name, arguments, context, calls).await,
    };
    match answer {
        Err(error) if error.code() == "unknown_tool" => Err(outcome::protocol_error(&error)),
        Err(error) => Ok(outcome::of_error(&error)),
        Ok(result) => Ok(result),
    }
}

fn unknown_tool(name: &str) -> ApiError {
    ApiError::not_found("unknown_tool", format!("the server has no tool `{name}`; `tools/list` lists the tools"))
}

async fn call_flow(
    request: &Request,
    name: &str,
    input: Value,
    context: &RequestContext<RoleServer>,
    calls: &Calls,
) -> Result<CallToolResult, ApiError> {
    if !request.caller.scopes.has(CALL_SCOPE) {
        return Err(ApiError::forbidden(CALL_SCOPE));
    }
    let missing = |error: ApiError| if error.code() == "flow_not_found" { unknown_tool(name) } else { error };
    if !flowcell_platform::host::folder::is_flow_name(name) {
        return Err(unknown_tool(name));
    }
    let body: StartRun = parse(json!({ "flow": name, "input": input }))?;
    call::start(request, body, context, calls).await.map_err(missing)
}

fn of_flow(flow: &LoadedFlow) -> Tool {
    let graph = flow.graph();
    let usual = || format!("Runs the flow `{}`.", graph.name);
    let description = graph.description.clone().filter(|text| !text.is_empty()).unwrap_or_else(usual);
    Tool::new(graph.name.to_string(), description, Arc::new(input_schema(graph))).with_annotations(annotations(graph))
}

/// Returns the hints of MCP about a flow's effects. They are derived from the flow's nodes and grants.
fn annotations(graph: &Graph) -> ToolAnnotations {
    let effects = || graph.nodes.iter().map(|node| node.node_type.effect);
    let reaches = graph.nodes.iter().any(|node| !node.grants.0.is_empty() || node.node_type.effect.is_external());
    let reads = !reaches && effects().all(|effect| effect <= flowcell_contract::Effect::Read);
    ToolAnnotations::new().read_only(reads).destructive(reaches).open_world(reaches)
}
