//! Secrets, which flows refer to by name and never see. The host puts a secret into a header of a request, if the
//! secret is meant for the server that receives the request.
//!
//! A tenant's secrets are in a [`SecretStore`]. The operator of the tenant `local` may also list sources and permitted
//! origins in a YAML file ([`OperatorSecrets`]). The store has priority:
//!
//! ```yaml
//! api-token: { keyEnv: API_TOKEN, for: ["https://api.example.com"] }
//! crm: { keyFile: crm.key, for: ["https://*.crm.example/v2"] }   # beside this file
//! github: { keyEnv: GITHUB_HOOK, for: webhook }                  # signs posts to triggers
//! ```
//!
//! A flow names a secret in the grants of a node that sends requests ([`SecretGrants`]). The host reads the secret when
//! it sends a request, and puts the secret only into the header that the grant names. The host redacts the secret in
//! the answer, in all encodings that the redaction knows. It sends secrets only over TLS, or to a private address that
//! the operator has listed.

mod grant;
mod operator;

use std::sync::Arc;

use flowcell_contract::{Failure, Tenant, code as codes, shell::shell_word};
use zeroize::Zeroizing;

pub use self::{
    grant::{SecretGrant, SecretGrants, check_name},
    operator::OperatorSecrets,
};
use crate::{
    credentials::{CredentialStore, Credentials},
    egress::{Destination, OriginGrants},
    secret::{Key, check_header},
    webhook::SigningKey,
};

/// The member of a node's `grants` that lists the granted secrets.
pub const GRANT: &str = flowcell_contract::SECRETS;

/// The purpose of a secret that signs posts to triggers. Such a secret is never sent to a server.
pub const WEBHOOK: &str = "webhook";

/// Minimum characters of a secret: redaction would find a shorter one in too many texts.
const MIN_SECRET: usize = 8;

/// Checks that a secret for these origins can be sent: it goes into a header. A secret without origins, such as one that
/// signs posts, may have any characters. The error is part of a sentence without the secret.
pub fn check_value(value: &str, origins: &OriginGrants) -> Result<(), &'static str> {
    if origins.is_empty() { Ok(()) } else { check_header(value) }
}

/// A store of the tenants' secrets.
pub trait SecretStore: Send + Sync {
    /// Returns the origins that a secret is meant for, or `None` if the tenant has no secret of this name.
    fn meant_for(&self, tenant: &Tenant, name: &str) -> Result<Option<OriginGrants>, Failure>;

    /// Returns the secret itself, or `None` if the tenant has no secret of this name.
    fn open(&self, tenant: &Tenant, name: &str) -> Result<Option<Zeroizing<String>>, Failure>;

    /// Records that the host refused a run a secret, because the tenant of the run has no secret of this name.
    fn refused(&self, tenant: &Tenant, name: &str);
}

/// All secrets and credentials of the host, from every source. Cheap to clone.
#[derive(Clone, Default)]
pub struct Secrets {
    store: Option<Arc<dyn SecretStore>>,
    operator: OperatorSecrets,
    credentials: Credentials,
}

impl From<OperatorSecrets> for Secrets {
    fn from(operator: OperatorSecrets) -> Secrets {
        Secrets { operator, ..Secrets::default() }
    }
}

impl Secrets {
    /// Returns these secrets together with those of a store. The secrets of the store have priority.
    pub fn with_store(self, store: Arc<dyn SecretStore>) -> Secrets {
        Secrets { store: Some(store), ..self }
    }

    /// Returns these secrets together with the credentials of a store.
    pub fn with_credentials(self, store: Arc<dyn CredentialStore>) -> Secrets {
        Secrets { credentials: Credentials::of(store), ..self }
    }

    /// Returns the credentials of all tenants.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Checks if a grant is usable; the error says how to correct it. Reads only names and permitted origins, and no
    /// secret.
    pub fn check(&self, tenant: &Tenant, grant: &SecretGrant) -> Result<(), String> {
        let name = &grant.name;
        let known = self.meant_for(tenant, name).map_err(|failure| failure.message)?;
        let known = known.ok_or_else(|| missing(tenant, name))?;
        match grant.origins.as_ref().and_then(|origins| known.first_not_contained(origins)) {
            Some(origin) => Err(not_for(tenant, name, &origin)),
            None => Ok(()),
        }
    }

    /// Returns the grants that apply to this destination, without those for other origins. Fails if the tenant has no
    /// secret with the name in a grant. Also fails if the `for` of a grant covers this destination, but the secret is
    /// not meant for it.
    pub(crate) fn for_destination(
        &self,
        tenant: &Tenant,
        grants: SecretGrants,
        to: &Destination,
    ) -> Result<Vec<SecretGrant>, Failure> {
        let denied = |why: String| Failure::new(codes::DENIED, format!("grants.secrets: {why}"));
        let mut meant = Vec::new();
        for grant in grants.0 {
            let known = self.meant_for(tenant, &grant.name)?;
            let known = known.ok_or_else(|| denied(self.refuse(tenant, &grant.name)))?.covers(to);
            match &grant.origins {
                Some(origins) if !origins.covers(to) => continue,
                None if !known => continue,
                Some(_) if !known => return Err(denied(not_for(tenant, &grant.name, &to.origin().to_string()))),
                _ => meant.push(grant),
            }
        }
        Ok(meant)
    }

