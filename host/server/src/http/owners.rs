//! Whose triggers a server looks at, and where their flows are.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use flowcell_contract::Tenant;
use tokio::sync::Notify;

use super::identity::Identify;
use flowcell_platform::{FlowLibrary, Host, triggers::Owners};

/// The tenants of a server.
pub(crate) struct Households {
    pub(crate) host: Host,
    pub(crate) identity: Arc<dyn Identify>,
    /// The flows of `local`; those of other tenants are below it.
    pub(crate) flows: PathBuf,
    /// Is told when a run that nobody drives may be able to move.
    pub(crate) moved: Arc<Notify>,
    pub(crate) draining: AtomicBool,
}

impl Households {
    pub(crate) fn new(host: Host, identity: Arc<dyn Identify>, flows: PathBuf) -> Households {
        Households { host, identity, flows, moved: Arc::default(), draining: AtomicBool::new(false) }
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

    fn moved(&self) {
        self.moved.notify_one();
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }
}
