//! Stops a tenant: disables it, and cancels its runs.

use std::collections::BTreeSet;

use flowcell_contract::{RunId, Tenant};
use flowcell_runtime::{RunCommand, ports::Filter};
use serde::Serialize;

use super::send_command;
use crate::{
    Host,
    tenants::{TenantError, Tenants, audit::Outcome},
};

/// The statuses of runs that have not ended.
const LIVE: [&str; 3] = ["active", "parked", "needs_attention"];
/// Number of runs that are listed at a time.
const PAGE: usize = 500;

/// The result of stopping a tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StoppedTenant {
    /// Number of runs that were told to cancel. Runs that a process drives end within moments.
    pub cancelled: u64,
    /// The runs that could not be cancelled, each with the reason.
    pub not_cancelled: Vec<NotCancelled>,
}

/// A run that could not be cancelled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NotCancelled {
    /// The run.
    pub run: RunId,
    /// The reason, for people.
    pub reason: String,
}

/// Disables a tenant, and cancels its runs that have not ended, whichever process drives them. Runs that another run
/// has called end with that one.
pub async fn stop_tenant(host: &Host, name: &str) -> Result<StoppedTenant, TenantError> {
    stop_tenant_as(&Tenants::of(host), host, name).await
}

/// Performs [`stop_tenant`]. The audit log names the actor of `tenants`.
pub async fn stop_tenant_as(tenants: &Tenants, host: &Host, name: &str) -> Result<StoppedTenant, TenantError> {
    tenants.enable(name, false)?;
    let own = host.for_tenant(Tenant::from(name));
    let mut stopped = StoppedTenant::default();
    let mut seen = BTreeSet::new();
    for status in LIVE {
        let mut filter = Filter { status: Some(status.to_owned()), limit: PAGE, ..Filter::default() };
        while let Some(runs) = own.runs() {
            let page = runs.runs(own.tenant(), &filter)?;
            let Some(last) = page.last() else { break };
            filter.after = Some(last.run_id.clone());
            for run in page.into_iter().map(|row| row.run_id).filter(|run| seen.insert(run.clone())) {
                match send_command(&own, &run, RunCommand::Cancel).await {
                    Ok(()) => stopped.cancelled += 1,
                    Err(error) => {
                        stopped.not_cancelled.push(NotCancelled { run, reason: error.to_string() });
                    }
                }
            }
        }
    }
    tenants.note(name, "tenant.stop", &stopped.cancelled.to_string(), Outcome::Done)?;
    Ok(stopped)
}
