//! DNS look-ups, shared fairly between tenants.
//!
//! The system's resolver blocks a thread, even after the caller has gone. A name whose servers never answer blocks the
//! thread for many seconds. So a look-up keeps its permit until its thread is free. A tenant with permits gets another
//! one only if it then holds no more permits than are still free.

use std::{io, net::IpAddr, sync::Arc};

use flowcell_contract::Tenant;
use flowcell_engine::FairSemaphore;
use flowcell_services::egress::{Resolve, SystemResolver};
use futures_util::future::BoxFuture;

/// Maximum number of concurrent look-ups of all tenants.
pub(crate) const MAX_LOOK_UPS: u64 = 64;

/// Finds the addresses of a name, and blocks until it has them.
type LookUp = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

/// A resolver that tenants share.
pub(crate) struct SharedResolver {
    semaphore: FairSemaphore,
    find: Arc<LookUp>,
}

impl Default for SharedResolver {
    /// Uses the system's resolver.
    fn default() -> SharedResolver {
        SharedResolver { semaphore: FairSemaphore::new(MAX_LOOK_UPS), find: Arc::new(SystemResolver::addresses) }
    }
}

impl Resolve for SharedResolver {
    fn resolve<'a>(&'a self, tenant: &'a Tenant, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let permit = self.semaphore.take(tenant, 1).await;
            let (find, name) = (self.find.clone(), name.to_owned());
            let found = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                find(&name)
            });
            found.await.map_err(io::Error::other)?
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    };

    use parking_lot::Mutex;

    use super::*;

    #[tokio::test]
    async fn t1_a_tenant_whose_names_never_answer_leaves_threads_to_the_others() {
        let begun = Arc::new(AtomicUsize::new(0));
        let (end, ends) = mpsc::channel::<()>();
        let (counted, ends) = (begun.clone(), Mutex::new(ends));
        let find = move |name: &str| {
            if name == "silent.example" {
                counted.fetch_add(1, Ordering::SeqCst);
                // The look-up ends with the test.
                let _ = ends.lock().recv();
            }
            Ok(vec![IpAddr::from([192, 0, 2, 1])])
        };
        let resolver = Arc::new(SharedResolver { semaphore: FairSemaphore::new(8), find: Arc::new(find) });
        let asks = (0..100).map(|_| {
            let resolver = resolver.clone();
            tokio::spawn(async move { resolver.resolve(&"a".into(), "silent.example").await })
        });
        let asks: Vec<_> = asks.collect();
        tokio::task::yield_now().await;
        assert_eq!(resolver.semaphore.taken(), 4);
        let found = resolver.resolve(&"b".into(), "answers.example").await.unwrap();
        assert_eq!(found, [IpAddr::from([192, 0, 2, 1])]);
        // A cancelled caller returns no permit, since its thread still waits.
        asks.iter().for_each(tokio::task::JoinHandle::abort);
        for ask in asks {
            assert!(ask.await.unwrap_err().is_cancelled());
        }
        assert_eq!(resolver.semaphore.taken(), 4);
        assert!(resolver.resolve(&"b".into(), "answers.example").await.is_ok());
        assert!(begun.load(Ordering::SeqCst) <= 4);
        drop(end);
    }
}
