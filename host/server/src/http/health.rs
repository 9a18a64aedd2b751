//! Routes for the state and the version of the server.

use std::sync::Arc;

use axum::{Json, extract::State};
use flowcell_platform::QuotaError;
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    api_error::{ApiError, ErrorBody},
    app::App,
};

/// The health of the server.
#[derive(Serialize, ToSchema)]
pub(crate) struct Health {
    /// Always `ok`.
    status: &'static str,
}

/// The versions of the server.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Version {
    /// The version of Flowcell.
    flowcell: &'static str,
    /// The engine that runs the components, with its version.
    engine: &'static str,
    /// The version of this interface.
    api: &'static str,
}

/// Check that the process runs
#[utoipa::path(get, path = "/healthz", tag = "server", responses((status = 200, body = Health)))]
pub(crate) async fn healthz() -> Json<Health> {
    Json(Health { status: "ok" })
}

/// Check that the server accepts new runs: 503 while it stops, and while its store is unreachable or nearly full
#[utoipa::path(get, path = "/readyz", tag = "server", responses((status = 200, body = Health), (status = 503, body = ErrorBody)))]
pub(crate) async fn readyz(State(app): State<Arc<App>>) -> Result<Json<Health>, ApiError> {
    if app.is_unready() {
        return Err(ApiError::draining());
    }
    app.require_store()?;
    match app.host.store().and_then(|store| store.room()) {
        Some(room) if room.is_low() => {
            Err(ApiError::store_full(QuotaError::StoreFull { free: room.free, least: room.least }))
        }
        _ => Ok(Json(Health { status: "ok" })),
    }
}

/// Show the versions of Flowcell, its engine and this interface
#[utoipa::path(get, path = "/version", tag = "server", responses((status = 200, body = Version)))]
pub(crate) async fn version() -> Json<Version> {
    Json(Version { flowcell: env!("CARGO_PKG_VERSION"), engine: flowcell_engine::RUNTIME, api: "v1" })
}
