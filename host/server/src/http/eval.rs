//! The routes that evaluate an expression and explain a flow. They run no node and store nothing.

use std::collections::BTreeMap;

use axum::Json;
use flowcell_contract::Json as Data;
use flowcell_flow::Diagnostic;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};
use utoipa::ToSchema;

use super::{
    api_error::{ApiError, ErrorBody},
    app::Request,
    identity::Scope,
    intake::{Body, parse_path_id},
    start,
};
use flowcell_platform::{EvalError, Evaluated, UnknownNode, shape};

/// Maximum size in bytes of the value of an expression as JSON text.
pub(crate) const MAX_EVAL_BYTES: u64 = 1 << 20;

/// An expression to evaluate.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Expression {
    /// A text with `{{ }}`, or an expression alone.
    expression: String,
    /// The name of a stored flow, or a whole flow, whose defaults `flow.input` has.
    #[schema(value_type = Option<serde_json::Value>)]
    flow: Option<Box<RawValue>>,
    /// The version of a stored flow; by default the newest.
    version: Option<u32>,
    /// The members of `flow.input`; they take precedence over the flow's defaults.
    #[schema(value_type = Option<Object>)]
    input: Option<Data>,
    /// The run whose values the expression reads. It needs the scope `run:read`.
    run_id: Option<String>,
    /// The address of a task of the run. Without it the expression reads the values of the outputs at the end of the run.
    task: Option<String>,
}

/// The value of an expression, or the reason why it has none.
#[derive(Serialize, ToSchema)]
pub(crate) struct Evaluation {
    /// The value. It is missing if there is an `error`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    value: Option<Data>,
    /// The moment of the run whose values the expression has read: `{ at, attempt?, status? }`, where `at` is `task`,
    /// `ended`, `end` or `start`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    moment: Option<Value>,
    /// The reason: `{ code, message }`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    error: Option<Value>,
    /// The diagnostics of the expression, as of `POST /v1/validate`.
    #[schema(value_type = Vec<Object>)]
    diagnostics: Vec<Value>,
}

/// A flow to explain.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Unexplained {
    /// The name of a stored flow, or a whole flow.
    #[schema(value_type = serde_json::Value)]
    flow: Box<RawValue>,
    /// The version of a stored flow; by default the newest.
    version: Option<u32>,
    /// The texts of the files that a whole flow names, by their paths relative to it. They are not stored.
    #[serde(default)]
    files: BTreeMap<String, String>,
    /// The id of the only node to explain.
    node: Option<String>,
}

/// Evaluate an expression, with an input or with the values of a run
///
/// With `runId` the token needs the scope `run:read`, too. No node runs and no call leaves the host. An expression that
/// cannot be evaluated is an answer with `error` and `diagnostics`.
#[utoipa::path(post, path = "/v1/eval", tag = "flows", request_body = Expression,
    responses((status = 200, body = Evaluation), (status = "default", body = ErrorBody)))]
pub(crate) async fn eval(request: Request, Body(body): Body<Expression>) -> Result<Json<Evaluation>, ApiError> {
    evaluate(request, body).await.map(Json)
}

/// Evaluates an expression. Returns 403 if it needs a run and the caller does not have the scope `run:read`.
pub(crate) async fn evaluate(request: Request, asked: Expression) -> Result<Evaluation, ApiError> {
    let Expression { expression, flow, version, input, run_id, task } = asked;
    let Some(run) = run_id else {
        if task.is_some() {
            return Err(ApiError::bad_request("`task` needs `runId`, the run of the task"));
        }
        if version.is_some() && flow.is_none() {
            return Err(ApiError::bad_request("`version` needs `flow`, the name of a stored flow"));
        }
        let flow = match &flow {
            Some(flow) => Some(start::load_or_check(&request, flow, version).await?),
            None => None,
        };
        let input = input.unwrap_or_default();
        let evaluated = request.computing(move |request| Ok(request.host.eval(flow.as_ref(), input, &expression)));
        return Evaluation::new(evaluated.await?);
    };
    if flow.is_some() || version.is_some() || input.is_some() {
        return Err(ApiError::bad_request(
            "with `runId` the flow and the input are those of the run; remove the others",
        ));
    }
    if !request.caller.scopes.has(Scope::RunRead) {
        return Err(ApiError::forbidden(Scope::RunRead));
    }
    let run = parse_path_id(&run)?;
    // The work needs a permit for checks, as the check of a flow does, and one for journals.
    let turn = request.app.checks.take(request.tenant(), 1).await;
    let evaluated = request.reading(move |request| {
        let _turn = turn;
        request.row(&run)?;
        Ok(request.host.eval_in_run(request.host.runs(), &run, task.as_deref(), &expression))
    });
    Evaluation::new(evaluated.await?)
}

