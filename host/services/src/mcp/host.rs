//! What servers may ask of the host: whether it is there, and nothing else.
#![expect(deprecated, reason = "servers of older versions may still ask for folders")]

use rmcp::{
    ClientHandler, ErrorData, RoleClient,
    model::{ClientCapabilities, ClientConfig, ErrorCode, Implementation, ListRootsResult},
    service::RequestContext,
};

/// Offers nothing. The library refuses texts of a model, and declines questions to a person, in its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Host;

impl ClientHandler for Host {
    fn get_info(&self) -> ClientConfig {
        let own = Implementation::new("flowcell", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), own)
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "this host shows no folders", None))
    }
}
