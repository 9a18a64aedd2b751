//! Operators' requests about the credentials of a tenant.

use std::{collections::BTreeMap, thread};

use flowcell_contract::{Failure, Json, Tenant};
use flowcell_services::credentials::{self, Authorization, Edition, SecretMembers, Settings};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{OPERATOR, TenantError, Tenants};
use crate::{
    host::{Host, outside},
    operate::{
        audit::Outcome,
        documents::to_json,
        vault::{CredentialRow, Hidden, NewCredential, VaultError},
    },
};

/// A credential to set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CredentialToSet {
    /// The kind: `bearer`, `basic`, `apiKey`, `oauth2`, `hmac` or `sigv4`.
    pub kind: String,
    /// The settings of this kind, which may be shown.
    #[serde(default)]
    pub settings: serde_json::Map<String, serde_json::Value>,
    /// The secrets of this kind.
    #[serde(default)]
    pub secrets: BTreeMap<String, Hidden>,
    /// The servers that may receive it.
    #[serde(rename = "for")]
    pub origins: Vec<String>,
}

/// The answer of an authorization server, which connects a credential.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Consent {
    /// The code.
    pub code: Hidden,
    /// The verifier of PKCE.
    pub verifier: Hidden,
    /// The address to which the server has sent the code.
    pub redirect_uri: String,
    /// The edition of the credential that the person has authorized. `None`: the present one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edition: Option<Edition>,
}

/// A request about the credentials of a tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "credential", rename_all = "camelCase")]
pub enum CredentialOperation {
    /// Sets a credential.
    Set {
        /// Its name.
        name: String,
        /// Its kind, settings, secrets and servers.
        to: CredentialToSet,
    },
    /// Lists the credentials without their secrets.
    List,
    /// Shows a credential without its secrets.
    Show {
        /// Its name.
        name: String,
    },
    /// Removes a credential.
    Remove {
        /// Its name.
        name: String,
    },
    /// Exchanges the code of an authorization for tokens.
    Connect {
        /// The name of the credential.
        name: String,
        /// The answer of the authorization server.
        consent: Consent,
    },
}

/// Executes a request of an operator.
pub(super) fn operate(tenants: &Tenants, tenant: &str, request: &CredentialOperation) -> Result<Json, TenantError> {
    let host = tenants.host.for_tenant(tenants.existing_tenant(tenant)?);
    let done = || Ok(Json::object([("done", Json::from(true))]));
    match request {
        CredentialOperation::Set { name, to } => Ok(to_json("credential", &set(&host, OPERATOR, name, to)?)?),
        CredentialOperation::List => Ok(to_json("credentials", &host.vault().list_credentials(host.tenant())?)?),
        CredentialOperation::Show { name } => Ok(to_json("credential", &show(&host, name)?)?),
        CredentialOperation::Remove { name } => {
            host.vault().remove_credential(host.tenant(), OPERATOR, name)?;
            done()
        }
        CredentialOperation::Connect { name, consent } => {
            connect(&host, OPERATOR, name, consent)?;
            done()
        }
    }
}

/// Sets a credential of the host's tenant.
pub fn set(host: &Host, actor: &str, name: &str, to: &CredentialToSet) -> Result<CredentialRow, VaultError> {
    let settings = Settings::parse(&to.kind, to.settings.clone()).map_err(VaultError::Credential)?;
    let secrets: SecretMembers =
        to.secrets.iter().map(|(name, value)| (name.clone(), value.text().to_owned())).collect();
    let new = NewCredential { name, settings: &settings, secrets: &secrets, origins: &to.origins };
    host.vault().set_credential(host.tenant(), actor, &new)
}

/// Returns a credential of the host's tenant without its secrets.
pub fn show(host: &Host, name: &str) -> Result<CredentialRow, VaultError> {
    let found = host.vault().find_credential(host.tenant(), name)?;
    found.ok_or_else(|| VaultError::UnknownCredential(name.to_owned()))
}

/// Exchanges the code of an authorization for tokens of a credential, and stores them.
pub fn connect(host: &Host, actor: &str, name: &str, consent: &Consent) -> Result<(), VaultError> {
    show(host, name)?;
    let authorization = Authorization {
        code: Zeroizing::new(consent.code.text().to_owned()),
        verifier: Zeroizing::new(consent.verifier.text().to_owned()),
        redirect_uri: consent.redirect_uri.clone(),
        edition: consent.edition,
    };
    let (store, client) = outside::credential_store(host);
    let (tenant, of): (Tenant, String) = (host.tenant().clone(), name.to_owned());
    // The caller may be on a thread of another runtime, in which this one cannot block.
    let exchange = move || -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime =
            runtime.map_err(|error| Failure::new("host_shortage", format!("cannot start a runtime: {error}")))?;
        runtime.block_on(credentials::connect(store, &client, &tenant, &of, &authorization))
    };
    let connected = match thread::spawn(exchange).join() {
        Ok(exchanged) => exchanged.map_err(|failure| VaultError::NotConnected(failure.message.to_string())),
        Err(_) => Err(VaultError::NotConnected("the exchange of the code was interrupted".into())),
    };
    let outcome = if connected.is_ok() { Outcome::Done } else { Outcome::Refused };
    let noted = host.vault().note_connected(host.tenant(), actor, name, outcome);
    match connected {
        Ok(()) => noted,
        Err(error) => {
            if let Err(unwritten) = noted {
                tracing::error!("cannot write the audit log of {}: {unwritten}", host.tenant());
            }
            Err(error)
        }
    }
}