impl Evaluation {
    /// Converts a result. Errors of the flow, the run and the request become errors of the request.
    fn new(result: Result<Evaluated, EvalError>) -> Result<Evaluation, ApiError> {
        let diagnostics = |found: &[Diagnostic]| found.iter().map(shape::finding).collect();
        let without_value = |code: &str, message: String, diagnostics| {
            let error = Some(json!({ "code": code, "message": message }));
            Ok(Evaluation { value: None, moment: None, error, diagnostics })
        };
        match result {
            Ok(Evaluated { value, moment, warnings }) => match value.measure(MAX_EVAL_BYTES) {
                Ok(_) => {
                    let moment = serde_json::to_value(&moment).map_err(ApiError::internal)?;
                    let diagnostics = diagnostics(&warnings);
                    Ok(Evaluation { value: Some(value), moment: Some(moment), error: None, diagnostics })
                }
                Err(misfit) => {
                    let message = format!("the value of the expression {misfit}; use a smaller part");
                    without_value(flowcell_contract::code::OUTPUT_TOO_LARGE, message, diagnostics(&warnings))
                }
            },
            Err(EvalError::Expression(found)) => {
                let message = found.first().map_or_else(String::new, |found| found.message.clone());
                without_value(flowcell_contract::code::BINDING_ERROR, message, diagnostics(&found))
            }
            Err(EvalError::Failed(failure)) => without_value(&failure.code, failure.message.to_string(), Vec::new()),
            Err(EvalError::Flow(found)) => Err(ApiError::invalid_flow(&found)),
            Err(error @ EvalError::NoTask(_)) => Err(ApiError::not_found("task_not_found", error)),
            Err(error @ (EvalError::NeedsRun(_) | EvalError::TooLong(_))) => Err(ApiError::bad_request(error)),
            Err(EvalError::Input(error)) => Err(flowcell_platform::StartError::from(error).into()),
            Err(EvalError::Run(error)) => Err(error.into()),
        }
    }
}

/// Explain when the nodes of a flow run, what they read and reach, and what they may cost
#[utoipa::path(post, path = "/v1/explain", tag = "flows", request_body = Unexplained,
    responses((status = 200, body = Object), (status = "default", body = ErrorBody)))]
pub(crate) async fn explain(request: Request, Body(body): Body<Unexplained>) -> Result<Json<Value>, ApiError> {
    explain_flow(request, body).await.map(Json)
}

/// Explains a flow or one of its nodes: `{ name, description?, flow?, outputs?, nodes, text }`, where `text` says the same
/// for people.
pub(crate) async fn explain_flow(request: Request, asked: Unexplained) -> Result<Value, ApiError> {
    let Unexplained { flow, version, files, node } = asked;
    let flow = start::load_or_check_with(&request, &flow, version, files).await?;
    let explained = request.computing(move |request| {
        request.host.charged(|| {
            let explanation = flow.explain(node.as_deref())?;
            let mut value = serde_json::to_value(&explanation).map_err(ApiError::internal)?;
            value["text"] = json!(explanation.to_string());
            Ok(value)
        })
    });
    explained.await
}

impl From<UnknownNode> for ApiError {
    fn from(error: UnknownNode) -> ApiError {
        let hint = error.similar.as_ref().map_or_else(String::new, |meant| format!("; did you mean `{meant}`?"));
        ApiError::not_found("node_not_found", format!("{error}{hint}"))
    }
}