    /// Returns the key that signs posts to a trigger as Standard Webhooks: a secret with the purpose [`WEBHOOK`].
    /// Refuses secrets with another purpose.
    pub async fn signing_key(&self, tenant: &Tenant, name: &str) -> Result<SigningKey, Failure> {
        let denied = |why: String| Failure::new(codes::DENIED, format!("the secret `{name}`: {why}"));
        SigningKey::new(&self.webhook_secret(tenant, name).await?).map_err(denied)
    }

    /// Returns a key like [`signing_key`](Self::signing_key), for schemes that use the characters of the secret itself.
    pub async fn text_key(&self, tenant: &Tenant, name: &str) -> Result<SigningKey, Failure> {
        Ok(SigningKey::from_text(&self.webhook_secret(tenant, name).await?))
    }

    /// Reads a secret that signs posts. It goes into no header, so it may have any characters.
    async fn webhook_secret(&self, tenant: &Tenant, name: &str) -> Result<Zeroizing<String>, Failure> {
        self.check_signing(tenant, name).map_err(|why| Failure::new(codes::DENIED, why))?;
        self.read_text(tenant, name).await
    }

    /// Checks if a secret may sign posts; the error says what to do if not. Reads only the name and the purpose.
    pub fn check_signing(&self, tenant: &Tenant, name: &str) -> Result<(), String> {
        let known = self.meant_for(tenant, name).map_err(|failure| failure.message)?;
        if known.is_some_and(|origins| origins.is_empty()) {
            return Ok(());
        }
        let (word, of) = (shell_word(name), tenant_option(tenant));
        let help = format!("create it with `flowcell secret set {word}{of} --for {WEBHOOK}`");
        Err(format!("the secret `{name}` does not exist or cannot sign posts; {help}"))
    }

    /// Reads a secret for a header. Fails with `denied` if the tenant has no secret of this name, or if it does not fit
    /// into a header.
    pub(crate) async fn read(&self, tenant: &Tenant, name: &str) -> Result<Key, Failure> {
        let text = self.read_text(tenant, name).await?;
        Key::from_text(text).map_err(|why| Failure::new(codes::DENIED, format!("the secret `{name}`: {why}")))
    }

    /// Reads a secret, from the store first. Fails with `denied` if the tenant has no secret of this name.
    async fn read_text(&self, tenant: &Tenant, name: &str) -> Result<Zeroizing<String>, Failure> {
        let text = match self.read_from_store(tenant, name).await? {
            Some(text) => Some(text),
            None => self.operator.read(tenant, name).await?,
        };
        let denied = |why: String| Failure::new(codes::DENIED, format!("the secret `{name}`: {why}"));
        text.ok_or_else(|| denied(self.refuse(tenant, name)))
    }

    fn meant_for(&self, tenant: &Tenant, name: &str) -> Result<Option<OriginGrants>, Failure> {
        let kept = self.store.as_ref().map_or(Ok(None), |store| store.meant_for(tenant, name))?;
        Ok(kept.or_else(|| self.operator.meant_for(tenant, name).cloned()))
    }

    async fn read_from_store(&self, tenant: &Tenant, name: &str) -> Result<Option<Zeroizing<String>>, Failure> {
        let Some(store) = self.store.clone() else { return Ok(None) };
        let (tenant, name) = (tenant.clone(), name.to_owned());
        let opened = tokio::task::spawn_blocking(move || store.open(&tenant, &name)).await;
        opened.unwrap_or_else(|_| Err(Failure::new(codes::DENIED, "the store of secrets failed")))
    }

    fn refuse(&self, tenant: &Tenant, name: &str) -> String {
        self.store.iter().for_each(|store| store.refused(tenant, name));
        missing(tenant, name)
    }
}

/// Returns the message for a secret that the tenant does not have. It does not reveal if another tenant has it.
fn missing(tenant: &Tenant, name: &str) -> String {
    format!(
        "the secret `{name}` does not exist; create it with `flowcell secret set {}{} --for ORIGIN`, where ORIGIN \
         is the server that may receive it",
        shell_word(name),
        tenant_option(tenant)
    )
}

fn not_for(tenant: &Tenant, name: &str, origin: &str) -> String {
    format!(
        "the secret `{name}` is not for {origin}; to allow it, use `flowcell secret set {}{} --for {}`",
        shell_word(name),
        tenant_option(tenant),
        shell_word(origin)
    )
}

fn tenant_option(tenant: &Tenant) -> String {
    if *tenant == Tenant::local() { String::new() } else { format!(" --tenant {}", shell_word(tenant.as_str())) }
}
