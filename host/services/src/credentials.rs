//! Credentials: named values of a tenant with a kind, which the host adds to requests of nodes.
//!
//! A tenant's credentials are in a [`CredentialStore`]: settings that may be shown ([`Settings`]), secrets that may not
//! ([`SecretMembers`]), and the servers that may receive them. A flow grants a node a credential by name
//! ([`CredentialGrant`]). The host adds it to a request if the origin of the request is covered by the grants of `http`, by
//! the hosts that the node type declares, and by the servers of the credential. It sends credentials only over TLS, or to a
//! private address that the operator has listed. No node, event, log, input or idempotency key has more than the name.
//!
//! | module | contents |
//! |---|---|
//! | settings | the settings and the secrets of each kind |
//! | setting_names | the names and values of the settings, for messages |
//! | apply | adds opened credentials to a message |
//! | hmac | signatures of the kind `hmac` |
//! | sigv4 | signatures of AWS |
//! | oauth2 | requests to token endpoints |
//! | tokens | the tokens of a credential, which one process at a time renews |

mod apply;
mod hmac;
mod oauth2;
mod setting_names;
mod settings;
mod sigv4;
#[cfg(test)]
mod tests;
mod tokens;

use std::sync::Arc;

use flowcell_contract::{CredentialGrant, CredentialKind, Failure, Json, Tenant, code as codes};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

pub(crate) use self::apply::{Applied, apply_to, check_free};
pub use self::{
    hmac::HmacSettings,
    oauth2::{Authorization, Lifetime, Token, read_redirect, refusal_text},
    settings::{
        Grant, MAX_SECRET_BYTES, MAX_SETTINGS_BYTES, MIN_SECRET_BYTES, OAuth2Settings, SecretMembers, Settings,
        SigV4Settings,
    },
    tokens::{REFRESH_LEASE_MS, RENEWAL_PAUSE_MS, RefreshFailure, TokenState},
};
use crate::{
    client::Client,
    egress::{Destination, OriginGrants},
};

/// The member of a node's `grants` that lists credentials.
pub const GRANT: &str = flowcell_contract::CREDENTIALS;

/// A credential without its secrets.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownCredential {
    /// The settings, which may be shown.
    pub settings: Settings,
    /// The servers that may receive it.
    pub origins: OriginGrants,
    /// The number of times that it was set. Tokens belong to one version.
    pub version: u64,
    /// The time in milliseconds since 1970 at which it was first set.
    pub created: u64,
}

/// Tells a credential from what it was before it was set again, or removed and set again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edition {
    /// The time in milliseconds since 1970 at which it was first set.
    pub created: u64,
    /// The number of times that it was set since then.
    pub version: u64,
}

impl KnownCredential {
    /// Returns the edition of the credential.
    pub fn edition(&self) -> Edition {
        Edition { created: self.created, version: self.version }
    }
}

/// A credential with its secrets.
pub struct OpenCredential {
    /// The credential without its secrets.
    pub known: KnownCredential,
    /// The secrets.
    pub secrets: SecretMembers,
}

/// A store of the tenants' credentials. Its functions may wait for a disk or a database.
pub trait CredentialStore: Send + Sync {
    /// Returns a credential without its secrets, or `None` if the tenant has none of this name.
    fn find(&self, tenant: &Tenant, name: &str) -> Result<Option<KnownCredential>, Failure>;

    /// Returns a credential with its secrets, or `None` if the tenant has none of this name.
    fn open(&self, tenant: &Tenant, name: &str) -> Result<Option<OpenCredential>, Failure>;

    /// Records that the host refused a run a credential, because the tenant of the run has none of this name.
    fn refused(&self, tenant: &Tenant, name: &str);

    /// Fails if the operator does not allow the tenant requests to the token endpoint at `url`.
    fn check_token_url(&self, tenant: &Tenant, url: &str) -> Result<(), Failure>;

    /// Returns the time in milliseconds since 1970.
    fn now(&self) -> u64;

    /// Returns the tokens of a version of a credential.
    fn tokens(&self, tenant: &Tenant, name: &str, version: u64) -> Result<TokenState, Failure>;

