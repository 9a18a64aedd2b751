//! The arguments that select a tenant and its store.

use clap::Args;
use flowcell::{
    Host, RunId,
    contract::Tenant,
    tenants::{Tenants, audit::Outcome},
};

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

    /// Returns the name of the tenant for options, unless it is `local`.
    pub(crate) fn other_name(&self) -> Option<String> {
        (self.tenant() != Tenant::local()).then(|| self.tenant.clone())
    }

    /// Returns the options that select the same tenant and store in another command, such as ` --tenant acme`.
    pub(crate) fn selection(&self) -> String {
        self.store.selection(self.other_name().as_deref()).unwrap_or_default()
    }

    /// Adds an entry about a run to the tenant's audit log, unless the tenant is `local`.
    pub(crate) fn note(&self, host: &Host, action: &str, run: &RunId) -> Result<(), CliError> {
        if self.tenant() == Tenant::local() {
            return Ok(());
        }
        let noted = Tenants::of(host).note(&self.tenant, action, run.as_str(), Outcome::Done);
        noted.map_err(|error| CliError::internal(error.to_string()))
    }

    /// Fails for another tenant than `local`. For commands that drive a run, while another process owns the store.
    pub(crate) fn refuse_beside_owner(&self, request: &str) -> Result<(), CliError> {
        match self.other_name() {
            None => Ok(()),
            Some(name) => Err(CliError::wrong(format!(
                "another process owns the store, and hands over no runs of the tenant `{name}`"
            ))
            .hint(format!("send `{request}` to the server with a token of the tenant, or stop that process first"))),
        }
    }

    /// Returns a host that only reads the tenant's data, even if another process owns the store.
    pub(crate) fn reading_host(&self, packs: &PackArgs) -> Result<Host, CliError> {
        self.host(packs.reading_host(&self.store)?)
    }
}
