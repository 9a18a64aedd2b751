//! The policies of tenants.

use std::sync::Arc;

use flowcell_contract::Tenant;

use super::{Outcome, TenantError, Tenants};
use crate::{
    Host,
    operate::{
        documents::to_json,
        policy::{POLICY, Policy},
        usage::Used,
    },
};

impl Tenants {
    /// Returns the policy of a tenant.
    pub fn policy(&self, tenant: &str) -> Result<Policy, TenantError> {
        self.tenant(tenant)?;
        Ok(Policy::of(self.document_store(), &Tenant::from(tenant))?)
    }

    /// Returns the tenant's usage of today.
    pub fn used(&self, tenant: &str) -> Result<Used, TenantError> {
        self.tenant(tenant)?;
        Ok(self.host.usage().of_today(&Tenant::from(tenant))?)
    }

    /// Sets the policy of a tenant. Runs that were already accepted continue with their grants.
    pub fn set_policy(&self, tenant: &str, policy: &Policy) -> Result<(), TenantError> {
        self.tenant(tenant)?;
        policy.check(&self.host.grantable()).map_err(TenantError::Policy)?;
        let seen = self.get::<Policy>(POLICY, tenant)?.map_or(0, |(_, version)| version);
        if !self.put(POLICY, tenant, Some(policy), seen)? {
            return Err(TenantError::Changed(tenant.to_owned()));
        }
        let set = to_json(tenant, policy)?.to_text();
        self.note(tenant, "tenant.policy", &set, Outcome::Done)
    }

    /// Returns the host for a tenant, with its policy.
    pub fn host(&self, tenant: &Tenant) -> Result<Host, TenantError> {
        Ok(self.host.for_tenant(tenant.clone()).with_policy(Arc::new(self.policy(tenant.as_str())?)))
    }
}
