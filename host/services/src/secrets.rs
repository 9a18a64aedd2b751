//! Secrets that flows name and never see: the host puts them into a header of a request, for the server that they are for.
//!
//! A tenant's secrets are in a [`SecretStore`]. The operator of the tenant `local` may also say where each is, and for which
//! origins, in a YAML file ([`OperatorSecrets`]); what is in the store comes first:
//!
//! ```yaml
//! api-token: { keyEnv: API_TOKEN, for: ["https://api.example.com"] }
//! crm: { keyFile: crm.key, for: ["https://*.crm.example/v2"] }   # beside this file
//! github: { keyEnv: GITHUB_HOOK, for: webhook }                  # what posts to triggers are signed with
//! ```
//!
//! A flow names one in the grants of a node that sends requests ([`SecretGrants`]). It is read when the request leaves, is
//! put into that header alone, and is taken out again of everything that comes back, however it is encoded there. It is sent over TLS
//! only, or to a private address that the operator has listed.

mod grant;
mod operator;

use std::sync::Arc;

use flowcell_contract::{Failure, Tenant, code as codes};
use zeroize::Zeroizing;

pub use self::{
    grant::{SecretGrant, SecretGrants, check_name},
    operator::OperatorSecrets,
};
use crate::{
    egress::{Destination, OriginGrants},
    secret::Key,
    webhook::SigningKey,
};

/// The name under which secrets are granted.
pub const GRANT: &str = flowcell_contract::SECRETS;

/// What a secret is for whose posts to triggers are signed with it; it is sent to nobody.
pub const WEBHOOK: &str = "webhook";

/// The fewest characters of a secret: a shorter one would be found in everything that is searched for it.
const MIN_SECRET: usize = 8;

/// Where the secrets of tenants are kept.
pub trait SecretStore: Send + Sync {
    /// For whom a secret is; none if the tenant has none of this name.
    fn meant_for(&self, tenant: &Tenant, name: &str) -> Result<Option<OriginGrants>, Failure>;

    /// What it is.
    fn open(&self, tenant: &Tenant, name: &str) -> Result<Option<Zeroizing<String>>, Failure>;

    /// Notes that a run was refused a secret which its tenant does not have.
    fn refused(&self, tenant: &Tenant, name: &str);
}

/// All secrets that there are, wherever they are. Cheap to clone.
#[derive(Clone, Default)]
pub struct Secrets {
    store: Option<Arc<dyn SecretStore>>,
    operator: OperatorSecrets,
}

impl From<OperatorSecrets> for Secrets {
    fn from(operator: OperatorSecrets) -> Secrets {
        Secrets { store: None, operator }
    }
}

impl Secrets {
    /// The same, and before them those of a store.
    pub fn and_kept(self, store: Arc<dyn SecretStore>) -> Secrets {
        Secrets { store: Some(store), ..self }
    }

    /// What keeps a grant from being used, with what mends it. Looks at names, and for whom they are.
    pub fn check(&self, tenant: &Tenant, grant: &SecretGrant) -> Result<(), String> {
        let name = &grant.name;
        let known = self.meant_for(tenant, name).map_err(|failure| failure.message)?;
        let known = known.ok_or_else(|| missing(tenant, name))?;
        match grant.origins.as_ref().and_then(|origins| known.outside(origins)) {
            Some(origin) => Err(not_for(tenant, name, &origin)),
            None => Ok(()),
        }
    }

    /// The grants that are for this destination. Those of secrets that are for others are refused.
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

    /// The key with which posts to a trigger are signed: a secret that is for [`WEBHOOK`]. One that is for something else signs
    /// nothing.
    pub async fn signing_key(&self, tenant: &Tenant, name: &str) -> Result<SigningKey, Failure> {
        let denied = |why: String| Failure::new(codes::DENIED, format!("the secret `{name}`: {why}"));
        self.check_signing(tenant, name).map_err(|why| Failure::new(codes::DENIED, why))?;
        SigningKey::new(&self.read(tenant, name).await?.text("")).map_err(denied)
    }

    /// What keeps a secret from signing posts, with what mends it. Looks at its name, and what it is for.
    pub fn check_signing(&self, tenant: &Tenant, name: &str) -> Result<(), String> {
        let known = self.meant_for(tenant, name).map_err(|failure| failure.message)?;
        if known.is_some_and(|origins| origins.is_nowhere()) {
            return Ok(());
        }
        let help = format!("`flowcell secret set {name}{} --for {WEBHOOK}` adds it", of(tenant));
        Err(format!("the secret `{name}`: there is none with which posts are signed; {help}"))
    }

    /// Reads a secret, for whom it is meant.
    pub(crate) async fn read(&self, tenant: &Tenant, name: &str) -> Result<Key, Failure> {
        let denied = |why: String| Failure::new(codes::DENIED, format!("the secret `{name}`: {why}"));
        if let Some(value) = self.kept(tenant, name).await? {
            return Key::of(value).map_err(|why| denied(why.to_owned()));
        }
        let key = self.operator.read(tenant, name).await?;
        key.ok_or_else(|| denied(self.refuse(tenant, name)))
    }

    fn meant_for(&self, tenant: &Tenant, name: &str) -> Result<Option<OriginGrants>, Failure> {
        let kept = self.store.as_ref().map_or(Ok(None), |store| store.meant_for(tenant, name))?;
        Ok(kept.or_else(|| self.operator.meant_for(tenant, name).cloned()))
    }

    async fn kept(&self, tenant: &Tenant, name: &str) -> Result<Option<Zeroizing<String>>, Failure> {
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

/// Of another tenant's secret nothing else is said than of one that nobody has.
fn missing(tenant: &Tenant, name: &str) -> String {
    format!(
        "there is no secret `{name}`; add it with `flowcell secret set {name}{} --for ORIGIN`, with the server that it is sent to",
        of(tenant)
    )
}

fn not_for(tenant: &Tenant, name: &str, origin: &str) -> String {
    format!(
        "the secret `{name}` is not for {origin}; `flowcell secret set {name}{} --for {origin}` says for whom",
        of(tenant)
    )
}

fn of(tenant: &Tenant) -> String {
    if *tenant == Tenant::local() { String::new() } else { format!(" --tenant {tenant}") }
}
