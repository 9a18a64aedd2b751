//! The argument for the limits on requests to other servers.

use clap::Args;
use flowcell::{Host, OutboundLimits};

/// The limits on the requests of each tenant to each origin.
#[derive(Args, Default)]
pub(crate) struct OutboundArgs {
    /// Limit the requests of each tenant to each origin, such as perSecond=10,burst=20,maxConcurrency=5; the policy of a
    /// tenant replaces it
    #[arg(long, value_name = "LIMITS")]
    per_origin: Option<OutboundLimits>,
}

impl OutboundArgs {
    /// Applies the limits to the requests of a host.
    pub(crate) fn limit(&self, host: &Host) {
        if let Some(limits) = self.per_origin {
            host.limit_requests(limits);
        }
    }
}
