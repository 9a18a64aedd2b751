//! Routes for the state and the version of the server.

use std::sync::Arc;

use axum::{Json, extract::State};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    app::App,
    fault::{Fault, FaultBody},
};

/// How the server is.
#[derive(Serialize, ToSchema)]
pub(crate) struct Health {
    /// `ok`.
    status: &'static str,
}

/// What the server is.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Version {
    /// The version of Flowcell.
    flowcell: &'static str,
    /// What runs the components.
    engine: &'static str,
    /// The version of this interface.
    api: &'static str,
}

/// Whether the process lives
#[utoipa::path(get, path = "/healthz", tag = "server", responses((status = 200, body = Health)))]
pub(crate) async fn healthz() -> Json<Health> {
    Json(Health { status: "ok" })
}

/// Whether new runs are taken: 503 while the server stops
#[utoipa::path(get, path = "/readyz", tag = "server", responses((status = 200, body = Health), (status = 503, body = FaultBody)))]
pub(crate) async fn readyz(State(app): State<Arc<App>>) -> Result<Json<Health>, Fault> {
    if app.is_draining() { Err(Fault::draining()) } else { Ok(Json(Health { status: "ok" })) }
}

/// Versions of Flowcell, of its engine and of this interface
#[utoipa::path(get, path = "/version", tag = "server", responses((status = 200, body = Version)))]
pub(crate) async fn version() -> Json<Version> {
    Json(Version { flowcell: env!("CARGO_PKG_VERSION"), engine: flowcell_engine::RUNTIME, api: "v1" })
}
