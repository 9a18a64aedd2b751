//! The route that checks a flow, and helpers for flows that a request names or contains.

use std::collections::BTreeMap;

use axum::{Json, http::StatusCode};
use flowcell_flow::Source;
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use utoipa::ToSchema;

use super::{
    api_error::{ApiError, ErrorBody},
    app::Request,
    identity::Scope,
    intake::Body,
};
use flowcell_platform::{
    CheckedFlow, LoadedFlow,
    host::folder::{Folder, is_flow_name},
    shape,
};

/// A flow to check.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Unchecked {
    /// A whole flow: an object, or its text in YAML or JSON. A script is `{ "name", "script" }`.
    #[schema(value_type = serde_json::Value)]
    flow: Box<RawValue>,
    /// The texts of the files that the flow names, by their paths relative to it. They are not stored.
    #[serde(default)]
    files: BTreeMap<String, String>,
}

/// The result of checking a flow.
#[derive(Serialize, ToSchema)]
pub(crate) struct Checked {
    /// Whether the flow can run.
    valid: bool,
    /// All diagnostics: `{ code, severity, line, column, message, help, len, excerpt, fix? }`. `fix` is an edit,
    /// `{ line, column, len, text }`.
    #[schema(value_type = Vec<Object>)]
    diagnostics: Vec<Value>,
}

/// Check a flow without running it
#[utoipa::path(post, path = "/v1/validate", tag = "flows", request_body = Unchecked,
    responses((status = 200, body = Checked), (status = "default", body = ErrorBody)))]
pub(crate) async fn validate(request: Request, Body(body): Body<Unchecked>) -> Result<Json<Checked>, ApiError> {
    let checked = check(&request, source(&body.flow)?, body.files).await?;
    let diagnostics = checked.diagnostics.iter().map(shape::finding).collect();
    Ok(Json(Checked { valid: checked.flow.is_some(), diagnostics }))
}

/// Returns the source text of a flow in a body: the JSON object itself, or the text in a JSON string.
pub(crate) fn source(flow: &RawValue) -> Result<Source, ApiError> {
    let text = flow.get();
    if text.starts_with('{') {
        return Ok(Source { name: "flow.json".into(), text: text.to_owned() });
    }
    match serde_json::from_str::<String>(text) {
        Ok(text) => Ok(Source { name: "flow.yaml".into(), text }),
        Err(_) => Err(ApiError::bad_request("`flow` must be an object or a text")),
    }
}

/// Returns the name of a stored flow, if the value is a string with a valid name. Returns `None` for any other value,
/// which is then a whole flow.
pub(crate) fn stored_flow_name(flow: &RawValue) -> Option<String> {
    let text = serde_json::from_str::<String>(flow.get()).ok()?;
    is_flow_name(&text).then_some(text)
}

/// Returns the surroundings of a flow from a request, which reads the files of that request. The flow cannot refer to
/// files of the server. It may call the flows of the tenant's library if the caller may read them.
pub(crate) fn surroundings(request: &Request, files: BTreeMap<String, String>) -> Result<Folder, ApiError> {
    let folder = match request.caller.scopes.has(Scope::FlowRead) {
        true => Folder::nowhere_beside(request.app.flows_of(request.tenant())),
        false => Folder::nowhere(),
    };
    let refused = |why| ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_file", why);
    folder.with_files(files).map_err(refused)
}

/// Checks a flow from a request. `files` are the files beside it, by their paths.
pub(crate) async fn check(
    request: &Request,
    source: Source,
    files: BTreeMap<String, String>,
) -> Result<CheckedFlow, ApiError> {
    let folder = surroundings(request, files)?;
    if let Some(known) = request.host.checked_before(&source, &folder) {
        return Ok(known);
    }
    request.clone().computing(move |request| Ok(request.host.check_alone(&source, folder))).await
}

/// Pins the flows that a flow can call, before a run of it begins. They are read on a thread that may block.
pub(crate) async fn with_home(request: &Request, flow: LoadedFlow) -> Result<LoadedFlow, ApiError> {
    match flow.needs_home() {
        true => request.clone().computing(move |request| Ok(request.host.with_home(flow))).await,
        false => Ok(flow),
    }
}
