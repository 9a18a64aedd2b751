//! The arguments that select a tenant and its store.

use clap::Args;
use flowcell::{Host, contract::Tenant, tenants::Tenants};

use super::{PackArgs, StoreArgs};
use crate::cli_error::CliError;

/// A tenant, and the store with its data.
#[derive(Args, Clone, Default)]
pub(crate) struct TenantArgs {
    /// The tenant
    #[arg(long, value_name = "NAME", default_value = "local")]
    pub(crate) tenant: String,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

impl TenantArgs {
    pub(crate) fn tenant(&self) -> Tenant {
        Tenant::from(self.tenant.as_str())
    }

    /// Returns the host of the tenant. Fails if the tenant does not exist.
    pub(crate) fn host(&self, host: Host) -> Result<Host, CliError> {
        if self.tenant() == Tenant::local() {
            return Ok(host);
        }
        Tenants::of(&host).host(&self.tenant()).map_err(|error| CliError::wrong(error.to_string()))
    }

    /// Returns a host that only reads the tenant's data, even if another process owns the store.
    pub(crate) fn reading_host(&self, packs: &PackArgs) -> Result<Host, CliError> {
        self.host(packs.reading_host(&self.store)?)
    }
}
