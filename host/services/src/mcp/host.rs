//! The host's side of the protocol. The only request of a server that it fulfils is a ping.
#![expect(deprecated, reason = "servers of older versions may still ask for folders")]

use rmcp::{
    ClientHandler, ErrorData, RoleClient,
    model::{ClientCapabilities, ClientConfig, ErrorCode, Implementation, ListRootsResult},
    service::RequestContext,
};

/// Handles the requests of servers: it refuses all but pings. The library `rmcp` refuses sampling and declines
/// elicitation by default.
#[derive(Clone, Copy, Debug)]
pub(super) struct Host;

impl ClientHandler for Host {
    fn get_info(&self) -> ClientConfig {
        let own = Implementation::new("flowcell", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), own)
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "this host offers no folders", None))
    }
}
