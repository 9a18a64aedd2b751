//! The owner of a supervisor: it chooses the runs, and hears of their ends.

use flowcell_contract::Tenant;
use flowcell_runtime::{FlowRunner, RunResult};
use futures_util::future::BoxFuture;

use crate::{Host, StartError};

/// Chooses the tenants whose runs a supervisor drives, connects each run with its front ends, and is notified when a
/// run ends.
pub trait RunObserver: Send + Sync {
    /// Returns the tenants whose runs are driven.
    fn tenants(&self) -> Vec<Tenant> {
        vec![Tenant::local()]
    }

    /// Returns a host for a tenant, with the tenant's policy. `all` is the host of the supervisor. Returns `None` if
    /// the tenant's runs cannot continue now.
    fn host(&self, all: &Host, tenant: &Tenant) -> Option<Host> {
        Some(all.for_tenant(tenant.clone()))
    }

    /// Returns a future that drives a run with its front ends, or `None` if the run cannot be driven now.
    fn attend(&self, _tenant: &Tenant, runner: FlowRunner) -> Option<BoxFuture<'static, RunResult>> {
        Some(Box::pin(runner.run()))
    }

    /// Is called when a run has ended, or when its driver has stopped before the run's end.
    fn ended(&self, _result: &RunResult) {}

    /// Is called when a ready run cannot be opened.
    fn refused(&self, _error: StartError) {}
}
