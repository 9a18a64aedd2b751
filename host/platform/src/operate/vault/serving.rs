//! Provides the secrets of the vault to runs, and converts the vault's errors to failures.

use flowcell_contract::{Failure, Tenant, code};
use flowcell_services::{egress::OriginGrants, secrets::SecretStore};
use zeroize::Zeroizing;

use super::{Vault, VaultError, parse_origins};
use crate::operate::documents::DocumentError;

impl From<VaultError> for Failure {
    fn from(error: VaultError) -> Failure {
        match error {
            VaultError::Document(DocumentError::Store(error)) => error.into(),
            error => Failure::new(code::DENIED, error.to_string()),
        }
    }
}

impl SecretStore for Vault {
    fn meant_for(&self, tenant: &Tenant, name: &str) -> Result<Option<OriginGrants>, Failure> {
        let found = self.find(tenant, name)?;
        Ok(found.map(|found| parse_origins(&found.origins)).transpose()?)
    }

    fn open(&self, tenant: &Tenant, name: &str) -> Result<Option<Zeroizing<String>>, Failure> {
        Ok(Vault::open(self, tenant, name)?)
    }

    fn refused(&self, tenant: &Tenant, name: &str) {
        self.note_refusal(tenant, name);
    }
}
