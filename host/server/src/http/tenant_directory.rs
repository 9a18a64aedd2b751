//! The tenants of a server, with the folders of their flows.

use std::{
    collections::HashSet,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use flowcell_contract::Tenant;
use flowcell_runtime::FlowRunner;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use super::identity::Identify;
use flowcell_platform::{
    FlowLibrary, Host,
    observe::metrics::Metrics,
    supervisor::{AdmissionQueue, AdmitError, Overflow},
    triggers::TriggerTenants,
};

/// The tenants of a server, and everything that is needed to start their runs.
pub(crate) struct TenantDirectory {
    pub(crate) host: Host,
    pub(crate) identity: Arc<dyn Identify>,
    /// The folder with the flows of `local`. The folders of other tenants are below it.
    pub(crate) flows: PathBuf,
    /// Admits the runs of all tenants.
    pub(crate) admission: AdmissionQueue,
    pub(crate) draining: AtomicBool,
    /// The tenants whose policy could not be read at the last try.
    without_policy: Mutex<HashSet<Tenant>>,
}

impl TenantDirectory {
    pub(crate) fn new(
        host: Host,
        identity: Arc<dyn Identify>,
        flows: PathBuf,
        admission: AdmissionQueue,
    ) -> TenantDirectory {
        let (draining, without_policy) = (AtomicBool::new(false), Mutex::default());
        TenantDirectory { host, identity, flows, admission, draining, without_policy }
    }

    /// Returns the folder with the flows of a tenant.
    pub(crate) fn flows_of(&self, tenant: &Tenant) -> PathBuf {
        FlowLibrary::of_tenant(&self.flows, tenant).folder().to_owned()
    }
}

impl TriggerTenants for TenantDirectory {
    fn tenants(&self) -> Vec<Tenant> {
        self.identity.tenants()
    }

    fn host(&self, tenant: &Tenant) -> Option<Host> {
        let policy = match self.identity.policy(tenant) {
            Ok(policy) => policy,
            Err(error) => {
                // An outage of a shared store has its own lines in the log.
                let is_outage = self.host.shared().is_some_and(|shared| shared.outage().is_some());
                if !is_outage && self.without_policy.lock().insert(tenant.clone()) {
                    tracing::warn!("the triggers of `{tenant}` start nothing, as its policy cannot be read: {error}");
                }
                return None;
            }
        };
        self.without_policy.lock().remove(tenant);
        Some(self.host.for_tenant(tenant.clone()).with_policy(Arc::new(policy)))
    }

    fn library(&self, tenant: &Tenant) -> FlowLibrary {
        FlowLibrary::of_host(&self.flows, &self.host.for_tenant(tenant.clone()))
    }

    fn admit(&self, tenant: Tenant, runner: FlowRunner) -> BoxFuture<'_, Result<(), AdmitError>> {
        // A trigger cannot be asked to retry later. So if the queue is full, the run is stored and driven later.
        Box::pin(async move { self.admission.admit(tenant, runner, Overflow::Store).await.map(drop) })
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    fn metrics(&self) -> Option<&Metrics> {
        Some(self.host.metrics())
    }
}
