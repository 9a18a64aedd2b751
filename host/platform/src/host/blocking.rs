//! Runs work that computes for long, on any thread.

use std::time::Instant;

use flowcell_contract::Tenant;
use flowcell_engine::{Engine, FairSemaphore};
use flowcell_runtime::blocking::multi_thread_runtime;
use tokio::task;

/// Maximum number of concurrent checks of inputs against flows' schemas. The permits are shared fairly between
/// tenants.
pub(crate) const MAX_INPUT_CHECKS: u64 = 8;

/// Maximum number of concurrent evaluations of costly expressions. The permits are shared fairly between tenants.
pub(crate) const MAX_COSTLY_EXPRESSIONS: u64 = 8;
/// Maximum number of runs that evaluate a costly expression or wait for a permit to do so. Each such run blocks a
/// thread, and the tokio runtime needs some threads for other work.
pub(crate) const MAX_WAITING_EXPRESSIONS: u64 = 256;

/// Runs a tenant's computation once the tenant gets a permit, and charges the tenant for the time. The permit is held
/// until the work ends.
pub(crate) fn computing<T>(semaphore: &FairSemaphore, engine: &Engine, tenant: &Tenant, work: impl FnOnce() -> T) -> T {
    let Some(runtime) = multi_thread_runtime() else { return charged(engine, tenant, work) };
    task::block_in_place(|| {
        let _permit = runtime.block_on(semaphore.take(tenant, 1));
        charged(engine, tenant, work)
    })
}

/// Runs work and charges a tenant for the time.
pub(crate) fn charged<T>(engine: &Engine, tenant: &Tenant, work: impl FnOnce() -> T) -> T {
    let since = Instant::now();
    let done = work();
    engine.charge(tenant, since.elapsed());
    done
}
