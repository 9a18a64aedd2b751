//! The route that lists the packs whose node types flows may use.

use axum::Json;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    api_error::{ApiError, ErrorBody},
    app::Request,
};
use flowcell_platform::{host::pack_changes::PackSource, packs::Signer, shape};

/// A pack, with what its node types may reach.
#[derive(Serialize, ToSchema)]
pub(crate) struct PackView {
    /// The name and version, such as `shop@0.2.0`.
    pack: String,
    /// The SHA-256 of the component.
    digest: String,
    /// The place that the server has the pack from.
    source: PackSource,
    /// The signer, if the pack is signed and from a lock or the shared store. The server does not read the signatures of
    /// packs in a folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    signer: Option<Signer>,
    /// Its node types: `{ type, title, effect, capabilities }`. A node reaches at most what its type asks for in
    /// `capabilities`, and only if the flow grants it.
    #[schema(value_type = Vec<Object>)]
    types: Vec<Value>,
}

/// The packs of the server.
#[derive(Serialize, ToSchema)]
pub(crate) struct PackList {
    /// The packs by name and version, without the built-in ones.
    packs: Vec<PackView>,
}

/// List the packs whose node types every flow may use, with what each type may reach
#[utoipa::path(get, path = "/v1/packs", tag = "flows", operation_id = "list_packs",
    responses((status = 200, body = PackList), (status = "default", body = ErrorBody)))]
pub(crate) async fn list(request: Request) -> Result<Json<PackList>, ApiError> {
    let list = request.blocking(|request| {
        let catalog = request.host.catalog();
        let packs = request.host.packs().into_iter().map(|pack| {
            let of_pack =
                catalog.types().filter(|node| node.pack.as_ref().is_some_and(|of| of.to_string() == pack.digest));
            let types = of_pack.map(|node| shape::reach_of_type(node)).collect();
            PackView {
                pack: pack.pack.to_string(),
                digest: pack.digest,
                source: pack.source,
                signer: pack.signer,
                types,
            }
        });
        Ok(PackList { packs: packs.collect() })
    });
    list.await.map(Json)
}
