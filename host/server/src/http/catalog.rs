//! Routes of the node types that flows may use.

use axum::Json;
use flowcell_contract::{Lookup, TypeRef};
use flowcell_flow::graph::Node;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::{
    api_error::{ApiError, ErrorBody},
    app::Request,
    intake::{PathParam, QueryParams},
    library,
    page::After,
};
use flowcell_platform::shape;

/// The known node types.
#[derive(Serialize, ToSchema)]
pub(crate) struct Nodes {
    /// `{ type, version, title, description, input, config, output, traits, effect, capabilities, about? }`. `about`
    /// has what the manifest of the pack tells people: `icon`, `categories`, `keywords`, `docs`, `homepage`,
    /// `repository` and `deprecated`, as far as they are set.
    #[schema(value_type = Vec<Object>)]
    nodes: Vec<Value>,
}

/// List the node types
#[utoipa::path(get, path = "/v1/nodes", tag = "flows",
    responses((status = 200, body = Nodes), (status = "default", body = ErrorBody)))]
pub(crate) async fn list(request: Request) -> Json<Nodes> {
    let nodes = request.host.catalog().types().map(|node| shape::node_type(node)).collect();
    Json(Nodes { nodes })
}

/// Describe a node type, such as `control.if`, or with a version `acme.greet@1.2`
#[utoipa::path(get, path = "/v1/nodes/{type}", tag = "flows", params(("type" = String, Path,)),
    responses((status = 200, body = Object), (status = "default", body = ErrorBody)))]
pub(crate) async fn show(request: Request, PathParam(wanted): PathParam<String>) -> Result<Json<Value>, ApiError> {
    let missing = |why: String| ApiError::not_found("node_type_not_found", why);
    match request.host.catalog().lookup(&TypeRef::parse(&wanted)) {
        Lookup::Found(node) => Ok(Json(shape::node_type(&node))),
        Lookup::OtherVersions(versions) => {
            let versions: Vec<_> = versions.iter().map(ToString::to_string).collect();
            Err(missing(format!("unknown version `{wanted}`")).with_details(json!({ "versions": versions })))
        }
        Lookup::Unknown => Err(missing(format!("unknown node type `{wanted}`"))),
    }
}

/// The maximum number of flows that one request for the users of a node type looks at.
pub(crate) const MAX_LOOKED_AT: usize = 50;
/// The maximum number of nodes of each flow in such an answer.
const MAX_NODES_OF_FLOW: usize = 20;

/// The flows that use a node type.
#[derive(Serialize, ToSchema)]
pub(crate) struct UsingFlows {
    /// `{ flow, version, nodes: [{ id, grants }] }`, by name: the newest versions that use the type. `grants` has the rights
    /// of the node. Of more than 20 nodes in a flow, `nodesLeftOut` counts the others.
    #[schema(value_type = Vec<Object>)]
    flows: Vec<Value>,
    /// `{ flow, message }`: the flows that cannot be read, with the reason.
    #[schema(value_type = Vec<Object>)]
    unread: Vec<Value>,
    /// The `cursor` of the next page; the last page has none. A page looks at 50 flows, so it may be empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// List the flows that use a node type, with their grants
#[utoipa::path(get, path = "/v1/nodes/{type}/flows", tag = "flows", operation_id = "list_flows_of_type",
    params(("type" = String, Path,), After),
    responses((status = 200, body = UsingFlows), (status = "default", body = ErrorBody)))]
pub(crate) async fn flows(
    request: Request,
    PathParam(wanted): PathParam<String>,
    QueryParams(After { cursor }): QueryParams<After>,
) -> Result<Json<UsingFlows>, ApiError> {
    let wanted = TypeRef::parse(&wanted);
    let Lookup::Found(known) = request.host.catalog().lookup(&wanted) else {
        return Err(ApiError::not_found("node_type_not_found", format!("unknown node type `{}`", wanted.name)));
    };
    let names = request.clone().library(move |flows, _| {
        let mut taken = 0..MAX_LOOKED_AT;
        let (entries, more) = flows.page(cursor.as_deref(), |_| taken.next().is_some())?;
        Ok((entries.into_iter().map(|entry| (entry.name, entry.version)).collect::<Vec<_>>(), more))
    });
    let (names, more) = names.await?;
    let next = names.last().filter(|_| more).map(|(name, _)| name.clone());
    let (mut flows, mut unread) = (Vec::new(), Vec::new());
    for (name, version) in names {
        let flow = match library::load(request.clone(), name.clone(), None).await {
            Ok(flow) => flow,
            Err(error) => {
                unread.push(json!({ "flow": name, "message": error.into_parts().2 }));
                continue;
            }
        };
        let is_wanted = |node: &&Node| {
            let found = &node.node_type;
            found.name == known.name && (wanted.version.is_none() || found.version == known.version)
        };
        let nodes: Vec<_> = flow.graph().nodes.iter().filter(is_wanted).collect();
        if !nodes.is_empty() {
            let left_out = nodes.len().saturating_sub(MAX_NODES_OF_FLOW);
            let shown = nodes.iter().take(MAX_NODES_OF_FLOW);
            let shown: Vec<_> = shown.map(|node| json!({ "id": node.id, "grants": node.grants })).collect();
            let mut row = json!({ "flow": name, "version": version, "nodes": shown });
            if left_out > 0 {
                row["nodesLeftOut"] = left_out.into();
            }
            flows.push(row);
        }
    }
    Ok(Json(UsingFlows { flows, unread, next }))
}
