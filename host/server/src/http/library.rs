//! Routes of the tenant's flows and their versions.

use std::collections::BTreeMap;

use axum::{
    Json,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use flowcell_runtime::paging::Filling;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{
    api_error::{ApiError, ErrorBody},
    app::Request,
    flows::source,
    intake::{Body, PathParam, QueryParams},
    page::{self, After, BY_BYTES},
};
use flowcell_platform::{
    FlowEntry, FlowLibrary, FlowSource, Host, LibraryError, LoadedFlow, StoredFlow, posted::PostedVersion,
};

/// A flow in a list.
#[derive(Serialize, ToSchema)]
struct FlowRow {
    name: String,
    /// The newest version.
    version: u32,
    /// The description in the flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// Where the flow is stored: `folder` of this process, or the shared `store`.
    source: FlowSource,
    /// The newest version of the posted flow that the folder's flow hides.
    #[serde(rename = "hides", skip_serializing_if = "Option::is_none")]
    hidden_version: Option<u32>,
}

impl From<FlowEntry> for FlowRow {
    fn from(entry: FlowEntry) -> FlowRow {
        let FlowEntry { name, version, description, source, hidden_version } = entry;
        FlowRow { name, version, description, source, hidden_version }
    }
}

/// A page of the tenant's flows.
#[derive(Serialize, ToSchema)]
pub(crate) struct FlowList {
    /// The flows by name, at most 16 MiB.
    flows: Vec<FlowRow>,
    /// The `cursor` of the next page; the last page has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// A version of a flow.
#[derive(Serialize, ToSchema)]
pub(crate) struct FlowView {
    name: String,
    /// The number of the version.
    version: u32,
    /// The text of the flow.
    text: String,
    /// Where the flow is stored: `folder` of this process, or the shared `store`.
    source: FlowSource,
    /// The digest of a posted version: the SHA-256 of its text and the files beside it.
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
}

impl FlowView {
    /// Returns the path of the flow in the API.
    pub(crate) fn api_path(&self) -> String {
        format!("/v1/flows/{}", self.name)
    }
}

impl From<StoredFlow> for FlowView {
    fn from(flow: StoredFlow) -> FlowView {
        let source = flow.source();
        let digest = flow.posted.map(|posted| posted.digest);
        FlowView { name: flow.name, version: flow.version, text: flow.text, source, digest }
    }
}

/// The versions of a flow.
#[derive(Serialize, ToSchema)]
pub(crate) struct Versions {
    name: String,
    /// The versions in order.
    versions: Vec<u32>,
    /// The same versions with their digests, times and authors. A flow in a folder has none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    history: Vec<PostedVersion>,
}

/// A flow to store.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewFlow {
    /// A whole flow with a name: an object, or its text in YAML or JSON. A script is `{ "name", "script" }`.
    #[schema(value_type = Object)]
    flow: Box<RawValue>,
    /// The texts of the files that the flow names, by their paths relative to it. Only with a shared store.
    #[serde(default)]
    files: BTreeMap<String, String>,
    /// The newest version that the caller knows; 0 for a flow that does not exist yet. If another version is the newest one,
    /// and has another text, the server answers 409 `version_conflict`.
    #[serde(rename = "ifVersion")]
    if_version: Option<u32>,
}

/// Loads a version of one of the tenant's flows, by default the newest. A flow that was checked before is not checked
/// again.
pub(crate) async fn load(request: Request, name: String, version: Option<u32>) -> Result<LoadedFlow, ApiError> {
    if version.is_none() {
        let (flows, host, of) = (request.flows(), request.host.clone(), name.clone());
        let known = match flows.is_shared() {
            // The store may be remote.
            true => request.clone().blocking(move |_| Ok(flows.checked_before(&host, &of)?)).await?,
            false => flows.checked_before(&host, &of)?,
        };
        if let Some(flow) = known {
            return Ok(flow);
        }
    }
    request.checking(move |flows, host| flows.load(host, &name, version).map(|flow| host.with_home(flow))).await
}

/// List the flows
#[utoipa::path(get, path = "/v1/flows", tag = "flows", params(After),
    responses((status = 200, body = FlowList), (status = "default", body = ErrorBody)))]
