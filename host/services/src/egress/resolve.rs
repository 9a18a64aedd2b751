//! The resolution of host names to addresses.

use std::{
    io,
    net::{IpAddr, ToSocketAddrs as _},
};

use flowcell_contract::Tenant;
use futures_util::future::BoxFuture;

/// Resolves names to addresses. The egress guard resolves once per connection, and connects to the result.
pub trait Resolve: Send + Sync {
    /// Returns every address of a name, the preferred first. The name is in lower case, and never an address. `tenant`
    /// is the tenant that the connection is for.
    fn resolve<'a>(&'a self, tenant: &'a Tenant, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// The system's resolver: its hosts file, then its name servers.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl SystemResolver {
    /// Returns every address of a name. Blocks until the system has an answer, which may take many seconds.
    pub fn addresses(name: &str) -> io::Result<Vec<IpAddr>> {
        Ok((name, 0).to_socket_addrs()?.map(|address| address.ip()).collect())
    }
}

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, _tenant: &'a Tenant, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        let name = name.to_owned();
        Box::pin(async move {
            tokio::task::spawn_blocking(move || SystemResolver::addresses(&name)).await.map_err(io::Error::other)?
        })
    }
}
