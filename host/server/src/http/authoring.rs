//! The routes that lay out, inspect and test a flow. A test makes no calls to other systems.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use axum::{
    Json,
    http::header,
    response::{IntoResponse, Response},
};
use flowcell_contract::Json as Data;
use flowcell_flow::{
    draw::{Fold, places},
    graph::{BodyIx, Edge, Graph, Node},
    script::script_label,
};
use flowcell_runtime::RunOptions;
use serde::Deserialize;
use serde_json::{Map, Value, json, value::RawValue};
use utoipa::{IntoParams, ToSchema};

use super::{
    api_error::{ApiError, ErrorBody},
    app::Request,
    flows,
    intake::{Body, PathParam, QueryParams, parse_path_id},
    start,
};
use flowcell_platform::{
    Fixtures, LoadedFlow, Simulate,
    cases::trial::RUN_ID,
    shape,
    tree::{NodeStates, Tree},
};

/// The maximum real time of a test.
pub(crate) const MAX_TEST_TIME: Duration = Duration::from_secs(60);

/// The maximum size of the events and files that a test keeps in memory, in bytes. A larger test ends with
/// `run_too_large`.
pub(crate) const MAX_TEST_BYTES: u64 = 32 << 20;

/// A flow to read.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FlowToRead {
    /// The name of a stored flow, or a whole flow: an object, or its text in YAML or JSON. A script is
    /// `{ "name", "script" }`.
    #[schema(value_type = serde_json::Value)]
    flow: Box<RawValue>,
    /// The version of a stored flow; by default the newest.
    version: Option<u32>,
    /// The texts of the files that a whole flow names, by their paths relative to it. They are not stored.
    #[serde(default)]
    files: BTreeMap<String, String>,
}

/// The maximum number of bytes of a list of ids in [`Folded`].
const MAX_FOLDED_BYTES: usize = 64 << 10;

/// The nodes whose bodies are left out of a picture.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Folded {
    /// `all`, or the ids of nodes whose bodies are left out, such as `each,retry`. By default none.
    fold: Option<String>,
    /// With `fold=all`: the ids of nodes whose bodies are shown all the same.
    open: Option<String>,
    /// The number of a part of a large picture, from 0: the rows of about 400 nodes, with at most 800 edges of them. A
    /// number that is too large stands for the last part. By default the whole picture.
    #[param(minimum = 0)]
    part: Option<u32>,
}

/// The picture of a run.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct RunPicture {
    /// `all`, or the ids of nodes whose bodies are left out, such as `each,retry`. By default none.
    fold: Option<String>,
    /// With `fold=all`: the ids of nodes whose bodies are shown all the same.
    open: Option<String>,
    /// The number of an event: the states are those before it. By default those of now.
    #[param(minimum = 0)]
    before: Option<u64>,
    /// The number of a part of a large picture, from 0: the rows of about 400 nodes, with at most 800 edges of them. A
    /// number that is too large stands for the last part. By default the whole picture.
    #[param(minimum = 0)]
    part: Option<u32>,
}

impl Folded {
    fn read(&self) -> Result<Fold, ApiError> {
        let is_long = |ids: &Option<String>| ids.as_ref().is_some_and(|ids| ids.len() > MAX_FOLDED_BYTES);
        if is_long(&self.fold) || is_long(&self.open) {
            return Err(ApiError::bad_request(format!("`fold` and `open` may have {MAX_FOLDED_BYTES} bytes each")));
        }
        let ids = |ids: &str| ids.split(',').filter(|id| !id.is_empty()).map(str::to_owned).collect();
        match (self.fold.as_deref(), self.open.as_deref()) {
            (None, None) => Ok(Fold::None),
            (Some("all"), open) => Ok(Fold::AllBut(ids(open.unwrap_or_default()))),
            (Some(closed), None) => Ok(Fold::Only(ids(closed))),
            (_, Some(_)) => Err(ApiError::bad_request("`open` needs `fold=all`")),
        }
    }
}

/// A flow to test, with its input.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FlowToTest {
    /// The name of a stored flow, or a whole flow.
    #[schema(value_type = serde_json::Value)]
    flow: Box<RawValue>,
    /// The version of a stored flow; by default the newest.
    version: Option<u32>,
    /// The texts of the files that a whole flow names, by their paths relative to it. They are not stored.
    #[serde(default)]
    files: BTreeMap<String, String>,
    /// The input; its members take precedence over the flow's defaults.
    #[serde(default)]
    #[schema(value_type = Object)]
    input: Data,
    /// The calls that get simulated replies: `services`, `http`, `model`, `tools`, `all`, or services by name. By default
    /// `services`.
    #[serde(default = "services")]
    simulate: Vec<String>,
}

fn services() -> Vec<String> {
    vec!["services".into()]
}

/// Lay out a flow: the places of its nodes and edges
///
/// The answer is that of `flowcell graph --format json`: `{ name, width, height, nodes, edges }` in pixels. The same flow
/// always has the same places. A flow with errors is refused with its diagnostics. A node with a body that is left out has
/// the number of nodes in it as `folded`. With `part`, the answer has `part`: `{ number, of, top, bottom, nodes,
/// hasBodies, edgesLeftOut }`.
#[utoipa::path(post, path = "/v1/graph", tag = "flows", operation_id = "lay_out_flow", params(Folded),
    request_body = FlowToRead,
    responses((status = 200, body = Object), (status = "default", body = ErrorBody)))]
pub(crate) async fn graph(
    request: Request,
    QueryParams(folded): QueryParams<Folded>,
    Body(asked): Body<FlowToRead>,
) -> Result<Response, ApiError> {
    let fold = folded.read()?;
    let part = folded.part.map(|part| part as usize);
    let flow = start::load_or_check_with(&request, &asked.flow, asked.version, asked.files).await?;
    let layout = request
        .computing(move |request| Ok(request.host.charged(|| places(flow.graph(), &fold, part, |_, _| None::<()>))));
    Ok(json_text(layout.await?))
}