pub(crate) async fn list(
    request: Request,
    QueryParams(After { cursor }): QueryParams<After>,
) -> Result<Response, ApiError> {
    page::respond_with_page(request, move |request| list_page(request, cursor.as_deref())).await
}

/// Returns a page of the flows, sorted by name. The page begins with the first name after `after`, or with the first
/// flow for `None`.
pub(crate) fn list_page(request: &Request, after: Option<&str>) -> Result<FlowList, ApiError> {
    let mut filling = Filling::new(BY_BYTES);
    let (entries, more) = request.flows().page(after, |entry| filling.take(page::json_size(entry)))?;
    let next = entries.last().filter(|_| more).map(|entry| entry.name.clone());
    Ok(FlowList { flows: entries.into_iter().map(FlowRow::from).collect(), next })
}

/// Store a flow under its name, as its first or newest version
#[utoipa::path(post, path = "/v1/flows", tag = "flows", request_body = NewFlow,
    responses((status = 201, body = FlowView, headers(("location" = String))), (status = "default", body = ErrorBody)))]
pub(crate) async fn create(request: Request, Body(body): Body<NewFlow>) -> Result<Response, ApiError> {
    let flow = store_flow(request, body).await?;
    Ok((StatusCode::CREATED, [(header::LOCATION, flow.api_path())], Json(flow)).into_response())
}

/// Stores a flow under the name in its text: as the first version, or as the newest one.
pub(crate) async fn store_flow(request: Request, body: NewFlow) -> Result<FlowView, ApiError> {
    let text = source(&body.flow)?.text;
    let (app, tenant) = (request.app.clone(), request.tenant().clone());
    let NewFlow { files, if_version, .. } = body;
    let kept = request.checking(move |flows, host| match flows.post_after(host, &text, files, if_version) {
        // The invalid name is in the text, not in the path, so this is 422.
        Err(error @ LibraryError::BadName(_)) => Ok(Err(error.to_string())),
        created => created.map(Ok),
    });
    let kept = kept.await?.map_err(|why| ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_name", why))?;
    app.triggers.refresh(&tenant).await?;
    app.triggers.changed();
    Ok(FlowView::from(kept))
}

/// Show the newest version of a flow
#[utoipa::path(get, path = "/v1/flows/{name}", tag = "flows", params(("name" = String, Path,)),
    responses((status = 200, body = FlowView), (status = "default", body = ErrorBody)))]
pub(crate) async fn show(request: Request, PathParam(name): PathParam<String>) -> Result<Json<FlowView>, ApiError> {
    let flow = request.library(move |flows, _| flows.get(&name, None)).await?;
    Ok(Json(flow.into()))
}

/// Remove all versions of a flow; its runs continue
#[utoipa::path(delete, path = "/v1/flows/{name}", tag = "flows", params(("name" = String, Path,)),
    responses((status = 204, description = "removed"), (status = "default", body = ErrorBody)))]
pub(crate) async fn delete(request: Request, PathParam(name): PathParam<String>) -> Result<StatusCode, ApiError> {
    let (app, tenant) = (request.app.clone(), request.tenant().clone());
    request.library(move |flows, _| flows.delete(&name)).await?;
    app.triggers.refresh(&tenant).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// List the versions of a flow
#[utoipa::path(get, path = "/v1/flows/{name}/versions", tag = "flows", params(("name" = String, Path,)),
    responses((status = 200, body = Versions), (status = "default", body = ErrorBody)))]
pub(crate) async fn versions(request: Request, PathParam(name): PathParam<String>) -> Result<Json<Versions>, ApiError> {
    let of = name.clone();
    let read = move |flows: &FlowLibrary, _: &Host| Ok((flows.versions(&of)?, flows.history(&of)?));
    let (versions, history) = request.library(read).await?;
    Ok(Json(Versions { name, versions, history }))
}

/// Show a version of a flow
#[utoipa::path(get, path = "/v1/flows/{name}/versions/{version}", tag = "flows",
    params(("name" = String, Path,), ("version" = u32, Path,)),
    responses((status = 200, body = FlowView), (status = "default", body = ErrorBody)))]
pub(crate) async fn version(
    request: Request,
    PathParam((name, version)): PathParam<(String, u32)>,
) -> Result<Json<FlowView>, ApiError> {
    let flow = request.library(move |flows, _| flows.get(&name, Some(version))).await?;
    Ok(Json(flow.into()))
}
