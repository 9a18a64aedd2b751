//! Built-in tools to write flows and to control runs. Most do the same as a route, and need the scope of that route.

use std::sync::Arc;

use flowcell_contract::{Json, RunId};
use flowcell_runtime::{QuestionRef, RunCommand};
use rmcp::{
    RoleServer,
    model::{CallToolResult, JsonObject, Tool, ToolAnnotations},
    service::RequestContext,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    arguments::{PREFIX, input_schema, parse},
    authoring_tools, call,
    calls::Calls,
    outcome, resources,
    schemas::{self, flow, flow_and_version, input, job, number, page, text},
};
use crate::http::{
    api_error::ApiError,
    app::{Request, finish_detached},
    authoring, catalog, eval, flows,
    identity::{Scope, Scopes},
    intake::{Body, PathParam, QueryParams, parse_path_id},
    jobs, library,
    page::After,
    runs, steer, tasks,
};
use flowcell_platform::{
    inputs::{PAGE_BYTES, Window},
    jobs::JobCommand,
};

/// A built-in tool.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Builtin {
    ListNodeTypes,
    DescribeNodeType,
    ValidateFlow,
    ListFlows,
    DescribeFlow,
    CreateFlow,
    RunFlow,
    TestFlow,
    InspectFlow,
    ListRuns,
    GetRun,
    GetTask,
    AnswerGate,
    CancelRun,
    CreateJob,
    ListJobs,
    GetJob,
    SteerJob,
    Eval,
    Explain,
    Functions,
    Graph,
}

use Builtin::{
    AnswerGate, CancelRun, CreateFlow, CreateJob, DescribeFlow, DescribeNodeType, Eval, Explain, Functions, GetJob,
    GetRun, GetTask, Graph, InspectFlow, ListFlows, ListJobs, ListNodeTypes, ListRuns, RunFlow, SteerJob, TestFlow,
    ValidateFlow,
};

/// All tools, each with its name without [`PREFIX`], the scope that it needs, and its description.
const ALL: [(Builtin, &str, Scope, &str); 22] = [
    (ListNodeTypes, "list_node_types", Scope::FlowRead, "Lists the node types of flows."),
    (
        DescribeNodeType,
        "describe_node_type",
        Scope::FlowRead,
        "Describes a node type: its schemas, examples, failures and capabilities.",
    ),
    (
        ValidateFlow,
        "validate_flow",
        Scope::FlowRead,
        "Checks a flow without running it, and returns all diagnostics: code, line, column, cause and fix.",
    ),
    (ListFlows, "list_flows", Scope::FlowRead, "Lists the flows, including those that cannot run."),
    (DescribeFlow, "describe_flow", Scope::FlowRead, "Shows the text of a flow and the schema of its input."),
    (CreateFlow, "create_flow", Scope::FlowWrite, "Stores a flow under its name, as its first or next version."),
    (RunFlow, "run_flow", Scope::RunCreate, "Runs a stored flow by name, or a whole flow, and returns its outputs."),
    (
        TestFlow,
        "test_flow",
        Scope::RunCreate,
        "Runs a flow with simulated services, and returns its outputs. No call leaves the host, and the run is not \
         stored.",
    ),
    (
        InspectFlow,
        "inspect_flow",
        Scope::FlowRead,
        "Shows the inputs, outputs, nodes, edges and grants of a flow without running it.",
    ),
    (ListRuns, "list_runs", Scope::RunRead, "Lists runs, newest first."),
    (
        GetRun,
        "get_run",
        Scope::RunRead,
        "Shows the status of a run, with its outputs, its error, or the gates that wait.",
    ),
    (
        GetTask,
        "get_task",
        Scope::RunRead,
        "Shows the calls and the input of a task in each attempt, and compares the input with its digest in the \
         journal.",
    ),
    (
        AnswerGate,
        "answer_gate",
        Scope::GateDecide,
        "Answers a gate of a parked run, and resumes the run until it ends or parks again.",
    ),
    (CancelRun, "cancel_run", Scope::RunControl, "Cancels a run."),
    (
        CreateJob,
        "create_job",
        Scope::RunRead,
        "Acts on all runs of a filter in the background, or with `preview` only names them, and for migrate those that \
         would not move. It needs the scope of the action, too.",
    ),
    (ListJobs, "list_jobs", Scope::RunRead, "Lists the jobs, the latest first."),
    (GetJob, "get_job", Scope::RunRead, "Shows the progress of a job."),
    (SteerJob, "steer_job", Scope::RunRead, "Pauses, resumes or cancels a job. It needs the scope of its action, too."),
    (
        Eval,
        "eval",
        Scope::FlowRead,
        "Computes an expression such as `{{ flow.input.n + 1 }}` with an input, or with the values that a task of a run \
         had. Runs nothing.",
    ),
    (
        Explain,
        "explain",
        Scope::FlowRead,
        "Explains a flow or one node: when it runs, the origin of its input, what it reaches, retries and may cost.",
    ),
    (
        Functions,
        "functions",
        Scope::FlowRead,
        "Lists the filters, tests and functions of expressions, or describes one.",
    ),
    (Graph, "graph", Scope::FlowRead, "Draws a flow as text, as Mermaid or Graphviz source, or as a picture."),
];