/// Lay out the flow of a run, in the version that the run uses, with the states of its tasks
///
/// As `POST /v1/graph`. A node with tasks also has `states`, the numbers of its tasks by their states, `task`, the
/// address of its task if there is only one, and `passes`, the numbers of passes of its body by their states. If the tree of the run exceeds 16 MiB, `tasksLeftOut` counts the tasks that are
/// left out.
#[utoipa::path(get, path = "/v1/runs/{id}/graph", tag = "runs", operation_id = "lay_out_run",
    params(("id" = String, Path,), RunPicture),
    responses((status = 200, body = Object), (status = "default", body = ErrorBody)))]
pub(crate) async fn graph_of_run(
    request: Request,
    PathParam(id): PathParam<String>,
    QueryParams(RunPicture { fold, open, before, part }): QueryParams<RunPicture>,
) -> Result<Response, ApiError> {
    let (run, fold) = (parse_path_id(&id)?, Folded { fold, open, part }.read()?);
    let part = part.map(|part| part as usize);
    let layout = request.reading(move |request| {
        request.row(&run)?;
        let tree = Tree::before(&request.host, &run, before.unwrap_or(u64::MAX))?;
        let graph = request.host.graph_of_run(&run)?;
        let left_out = tree.left_out();
        let states = NodeStates::of(tree);
        let of_node = |owner: Option<&str>, id: &str| states.get(&(owner.map(str::to_owned), id.to_owned()));
        let text = places(&graph, &fold, part, of_node);
        Ok(match text.strip_prefix('{').filter(|_| left_out > 0) {
            Some(rest) => format!("{{\"tasksLeftOut\":{left_out},{rest}"),
            None => text,
        })
    });
    Ok(json_text(layout.await?))
}

fn json_text(text: String) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

/// Describe a flow without running it: its input, outputs, nodes, edges and grants
#[utoipa::path(post, path = "/v1/inspect", tag = "flows", operation_id = "inspect_flow", request_body = FlowToRead,
    responses((status = 200, body = Object), (status = "default", body = ErrorBody)))]
pub(crate) async fn inspect_route(request: Request, Body(asked): Body<FlowToRead>) -> Result<Json<Value>, ApiError> {
    inspect(&request, asked).await.map(Json)
}

/// Describes a flow's inputs, outputs, nodes and edges without running it.
pub(crate) async fn inspect(request: &Request, asked: FlowToRead) -> Result<Value, ApiError> {
    let flow = start::load_or_check_with(request, &asked.flow, asked.version, asked.files).await?;
    request.clone().computing(move |_| Ok(flow_description(&flow))).await
}

/// Run a flow as a test: no call leaves the host, timers fire at once, and nothing is stored
///
/// The calls that `simulate` selects get simulated replies, and every other call fails. The answer is the outcome:
/// `{ runId, status, outputs, error?, waiting? }`. A test that takes longer than 60 s gets 400.
#[utoipa::path(post, path = "/v1/test", tag = "flows", operation_id = "test_flow", request_body = FlowToTest,
    responses((status = 200, body = Object), (status = "default", body = ErrorBody)))]
pub(crate) async fn test_route(request: Request, Body(asked): Body<FlowToTest>) -> Result<Json<Value>, ApiError> {
    test(&request, asked).await.map(Json)
}

/// Runs a flow as a test. The calls that `simulate` selects get simulated replies, and every other call that would
/// leave the host fails. Timers fire at once, and nothing is stored.
///
/// Returns 400 if the test does not end within 60 s.
pub(crate) async fn test(request: &Request, asked: FlowToTest) -> Result<Value, ApiError> {
    let flow = start::load_or_check_with(request, &asked.flow, asked.version, asked.files).await?;
    let flow = flows::with_home(request, flow).await?;
    // A test ends with its request, so the permit for checks may be dropped with the request, too.
    let _turn = request.app.checks.take(request.tenant(), 1).await;
    let host = request.host.clone().simulating(Simulate::of(asked.simulate)).map_err(ApiError::bad_request)?;
    let options =
        RunOptions { run_id: Some(RUN_ID.into()), input: asked.input, without_events: true, ..RunOptions::default() };
    let script = Fixtures { most_bytes: Some(MAX_TEST_BYTES), ..Fixtures::default() };
    let runner = host.test_runner(&flow, Arc::new(script), options)?;
    runner.start_session();
    let ended = tokio::time::timeout(MAX_TEST_TIME, runner.run()).await;
    let late = |_| ApiError::bad_request(format!("the test does not end within {} s", MAX_TEST_TIME.as_secs()));
    Ok(shape::outcome(flow.graph(), &ended.map_err(late)?))
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

/// Returns the JSON Schema of a flow's input, with its defaults. Members with a default are optional.
pub(crate) fn input_schema(graph: &Graph) -> Map<String, Value> {
    let declared = graph.input_schema.as_ref().and_then(Value::as_object).cloned();
    let is_declared = declared.is_some();
    let mut schema = declared.unwrap_or_default();
    schema.insert("type".into(), "object".into());
    let Value::Object(defaults) = graph.input.to_serde() else { return schema };
    if !defaults.is_empty() {
        let properties = schema.entry("properties").or_insert_with(|| json!({}));
        for (name, value) in &defaults {
            if !is_declared || properties[name].is_object() {
                properties[name]["default"] = value.clone();
            }
        }
    }
    if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| !name.as_str().is_some_and(|name| defaults.contains_key(name)));
    }
    schema
}
