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

/// Returns the document without its routes: title, security scheme, and one recursive schema.
pub(super) fn head() -> OpenApi {
    let mut info = Info::new("Flowcell", "v1");
    info.description = Some("Runs flows. Each node is a sandboxed WebAssembly component.".into());
    let mut components = Components::new();
    // Tasks contain passes, and passes contain tasks. One of the two schemas must be registered by hand.
    components.schemas.insert("Pass".into(), Pass::schema());
    let token = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    components.add_security_scheme("token", SecurityScheme::Http(token));
    OpenApiBuilder::new().info(info).components(Some(components)).build()
}

/// Show this document
#[utoipa::path(get, path = "/openapi.json", tag = "server", responses((status = 200, body = Object)))]
pub(super) async fn openapi(State(app): State<Arc<App>>) -> Json<Arc<Value>> {
    Json(app.document.get().cloned().unwrap_or_default())
}
