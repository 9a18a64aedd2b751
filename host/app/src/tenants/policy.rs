//! Policies of tenants, and whether there may be another run.

use std::sync::Arc;

use flowcell_contract::Tenant;
use flowcell_runtime::{ports::StoreError, rows::Filter};

use super::{Outcome, TenantError, Tenants, to_json};
use crate::{Host, policy::Policy};

const POLICY: &str = "policy";

/// Why a run does not begin.
#[derive(Debug, thiserror::Error)]
pub enum QuotaError {
    /// There are too many.
    #[error("the tenant has {0} runs that are not over, which is as many as it may have; cancel some, or wait")]
    LiveRuns(u32),
    /// Nobody can say how many there are.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Tenants {
    /// What a tenant may do.
    pub fn policy(&self, tenant: &str) -> Result<Policy, TenantError> {
        self.tenant(tenant)?;
        Ok(self.get(POLICY, tenant)?.map(|(policy, _)| policy).unwrap_or_default())
    }

    /// Sets what a tenant may do from now on. Runs that were accepted go on as they were.
    pub fn set_policy(&self, tenant: &str, policy: &Policy) -> Result<(), TenantError> {
        self.tenant(tenant)?;
        let seen = self.get::<Policy>(POLICY, tenant)?.map_or(0, |(_, version)| version);
        if !self.put(POLICY, tenant, Some(policy), seen)? {
            return Err(TenantError::Changed(tenant.to_owned()));
        }
        let set = to_json(tenant, policy)?.to_text();
        self.note(tenant, "tenant.policy", &set, Outcome::Done)
    }

    /// A host for a tenant, within its policy.
    pub fn host(&self, tenant: &Tenant) -> Result<Host, TenantError> {
        Ok(self.0.of(tenant.clone()).within(Arc::new(self.policy(tenant.as_str())?)))
    }
}

impl Host {
    /// Whether there may be another run.
    pub fn check_quota(&self) -> Result<(), QuotaError> {
        let (Some(most), Some(runs)) = (self.policy().max_live_runs, self.runs()) else { return Ok(()) };
        let mut live = 0;
        for status in ["active", "parked", "needs_attention"] {
            let filter = Filter { status: Some(status.into()), limit: most as usize, ..Filter::default() };
            live += runs.runs(self.tenant(), &filter)?.len();
        }
        if live >= most as usize { Err(QuotaError::LiveRuns(most)) } else { Ok(()) }
    }
}
