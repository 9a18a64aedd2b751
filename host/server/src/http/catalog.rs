//! Routes of the node types that flows may use.

use axum::Json;
use flowcell_contract::{Lookup, TypeRef};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::{
    api_error::{ApiError, ErrorBody},
    app::Request,
    intake::PathParam,
};
use flowcell_platform::shape;

/// The known node types.
#[derive(Serialize, ToSchema)]
pub(crate) struct Nodes {
    /// `{ type, version, title, description, input, config, output, traits, effect, capabilities }`
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