    /// Replaces the tokens of a version of a credential. Does nothing and returns false if another caller has replaced them
    /// since they were read ([`TokenState::seen`]). The tokens are on stable storage when the function returns.
    fn replace_tokens(&self, tenant: &Tenant, name: &str, version: u64, state: &TokenState) -> Result<bool, Failure>;

    /// Waits before a process looks again at the tokens that another process renews.
    fn pause(&self) -> BoxFuture<'static, ()>;
}

/// The credentials of all tenants. Cheap to clone.
#[derive(Clone, Default)]
pub struct Credentials {
    store: Option<Arc<dyn CredentialStore>>,
}

/// A granted credential that belongs into a request.
pub(crate) struct Bound {
    pub(crate) grant: CredentialGrant,
    known: KnownCredential,
}

impl Credentials {
    /// Returns the credentials of a store.
    pub fn of(store: Arc<dyn CredentialStore>) -> Credentials {
        Credentials { store: Some(store) }
    }

    /// Checks if a grant is usable; the error says how to correct it. Reads no secret.
    pub fn check(&self, tenant: &Tenant, grant: &CredentialGrant) -> Result<(), String> {
        let known = self.find(tenant, &grant.credential).map_err(|failure| failure.message)?;
        let known = known.ok_or_else(|| missing(tenant, grant))?;
        fits(grant, &known).map_err(|why| format!("the credential `{}` {why}", grant.credential))?;
        let hosts = grant_hosts(grant)?;
        if !hosts.is_empty() && !hosts.overlaps(&known.origins) {
            let (hosts, command) = (grant.hosts.join("`, `"), grant.command());
            return Err(format!(
                "the credential `{}` is not for `{hosts}`, where the node sends it; to allow it, set it again: \
                 `{command}{}`",
                grant.credential,
                tenant_option(tenant)
            ));
        }
        Ok(())
    }

    /// Returns the granted credentials that belong into a request to this destination. Fails if one is missing, or no
    /// longer fits its grant.
    pub(crate) fn for_destination(
        &self,
        tenant: &Tenant,
        grant: &Json,
        to: &Destination,
    ) -> Result<Vec<Bound>, Failure> {
        let mut bound = Vec::new();
        for grant in CredentialGrant::parse_all(grant).map_err(denied)? {
            let known = self.find(tenant, &grant.credential)?;
            let known = known.ok_or_else(|| {
                self.store.iter().for_each(|store| store.refused(tenant, &grant.credential));
                denied(missing(tenant, &grant))
            })?;
            fits(&grant, &known).map_err(|why| denied(format!("the credential `{}` {why}", grant.credential)))?;
            let hosts = grant_hosts(&grant).map_err(denied)?;
            if known.origins.covers(to) && (hosts.is_empty() || hosts.covers(to)) {
                bound.push(Bound { grant, known });
            }
        }
        match apply::first_conflict(&bound) {
            Some((one, other)) => Err(denied(format!(
                "the credentials `{one}` and `{other}` have the same place in a request to {}; grant the node one of them",
                to.origin()
            ))),
            None => Ok(bound),
        }
    }

    /// Opens credentials for a request. Gets a token for those of the kind `oauth2`. A token other than `stale` is used if
    /// there is one.
    pub(crate) async fn open(
        &self,
        client: &Client,
        tenant: &Tenant,
        bound: &[Bound],
        stale: &[Applied],
    ) -> Result<Vec<Applied>, Failure> {
        let mut opened = Vec::new();
        for Bound { grant, known } in bound {
            let name = grant.credential.to_string();
            let store = self.store.clone().ok_or_else(|| denied("this host has no credentials".into()))?;
            let OpenCredential { known: now, secrets } = open(&store, tenant, &name).await?;
            if now.settings != known.settings || now.origins != known.origins {
                return Err(denied(format!("the credential `{name}` was changed at this moment; try again")));
            }
            let token = match &now.settings {
                Settings::OAuth2(settings) => {
                    let stale = stale.iter().find(|applied| applied.name == name).and_then(Applied::token);
                    let of = tokens::Of { store, client, tenant, name: &name, version: now.version, settings };
                    Some(of.current(&secrets, stale).await?)
                }
                _ => None,
            };
            opened.push(Applied::new(name, now.settings, secrets, token));
        }
        Ok(opened)
    }

