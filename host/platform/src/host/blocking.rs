//! Work that computes or reads for long, done from wherever its caller runs.

use std::time::Instant;

use flowcell_contract::Tenant;
use flowcell_engine::{Engine, Room};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task,
};

/// Inputs checked at a time against schemas of flows; no tenant has more than it leaves to others.
pub(crate) const INPUTS: u64 = 8;

/// Runs that evaluate costly expressions at a time; no tenant has more than it leaves to others.
pub(crate) const EXPRESSIONS: u64 = 8;
/// Runs that do that or wait for it. Each holds a thread, and the runtime needs some for others.
pub(crate) const WAITING_EXPRESSIONS: u64 = 256;

/// The runtime of this thread, if it has other threads for its other tasks.
fn runtime() -> Option<Handle> {
    Handle::try_current().ok().filter(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread)
}

/// Does work that blocks. On a thread of an async runtime the other tasks go to another thread meanwhile.
pub(crate) fn blocking<T>(work: impl FnOnce() -> T) -> T {
    match runtime() {
        Some(_) => task::block_in_place(work),
        None => work(),
    }
}

/// Does work that computes for a tenant, when it has its turn, and charges the tenant for it. The place belongs to the work:
/// nothing gives it back before the work ends.
pub(crate) fn computing<T>(room: &Room, engine: &Engine, tenant: &Tenant, work: impl FnOnce() -> T) -> T {
    let Some(runtime) = runtime() else { return charged(engine, tenant, work) };
    task::block_in_place(|| {
        let _place = runtime.block_on(room.take(tenant, 1));
        charged(engine, tenant, work)
    })
}

/// Does work at the cost of a tenant.
pub(crate) fn charged<T>(engine: &Engine, tenant: &Tenant, work: impl FnOnce() -> T) -> T {
    let since = Instant::now();
    let done = work();
    engine.charge(tenant, since.elapsed());
    done
}
