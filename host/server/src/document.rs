//! The OpenAPI document.

use std::sync::Arc;

use axum::{Json, extract::State};
use serde_json::Value;
use utoipa::{
    PartialSchema,
    openapi::{
        Components, Info, OpenApi, OpenApiBuilder,
        security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};

use crate::http::app::App;
use flowcell_platform::tree::Pass;

/// The document before its routes.
pub(super) fn head() -> OpenApi {
    let mut info = Info::new("Flowcell", "v1");
    info.description = Some("Runs flows whose every node is a sandboxed WebAssembly component.".into());
    let mut components = Components::new();
    // Tasks have passes, and passes have tasks: one of the two has to be named here.
    components.schemas.insert("Pass".into(), Pass::schema());
    let token = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    components.add_security_scheme("token", SecurityScheme::Http(token));
    OpenApiBuilder::new().info(info).components(Some(components)).build()
}

/// This document
#[utoipa::path(get, path = "/openapi.json", tag = "server", responses((status = 200, body = Object)))]
pub(super) async fn openapi(State(app): State<Arc<App>>) -> Json<Arc<Value>> {
    Json(app.document.get().cloned().unwrap_or_default())
}
