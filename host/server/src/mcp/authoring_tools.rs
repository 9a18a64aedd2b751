//! The tools that test, inspect and draw a flow, and list the functions of expressions. A test makes no calls to other
//! systems.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flowcell_contract::{Json, functions};
use flowcell_flow::{
    draw::{Format, draw as drawn},
    graph::{BodyIx, Edge, Graph, Node},
    script::script_label,
};
use flowcell_runtime::RunOptions;
use rmcp::model::{CallToolResult, ContentBlock};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use super::arguments::input_schema;
use crate::http::{api_error::ApiError, app::Request, start};
use flowcell_platform::{Fixtures, LoadedFlow, Simulate, shape};

/// The maximum real time of a test.
const MAX_TEST_TIME: Duration = Duration::from_secs(60);

/// The maximum size of the events and files that a test keeps in memory, in bytes. A larger test ends with
/// `run_too_large`.
const MAX_TEST_BYTES: u64 = 32 << 20;

/// The arguments of a tool for one flow: the name and version of a stored flow, or a whole flow.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FlowArguments {
    flow: Box<RawValue>,
    version: Option<u32>,
}

/// A flow to test, with its input.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Test {
    flow: Box<RawValue>,
    version: Option<u32>,
    #[serde(default)]
    input: Json,
    #[serde(default = "services")]
    simulate: Vec<String>,
}

fn services() -> Vec<String> {
    vec!["services".into()]
}

/// Runs a flow as a test. The calls that `simulate` selects get simulated replies, and every other call that would
/// leave the host fails. Timers fire at once, and nothing is stored.
///
/// Returns 400 if the test does not end within 60 s.
pub(super) async fn test(request: &Request, asked: Test) -> Result<Value, ApiError> {
    let flow = start::load_or_check(request, &asked.flow, asked.version).await?;
    // A test ends with its request, so the permit for checks may be dropped with the request, too.
    let _turn = request.app.checks.take(request.tenant(), 1).await;
    let host = request.host.clone().simulating(Simulate::of(asked.simulate)).map_err(ApiError::bad_request)?;
    let options = RunOptions { input: asked.input, without_events: true, ..RunOptions::default() };
    let script = Fixtures { most_bytes: Some(MAX_TEST_BYTES), ..Fixtures::default() };
    let runner = host.test_runner(&flow, Arc::new(script), options)?;
    runner.start_session();
    let ended = tokio::time::timeout(MAX_TEST_TIME, runner.run()).await;
    let late = |_| ApiError::bad_request(format!("the test does not end within {} s", MAX_TEST_TIME.as_secs()));
    Ok(shape::outcome(flow.graph(), &ended.map_err(late)?))
}

/// Describes a flow's inputs, outputs, nodes and edges without running it.
pub(super) async fn inspect(request: &Request, asked: FlowArguments) -> Result<Value, ApiError> {
    let flow = start::load_or_check(request, &asked.flow, asked.version).await?;
    request.clone().computing(move |_| Ok(flow_description(&flow))).await
}

/// Returns the description of a flow. For a script, adds its outline: the inputs and outputs that the script declares.
fn flow_description(flow: &LoadedFlow) -> Value {
    let graph = flow.graph();
    let mut told = json!({
        "name": graph.name,
        "version": graph.version,
        "description": graph.description,
        "inputSchema": input_schema(graph),
        "outputs": outputs(graph),
        "nodes": graph.nodes.iter().map(|node| described_node(graph, node)).collect::<Vec<_>>(),
        "edges": graph.edges.iter().map(|edge| described_edge(graph, edge)).collect::<Vec<_>>(),
    });
    if let Some(outline) = script_label(graph) {
        told["script"] = json!(outline);
    }
    told
}

/// Returns the names of the outputs that the flow declares, or, if it declares none, the ids of its root nodes.
fn outputs(graph: &Graph) -> BTreeSet<String> {
    let Some(outputs) = &graph.outputs else {
        return graph.body(BodyIx::ROOT).nodes.iter().map(|node| graph.node(*node).id.to_string()).collect();
    };
    outputs.expr.members().map(|(name, _)| name.to_string()).collect()
}

fn described_node(graph: &Graph, node: &Node) -> Value {
    let mut told = json!({ "id": node.id, "type": node.node_type.full_name(), "grants": node.grants });
    if let Some(body) = node.body {
        told["body"] = graph.body(body).nodes.iter().map(|node| graph.node(*node).id.as_str()).collect();
    }
    told
}

fn described_edge(graph: &Graph, edge: &Edge) -> Value {
    json!({ "from": graph.node(edge.from).id, "to": graph.node(edge.to).id })
}

/// A flow to draw.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Drawing {
    flow: Box<RawValue>,
    version: Option<u32>,
    #[serde(default = "text")]
    format: Format,
}

fn text() -> Format {
    Format::Text
}

/// Draws a flow. A picture is an image; the other formats are texts.
pub(super) async fn draw(request: Request, asked: Drawing) -> Result<CallToolResult, ApiError> {
    let Drawing { flow, version, format } = asked;
    let flow = start::load_or_check(&request, &flow, version).await?;
    let drawing = request.computing(move |request| Ok(request.host.charged(|| drawn(flow.graph(), format))));
    let drawing = drawing.await?;
    Ok(CallToolResult::success(vec![match format {
        Format::Svg => ContentBlock::image(STANDARD.encode(drawing), "image/svg+xml"),
        _ => ContentBlock::text(drawing),
    }]))
}

/// The name of a function of expressions.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FunctionName {
    name: Option<String>,
}

/// Lists the functions of expressions, or describes those with a name.
pub(super) fn functions(asked: &FunctionName) -> Result<Value, ApiError> {
    let Some(name) = &asked.name else {
        return Ok(json!({ "functions": functions::functions().map(shape::function_row).collect::<Vec<_>>() }));
    };
    let found: Vec<_> = functions::functions_named(name).map(shape::function).collect();
    if !found.is_empty() {
        return Ok(json!({ "functions": found }));
    }
    let hint = match functions::similar_function(name) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => "flowcell_functions without `name` lists all functions".to_owned(),
    };
    Err(ApiError::bad_request(format!("unknown function `{name}`: {hint}")))
}
