//! The tenants of a server, with the folders of their flows.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use flowcell_contract::Tenant;
use flowcell_runtime::FlowRunner;
use futures_util::future::BoxFuture;

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
}

impl TenantDirectory {
    pub(crate) fn new(
        host: Host,
        identity: Arc<dyn Identify>,
        flows: PathBuf,
        admission: AdmissionQueue,
    ) -> TenantDirectory {
        TenantDirectory { host, identity, flows, admission, draining: AtomicBool::new(false) }
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
        let policy = self.identity.policy(tenant).ok()?;
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