/// The name of a flow, and a version. Without a version, the newest one is meant.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    name: String,
    version: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfType {
    r#type: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OfRun {
    run_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OfTask {
    run_id: String,
    task: String,
    #[serde(default)]
    from: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Answer {
    run_id: String,
    gate: String,
    answer: Json,
    attempt: Option<u32>,
    digest: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfJob {
    job: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Steering {
    job: String,
    command: JobCommand,
}

/// Returns the tools that a token with these scopes may use.
pub(super) fn tools(scopes: Scopes) -> Vec<Tool> {
    let seen = ALL.iter().filter(|(_, _, scope, _)| scopes.has(*scope));
    seen.map(|(builtin, name, _, description)| {
        let tool = Tool::new(format!("{PREFIX}{name}"), *description, Arc::new(builtin.schema()));
        tool.with_annotations(builtin.annotations())
    })
    .collect()
}

impl Builtin {
    /// Returns the tool with this name, which has no [`PREFIX`]. Returns `None` for an unknown name.
    pub(super) fn named(name: &str) -> Option<Builtin> {
        ALL.iter().find(|(_, known, ..)| *known == name).map(|(builtin, ..)| *builtin)
    }

    fn scope(self) -> Scope {
        ALL.iter().find(|(builtin, ..)| *builtin == self).map_or(Scope::Admin, |(_, _, scope, _)| *scope)
    }

    fn annotations(self) -> ToolAnnotations {
        let changes = matches!(self, CreateFlow | RunFlow | AnswerGate | CancelRun | CreateJob | SteerJob);
        let destructive = matches!(self, CancelRun | CreateJob);
        ToolAnnotations::new().read_only(!changes).destructive(destructive).open_world(self == RunFlow)
    }

    /// Returns the JSON Schema of the tool's arguments.
    fn schema(self) -> JsonObject {
        let (properties, required) = self.members();
        let schema = [
            ("type", json!("object")),
            ("properties", properties),
            ("required", json!(required)),
            ("additionalProperties", json!(false)),
        ];
        schema.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// Returns the properties of the arguments, and the names of the required ones.
    fn members(self) -> (Value, &'static [&'static str]) {
        let run = || text("The id of the run");
        match self {
            ListNodeTypes => (json!({}), &[]),
            ListFlows => (json!({ "cursor": text("The `next` of the previous page") }), &[]),
            DescribeNodeType => (
                json!({ "type": text("The node type, such as control.if, or with a version acme.greet@1.2") }),
                &["type"],
            ),
            ValidateFlow | CreateFlow => (
                json!({ "flow": flow("A whole flow: an object, or its text. A script is { name, script }") }),
                &["flow"],
            ),
            DescribeFlow => {
                (json!({ "name": text("The name of the flow"), "version": number("The newest by default") }), &["name"])
            }
            RunFlow => {
                let (flow, version) = flow_and_version();
                (json!({ "flow": flow, "version": version, "input": input() }), &["flow"])
            }
            TestFlow => {
                let names = "The calls to simulate: services, http, model, tools, all, or services by name, such as \
                             img and agent; by default services";
                let simulate = json!({ "type": "array", "items": { "type": "string" }, "description": names });
                let (flow, version) = flow_and_version();
                (json!({ "flow": flow, "version": version, "input": input(), "simulate": simulate }), &["flow"])
            }
            InspectFlow => {
                let (flow, version) = flow_and_version();
                (json!({ "flow": flow, "version": version }), &["flow"])
            }
            ListRuns => (page(), &[]),
            GetRun | CancelRun => (json!({ "runId": run() }), &["runId"]),
            CreateJob => (job(), &["action", "filter"]),
            ListJobs => (json!({}), &[]),
            GetJob => (json!({ "job": text("The id of the job") }), &["job"]),
            SteerJob => {
                let command = json!({ "type": "string", "enum": ["pause", "resume", "cancel"] });
                (json!({ "job": text("The id of the job"), "command": command }), &["job", "command"])
            }
            Eval => (schemas::eval(), &["expression"]),
            Explain => {
                let (flow, version) = flow_and_version();
                (
                    json!({ "flow": flow, "version": version, "node": text("The id of the only node to explain") }),
                    &["flow"],
                )
            }
            Functions => (json!({ "name": text("The only function to describe, such as round") }), &[]),
            Graph => (schemas::graph(), &["flow"]),
            GetTask => {
                let task = text("The address: pay, process[3].pay, or review/pay in a run that the task review called");
                let from = json!({ "type": "integer", "minimum": 0, "description": "The `next` of the previous page" });
                (json!({ "runId": run(), "task": task, "from": from }), &["runId", "task"])
            }
            AnswerGate => {
                let gate = text("The address of the gate, as in the status of the run");
                let answer = text("One of the choices, or a text if the gate allows it");
                let attempt = json!({ "type": "integer", "minimum": 1,
                    "description": "The attempt of the answered question; a question of another attempt stays open" });
                let digest = text("The digest of the answered question; a question with another digest stays open");
                let properties =
                    json!({ "runId": run(), "gate": gate, "answer": answer, "attempt": attempt, "digest": digest });
                (properties, &["runId", "gate", "answer"])
            }
        }
    }

    /// Calls the tool. Returns 403 if the caller does not have its scope.
    pub(super) async fn call(
        self,
        request: Request,
        arguments: Value,
        context: &RequestContext<RoleServer>,
        calls: &Calls,
    ) -> Result<CallToolResult, ApiError> {
        if !request.caller.scopes.has(self.scope()) {
            return Err(ApiError::forbidden(self.scope()));
        }
        match self {
            RunFlow => call::start(&request, parse(arguments)?, context, calls).await,
            Graph => authoring_tools::draw(request, parse(arguments)?).await,
            AnswerGate => {
                let Answer { run_id, gate, answer, attempt, digest } = parse(arguments)?;
                let question = QuestionRef { attempt, digest: digest.map(Into::into) };
                call::answer_gate(&request, parse_path_id(&run_id)?, RunCommand::reply(gate, answer, question), context)
                    .await
            }
            _ => self.call_directly(request, arguments).await.map(outcome::of_value),
        }
    }

    /// Calls one of the tools that do not wait for a run.
    async fn call_directly(self, request: Request, arguments: Value) -> Result<Value, ApiError> {
        match self {
            ListNodeTypes => parse::<Nothing>(arguments).map(|_| node_types(&request)),
            DescribeNodeType => node_type(request, parse(arguments)?).await,
            ValidateFlow => to_json(flows::validate(request, Body(parse(arguments)?)).await?.0),
            ListFlows => {
                let After { cursor } = parse(arguments)?;
                to_json(request.blocking(move |request| library::list_page(request, cursor.as_deref())).await?)
            }
            DescribeFlow => describe(request, parse(arguments)?).await,
            TestFlow => authoring::test(&request, parse(arguments)?).await,
            InspectFlow => authoring::inspect(&request, parse(arguments)?).await,
            Eval => to_json(eval::evaluate(request, parse(arguments)?).await?),
            Explain => eval::explain_flow(request, parse(arguments)?).await,
            Functions => authoring_tools::functions(&parse(arguments)?),
            CreateFlow => {
                let flow = parse(arguments)?;
                let keep = async move {
                    let kept = library::store_flow(request.clone(), flow).await?;
                    request.write_audit_entry("flowcell_create_flow", kept.api_path()).await?;
                    to_json(kept)
                };
                finish_detached(keep).await
            }
            ListRuns => to_json(runs::list(request, QueryParams(parse(arguments)?)).await?.0),
            GetRun => show(request, parse_path_id(&parse::<OfRun>(arguments)?.run_id)?).await,
            GetTask => {
                let OfTask { run_id, task, from } = parse(arguments)?;
                let limit = tasks::DEFAULT_PAGE_ATTEMPTS;
                let window = Window { from, limit, end: u64::MAX, whole_call: None, bytes: PAGE_BYTES };
                to_json(tasks::read_inputs(request, parse_path_id(&run_id)?, task, window).await?)
            }
            CancelRun => {
                let run = parse_path_id(&parse::<OfRun>(arguments)?.run_id)?;
                steer::send_command(&request, &run, RunCommand::Cancel).await?;
                Ok(json!({ "runId": run.as_str(), "accepted": true }))
            }
            CreateJob => create_job(request, arguments).await,
            ListJobs => {
                parse::<Nothing>(arguments)?;
                to_json(jobs::list(request).await?.0)
            }
            GetJob => to_json(jobs::read(&request, &parse::<OfJob>(arguments)?.job).await?),
            SteerJob => {
                let Steering { job, command } = parse(arguments)?;
                to_json(jobs::steer(request, job, command).await?.0)
            }
            RunFlow | AnswerGate | Graph => {
                Err(ApiError::internal("the server called a tool that makes its own result without it"))
            }
        }
    }
}

/// Creates a job, or returns its preview.
async fn create_job(request: Request, mut arguments: Value) -> Result<Value, ApiError> {
    let preview = arguments.as_object_mut().and_then(|members| members.remove("preview"));
    let is_preview = preview.map_or(Ok(false), |preview| {
        preview.as_bool().ok_or_else(|| ApiError::bad_request("`preview` must be true or false"))
    })?;
    let job = parse(arguments)?;
    match is_preview {
        true => to_json(jobs::preview_job(request, job).await?),
        false => to_json(jobs::create_job(request, job, None).await?),
    }
}

fn to_json(value: impl Serialize) -> Result<Value, ApiError> {
    serde_json::to_value(value).map_err(ApiError::internal)
}

fn node_types(request: &Request) -> Value {
    let types = request.host.catalog();
    let nodes: Vec<_> = types
        .types()
        .map(|node| json!({ "type": node.name, "title": node.title, "description": node.description }))
        .collect();
    json!({ "nodes": nodes })
}

async fn node_type(request: Request, asked: OfType) -> Result<Value, ApiError> {
    match resources::node_type(&request.host, &asked.r#type) {
        Some(node) => Ok(node),
        // The route returns the error for an unknown type.
        None => Ok(catalog::show(request, PathParam(asked.r#type)).await?.0),
    }
}

/// Returns a flow with its text. If the flow can run, adds its description and the schema of its input.
async fn describe(request: Request, asked: Named) -> Result<Value, ApiError> {
    let Named { name, version } = asked;
    request
        .checking(move |flows, host| {
            let stored = flows.get(&name, version)?;
            let loaded = flows.load(host, &name, Some(stored.version));
            let mut flow = json!({ "name": stored.name, "version": stored.version, "text": stored.text });
            if let Ok(loaded) = loaded {
                flow["description"] = json!(loaded.graph().description);
                flow["inputSchema"] = Value::Object(input_schema(loaded.graph()));
            }
            Ok(flow)
        })
        .await
}

/// Returns the state of a run. If the run has not ended, adds its open waits.
async fn show(request: Request, run: RunId) -> Result<Value, ApiError> {
    let mut view = to_json(runs::view(request.clone(), run.clone()).await?)?;
    if ["parked", "needs_attention", "running"].iter().any(|status| view["status"] == *status) {
        view["waiting"] = request.reading(move |request| request.waiting(&run)).await?.into();
    }
    Ok(view)
}