    /// Returns the time in milliseconds since 1970.
    pub(crate) fn now(&self) -> u64 {
        self.store.as_ref().map_or(0, |store| store.now())
    }

    fn find(&self, tenant: &Tenant, name: &str) -> Result<Option<KnownCredential>, Failure> {
        self.store.as_ref().map_or(Ok(None), |store| store.find(tenant, name))
    }
}

/// Finishes the connection of a credential: exchanges the code of an authorization for tokens, and stores them.
pub async fn connect(
    store: Arc<dyn CredentialStore>,
    client: &Client,
    tenant: &Tenant,
    name: &str,
    authorization: &Authorization,
) -> Result<(), Failure> {
    let OpenCredential { known, secrets } = open(&store, tenant, name).await?;
    let Settings::OAuth2(settings) = &known.settings else {
        return Err(denied(format!("the credential `{name}` is not of the kind `oauth2`")));
    };
    // The code is for the endpoint that the person has seen, and not for that of a credential set since then.
    if authorization.edition.is_some_and(|edition| edition != known.edition()) {
        return Err(denied(format!("the credential `{name}` was set again meanwhile; connect it again")));
    }
    let of = tokens::Of { store, client, tenant, name, version: known.version, settings };
    of.connect(&secrets, authorization).await
}

async fn open(store: &Arc<dyn CredentialStore>, tenant: &Tenant, name: &str) -> Result<OpenCredential, Failure> {
    let (own, owner, of) = (store.clone(), tenant.clone(), name.to_owned());
    let opened = blocking(move || own.open(&owner, &of)).await?;
    opened.ok_or_else(|| {
        store.refused(tenant, name);
        denied(missing(tenant, &CredentialGrant::new(name.into(), name.into(), None)))
    })
}

/// Runs a function of the store on a thread for blocking work.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Failure> + Send + 'static) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(denied("the store of credentials failed".into())))
}

/// Checks that a credential has the kind and the place that a node type declares. The error is a part of a sentence.
fn fits(grant: &CredentialGrant, known: &KnownCredential) -> Result<(), String> {
    let kind = known.settings.kind();
    // A node cannot tell a token of OAuth 2 from another one.
    let is_token = grant.kind == Some(CredentialKind::Bearer) && kind == CredentialKind::OAuth2;
    if let Some(wanted) = grant.kind.filter(|wanted| *wanted != kind && !is_token) {
        return Err(format!("is of the kind `{kind}`, and the node type needs `{wanted}`"));
    }
    if let (Settings::ApiKey { place, key, .. }, Some(wanted)) = (&known.settings, grant.place) {
        let name_fits = grant.key.as_deref().is_none_or(|wanted| match place {
            flowcell_contract::KeyPlace::Header => wanted.eq_ignore_ascii_case(key),
            _ => wanted == key,
        });
        if *place != wanted || !name_fits {
            let key = grant.key.as_deref().map(|key| format!(" with the name `{key}`")).unwrap_or_default();
            return Err(format!(
                "is a key in `{}`, and the node type needs one in `{}`{key}",
                place.name(),
                wanted.name()
            ));
        }
    }
    Ok(())
}

/// Returns the hosts that a node type declares for a credential.
fn grant_hosts(grant: &CredentialGrant) -> Result<OriginGrants, String> {
    let hosts = grant.hosts.iter().map(|host| host.parse());
    hosts.collect::<Result<_, String>>().map_err(|why| format!("the hosts of `{}` in its manifest: {why}", grant.name))
}

/// Returns the message for a credential that the tenant does not have. It does not reveal if another tenant has it.
fn missing(tenant: &Tenant, grant: &CredentialGrant) -> String {
    format!(
        "the credential `{}` does not exist; create it with `{}{}`",
        grant.credential,
        grant.command(),
        tenant_option(tenant)
    )
}

fn tenant_option(tenant: &Tenant) -> String {
    if *tenant == Tenant::local() { String::new() } else { format!(" --tenant {tenant}") }
}

fn denied(why: String) -> Failure {
    Failure::new(codes::DENIED, format!("grants.credentials: {why}"))
}
