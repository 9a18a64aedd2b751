//! Whose triggers a server looks at, and where their flows are.

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
    driving::{AdmitError, Entrance, Overflow},
    triggers::Owners,
};

/// The tenants of a server.
pub(crate) struct Households {
    pub(crate) host: Host,
    pub(crate) identity: Arc<dyn Identify>,
    /// The flows of `local`; those of other tenants are below it.
    pub(crate) flows: PathBuf,
    /// The entrance of all runs.
    pub(crate) entrance: Entrance,
    pub(crate) draining: AtomicBool,
}

impl Households {
    pub(crate) fn new(host: Host, identity: Arc<dyn Identify>, flows: PathBuf, entrance: Entrance) -> Households {
        Households { host, identity, flows, entrance, draining: AtomicBool::new(false) }
    }

    /// Where the flows of a tenant are.
    pub(crate) fn flows_of(&self, tenant: &Tenant) -> PathBuf {
        FlowLibrary::of_tenant(&self.flows, tenant).folder().to_owned()
    }
}

impl Owners for Households {
    fn tenants(&self) -> Vec<Tenant> {
        self.identity.tenants()
    }

    fn host(&self, tenant: &Tenant) -> Option<Host> {
        let policy = self.identity.policy(tenant).ok()?;
        Some(self.host.of(tenant.clone()).within(Arc::new(policy)))
    }

    fn library(&self, tenant: &Tenant) -> FlowLibrary {
        FlowLibrary::of_tenant(&self.flows, tenant)
    }

    fn admit(&self, tenant: Tenant, runner: FlowRunner) -> BoxFuture<'_, Result<(), AdmitError>> {
        // A trigger is not told to come back later.
        Box::pin(async move { self.entrance.admit(tenant, runner, Overflow::Store).await.map(drop) })
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }
}
