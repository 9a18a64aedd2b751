//! Routes that only the pages of this process ask, see [`Api`](crate::api::Api): drawings of flows and runs, and the
//! descriptions of flows. They need the scopes that the page needs, and take the same permits as other requests.

use std::sync::Arc;

use axum::{
    Json,
    http::header,
    response::{IntoResponse, Response},
    routing::{MethodRouter, get, post},
};
use flowcell_flow::{
    draw::{Format, draw},
    graph::Graph,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    http::{
        api_error::ApiError,
        app::{App, Request},
        identity::Scope,
        intake::{Body, PathParam, parse_path_id},
        library,
    },
    http::authoring::input_schema,
};

/// The routes, with the scope that each needs.
pub(crate) fn routes() -> [(Scope, &'static str, MethodRouter<Arc<App>>); 3] {
    [
        (Scope::FlowRead, "/pages/graph", post(draw_flow)),
        (Scope::FlowRead, "/pages/inspect", post(inspect)),
        (Scope::RunRead, "/pages/runs/{id}/graph", get(draw_run)),
    ]
}

/// A stored flow.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    flow: String,
    version: Option<u32>,
}

/// Places the nodes and edges of a flow.
async fn draw_flow(request: Request, Body(Named { flow, version }): Body<Named>) -> Result<Response, ApiError> {
    let flow = library::load(request.clone(), flow, version).await?;
    let drawing = request.computing(move |request| Ok(request.host.charged(|| drawn(flow.graph()))));
    Ok(json_text(drawing.await?))
}

/// Places the nodes and edges of a run's flow, in the version that the run uses.
async fn draw_run(request: Request, PathParam(id): PathParam<String>) -> Result<Response, ApiError> {
    let id = parse_path_id(&id)?;
    let drawing = request.reading(move |request| {
        request.row(&id)?;
        Ok(drawn(&*request.host.graph_of_run(&id)?))
    });
    Ok(json_text(drawing.await?))
}

/// Describes the input of a flow.
async fn inspect(request: Request, Body(Named { flow, version }): Body<Named>) -> Result<Json<Value>, ApiError> {
    let flow = library::load(request, flow, version).await?;
    let graph = flow.graph();
    Ok(Json(json!({ "description": graph.description, "inputSchema": input_schema(graph) })))
}

fn drawn(graph: &Graph) -> String {
    draw(graph, Format::Json)
}

fn json_text(text: String) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}
