//! Permits for servers that tenants share: MCP servers, providers of models, and endpoints of images.
//!
//! The permits of a server are a [`FairSemaphore`]. A tenant without a permit gets any permit that is free. A tenant
//! with permits gets another one only if it then holds no more permits than are still free. So a tenant with many
//! calls waits until one of them ends, and another tenant gets a permit at once. In a process without several tenants,
//! such as the command line, no call needs a permit.

use std::{collections::HashMap, time::Duration};

use flowcell_contract::{Failure, Tenant};
use flowcell_engine::{FairSemaphore, Permit};
use parking_lot::Mutex;

/// Maximum number of calls of all tenants that wait for a permit of any server. A tenant with waiting calls may add
/// another one only if its calls then take no more places than are still free.
pub(crate) const MAX_WAITING_CALLS: u64 = 4_096;

/// A server that tenants share.
pub(crate) struct SharedServer<'a> {
    /// The server's unique name, such as `mcp:files`.
    pub(crate) name: &'a str,
    /// Maximum number of concurrent calls.
    pub(crate) permits: usize,
    /// Maximum time that a call waits for a permit.
    pub(crate) within: Duration,
    /// The failure code of a call without a permit.
    pub(crate) code: &'static str,
}

/// The permits of all servers.
pub(super) struct Shares {
    rooms: Mutex<HashMap<String, FairSemaphore>>,
    waiting: FairSemaphore,
}

impl Default for Shares {
    fn default() -> Shares {
        Shares { rooms: Mutex::default(), waiting: FairSemaphore::new(MAX_WAITING_CALLS) }
    }
}

impl Shares {
    /// Waits for a permit for one call of a server. Dropping the permit returns it. Fails if the tenant has too many
    /// waiting calls, or after the time `within` of the server.
    pub(super) async fn take(&self, tenant: &Tenant, server: SharedServer<'_>) -> Result<Permit, Failure> {
        let SharedServer { name, permits, within, code } = server;
        let busy = |why: String| Failure::retryable(code, format!("{name}: {why}; make fewer calls at a time"));
        let waits = self.waiting.try_take(tenant, 1);
        let _waits = waits.ok_or_else(|| busy("too many calls of the tenant are waiting".into()))?;
        let semaphore = self.semaphore(name, permits);
        let permit = tokio::time::timeout(within, semaphore.take(tenant, 1)).await;
        permit.map_err(|_| busy(format!("the tenant's calls in progress did not end within {} ms", within.as_millis())))
    }

    fn semaphore(&self, name: &str, permits: usize) -> FairSemaphore {
        let mut rooms = self.rooms.lock();
        match rooms.get(name) {
            Some(semaphore) => semaphore.clone(),
            None => rooms.entry(name.to_owned()).or_insert(FairSemaphore::new(permits as u64)).clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn server(name: &str, permits: usize) -> SharedServer<'_> {
        SharedServer { name, permits, within: Duration::ZERO, code: "busy" }
    }

    /// Takes permits for a tenant until the server is busy.
    async fn all(shares: &Shares, tenant: &str, permits: usize) -> Vec<Permit> {
        let mut held = Vec::new();
        while let Ok(permit) = shares.take(&tenant.into(), server("mcp:a", permits)).await {
            held.push(permit);
        }
        held
    }

    #[tokio::test]
    async fn t1_a_tenant_leaves_permits_for_the_next() {
        let shares = Shares::default();
        let first = all(&shares, "a", 16).await;
        let second = all(&shares, "b", 16).await;
        assert_eq!((first.len(), second.len()), (8, 4));
        let failure = shares.take(&"a".into(), server("mcp:a", 16)).await.err().unwrap();
        assert!(
            failure.retryable
                && failure.code == "busy"
                && failure.message.starts_with("mcp:a: the tenant's calls in progress"),
            "{failure}"
        );
        assert!(shares.take(&"a".into(), server("mcp:b", 16)).await.is_ok(), "another server has permits of its own");
        assert_eq!(all(&Shares::default(), "a", 1).await.len(), 1, "one permit is for whoever comes");
        drop(first);
        assert_eq!(all(&shares, "c", 16).await.len(), 6);
    }

    #[tokio::test]
    async fn calls_that_wait_are_bounded_for_each_tenant() {
        let shares = Shares { waiting: FairSemaphore::new(4), ..Shares::default() };
        let _held = all(&shares, "a", 2).await;
        let (tenant, long) = (Tenant::from("a"), Duration::from_secs(600));
        let waits = || Box::pin(shares.take(&tenant, SharedServer { within: long, ..server("mcp:a", 2) }));
        let mut waiting = [waits(), waits()];
        for call in &mut waiting {
            assert!(futures_util::poll!(call).is_pending());
        }
        let failure = waits().await.err().unwrap();
        assert!(failure.message.contains("too many calls of the tenant are waiting"), "{failure}");
        assert!(shares.take(&"b".into(), server("mcp:a", 2)).await.is_ok());
        drop(waiting);
        assert_eq!(shares.waiting.taken(), 0, "a call that is taken back waits no more");
    }
}
