//! From names to addresses.

use std::{io, net::IpAddr};

use futures_util::future::BoxFuture;

/// Answers names with addresses. The guard asks once for each connection, and connects to what was answered.
pub trait Resolve: Send + Sync {
    /// Returns every address of a name, the preferred first. The name is in lower case, and never an address.
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// The system's resolver: its hosts file, then its name servers.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let addresses = tokio::net::lookup_host((name, 0)).await?;
            Ok(addresses.map(|address| address.ip()).collect())
        })
    }
}
