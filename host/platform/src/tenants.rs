//! The tenants of a server, their tokens, and their audit logs.
//!
//! | module | contents |
//! |---|---|
//! | [`across`] | the runs of all tenants as one list |
//! | [`token`] | tokens: shown once, stored as hashes |
//! | [`callers`] | the callers of a server: tenants, or any local caller while no tenant exists |
//! | listed | the tenants whose runs are driven |
//! | token_use, refusals | the last use of tokens, and warnings before they expire; the rejected tokens in the audit log |
//! | [`audit`] | audit logs, a hash chain for each tenant |
//! | [`login`] | logins of browsers and of commands, with one-time codes |
//! | [`accounts`] | accounts of people identified by an issuer, and their sessions |
//! | [`deletion`] | the removal of a tenant |
//! | [`retention`] | the removal of old runs by rules |
//! | [`operation`] | operators' requests from any process |
//! | error | the errors of all of these |
//!
//! All of these data are in the documents of the store, so every process on a shared store has the same data.

pub mod accounts;
pub mod across;
pub mod audit;
pub mod callers;
pub mod deletion;
mod error;
mod listed;
pub mod login;
pub mod operation;
mod refusals;
pub mod retention;
pub mod token;
mod token_use;

use std::{collections::HashMap, sync::Arc};

use flowcell_contract::{Json, Tenant};
use flowcell_runtime::ports::{DocumentStore, MaybeStoreError, StoreError};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    Host,
    host::{erasure::eraser, granted::grantable},
    operate::{
        account::{AccountRefusal, Granted, Subject},
        audit::{AUDIT, append, key},
        documents::{Documents, read, to_json},
        identity::{AuthError, Caller, Identify, Login, LoginClient, OwnToken, Refusal},
        policy::{OPERATORS, POLICY, Policy},
        record::{TENANT, TenantRecord},
        usage::Used,
        vault::{LostSecrets, Vault},
    },
};
use audit::{Act, AuditEntry, Outcome, Verified};
pub use error::TenantError;
use listed::ListedTenants;
use operation::Operation;
use refusals::Refusals;
pub use token::NewToken;
use token::{Token, is_valid_name};
use token_use::TokenUses;

/// The actor in audit entries of operators.
const OPERATOR: &str = "operator";
/// The actor in audit entries of rejected tokens.
const NOBODY: &str = "nobody";
const TOKEN: &str = "token";
/// Number of entries of an audit log that are read at a time.
const PAGE: usize = 500;
/// Maximum number of characters of a tenant's name.
const MAX_NAME: usize = 64;

/// A tenant, as operators see it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TenantRow {
    /// The tenant's name.
    pub name: String,
    /// The time of its creation, in milliseconds since 1970.
    pub created: u64,
    /// True while the tenant's tokens are rejected, and none of its runs starts or continues.
    pub disabled: bool,
    /// True if the removal of the tenant has begun.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub being_removed: bool,
}

/// The tenants of a store. Clones share the cache of rejected tokens.
#[derive(Clone)]
pub struct Tenants {
    /// The host of the operators' tenant.
    host: Host,
    refusals: Arc<Refusals>,
    uses: Arc<TokenUses>,
    listed: Arc<ListedTenants>,
    /// The actor in audit entries about changes.
    actor: Arc<str>,
}

impl Tenants {
    /// Returns the tenants in the store of a host.
    pub fn of(host: &Host) -> Tenants {
        let host = host.for_tenant(Tenant::from(OPERATORS));
        Tenants { host, refusals: Arc::default(), uses: Arc::default(), listed: Arc::default(), actor: OPERATOR.into() }
    }

    /// Returns the same tenants. Audit logs name `actor`, the id of a token, for changes through the result.
    pub fn acting_as(&self, actor: &Arc<str>) -> Tenants {
        Tenants { actor: actor.clone(), ..self.clone() }
    }

    /// Creates a tenant. Fails if a removed tenant had the name, so that the two are not confused.
    pub fn create(&self, name: &str) -> Result<(), TenantError> {
        match deletion::certificate_of(self, name)? {
            Some(_) => Err(TenantError::Removed(name.to_owned())),
            None => self.create_again(name),
        }
    }

    /// Creates a tenant, also with the name of a removed one.
    pub fn create_again(&self, name: &str) -> Result<(), TenantError> {
        if !is_valid_name(name) {
            return Err(TenantError::Name(name.to_owned()));
        }
        let tenant = TenantRecord { created: self.host.now(), disabled: false, removal: None };
        if !self.put(TENANT, name, Some(&tenant), 0)? {
            return Err(TenantError::Taken(name.to_owned()));
        }
        eraser(&self.host).readmit(&Tenant::from(name));
        self.host.usage().readmit(&Tenant::from(name));
        self.note(name, "tenant.create", name, Outcome::Done)
    }

    /// Enables or disables a tenant and its tokens.
    pub fn enable(&self, name: &str, enabled: bool) -> Result<(), TenantError> {
        let (tenant, version) = self.tenant(name)?;
        let tenant = TenantRecord { disabled: !enabled, ..tenant };
        if !self.put(TENANT, name, Some(&tenant), version)? {
            return Err(TenantError::Changed(name.to_owned()));
        }
        let action = if enabled { "tenant.enable" } else { "tenant.disable" };
        self.note(name, action, name, Outcome::Done)
    }

    /// Returns all tenants, sorted by name.
    pub fn list(&self) -> Result<Vec<TenantRow>, TenantError> {
        let row = |(name, of): (String, TenantRecord)| {
            let TenantRecord { created, disabled, removal } = of;
            TenantRow { name, created, disabled, being_removed: removal.is_some() }
        };
        Ok(self.all(TENANT)?.into_iter().map(row).collect())
    }

    fn tenant(&self, name: &str) -> Result<(TenantRecord, u64), TenantError> {
        let found = self.get::<TenantRecord>(TENANT, name)?.ok_or_else(|| TenantError::Unknown(name.to_owned()))?;
        match found.0.removal {
            Some(_) => Err(TenantError::BeingRemoved(name.to_owned())),
            None => Ok(found),
        }
    }

    /// Adds an audit entry about a rejected token, at most once a minute. So guesses of tokens cannot fill the log.
    fn reject_token(&self, tenant: &str, token: &str) -> AuthError {
        if self.refusals.is_due(token, self.host.now()) {
            let noted = self.note_by(NOBODY, tenant, "token.refused", token, Outcome::Refused);
            noted.unwrap_or_else(|error| tracing::warn!("cannot write a refusal to the audit log: {error}"));
        }
        AuthError::Unknown
    }

    /// Returns a tenant, or an error if it does not exist. `local` always exists.
    fn existing_tenant(&self, name: &str) -> Result<Tenant, TenantError> {
        let tenant = Tenant::from(name);
        if tenant != Tenant::local() {
            self.tenant(name)?;
        }
        Ok(tenant)
    }

    /// Returns `local` and all other tenants that are not being removed, since each may have secrets.
    fn all_tenants(&self) -> Result<Vec<Tenant>, TenantError> {
        let others = self.list()?.into_iter().filter(|row| !row.being_removed).map(|row| Tenant::from(row.name));
        let others = others.filter(|name| *name != Tenant::local());
        Ok(std::iter::once(Tenant::local()).chain(others).collect())
    }

    /// Returns the tenants with secrets that none of the given keys opens.
    pub fn lost_secrets(&self) -> Result<Vec<(Tenant, LostSecrets)>, TenantError> {
        let lost = |tenant: Tenant| Ok((tenant.clone(), self.vault().lost(&tenant)?));
        let all: Vec<_> = self.all_tenants()?.into_iter().map(lost).collect::<Result<_, TenantError>>()?;
        Ok(all.into_iter().filter(|(_, lost)| !lost.is_empty()).collect())
    }

    /// Returns the policy of a tenant.
    pub fn policy(&self, tenant: &str) -> Result<Policy, TenantError> {
        self.tenant(tenant)?;
        Ok(Policy::read(self.document_store(), &Tenant::from(tenant))?)
    }

    /// Returns the tenant's usage of today.
    pub fn used(&self, tenant: &str) -> Result<Used, TenantError> {
        self.tenant(tenant)?;
        Ok(self.host.usage().of_today(&Tenant::from(tenant))?)
    }

    /// Sets the policy of a tenant. Runs that were already accepted continue with their grants.
    pub fn set_policy(&self, tenant: &str, policy: &Policy) -> Result<(), TenantError> {
        self.tenant(tenant)?;
        policy.check(&grantable(&self.host)).map_err(TenantError::Policy)?;
        let seen = self.get::<Policy>(POLICY, tenant)?.map_or(0, |(_, version)| version);
        if !self.put(POLICY, tenant, Some(policy), seen)? {
            return Err(TenantError::Changed(tenant.to_owned()));
        }
        let set = to_json(tenant, policy)?.to_text();
        self.note(tenant, "tenant.policy", &set, Outcome::Done)
    }

    /// Returns the host for a tenant, with its policy. `local` always exists.
    pub fn host(&self, tenant: &Tenant) -> Result<Host, TenantError> {
        let tenant = self.existing_tenant(tenant.as_str())?;
        let policy = Policy::read(self.document_store(), &tenant)?;
        Ok(self.host.for_tenant(tenant).with_policy(Arc::new(policy)))
    }

    /// Returns the entries of a tenant after a sequence number, at most `limit`.
    pub fn audit(&self, tenant: &str, after: u64, limit: usize) -> Result<Vec<AuditEntry>, TenantError> {
        let tenant = Tenant::from(tenant);
        let found = self.document_store().list(&tenant, AUDIT, &key(after), limit)?;
        Ok(found.iter().map(read).collect::<Result<_, _>>()?)
    }

    /// Verifies the whole log of a tenant. If `noted` is given, the log must contain an entry with this hash: the
    /// head that an earlier verification returned.
    pub fn verify_audit(&self, tenant: &str, noted: Option<&str>) -> Result<Verified, TenantError> {
        audit::verify(self, tenant, noted)
    }

    /// Executes an operator's request and returns its result.
    pub fn operate(&self, operation: &Operation) -> Result<Json, TenantError> {
        operation::operate(self, operation)
    }

    fn vault(&self) -> &Vault {
        self.host.vault()
    }

    /// Adds an audit entry about an operator's action on a tenant.
    pub fn note(&self, tenant: &str, action: &str, subject: &str, outcome: Outcome) -> Result<(), TenantError> {
        self.note_by(&self.actor, tenant, action, subject, outcome)
    }

    fn note_by(
        &self,
        actor: &str,
        tenant: &str,
        action: &str,
        subject: &str,
        outcome: Outcome,
    ) -> Result<(), TenantError> {
        let act = Act { actor: actor.into(), action: action.into(), subject: subject.into(), outcome };
        Ok(append(self.document_store(), &Tenant::from(tenant), self.host.now(), &act)?)
    }

    fn document_store(&self) -> &dyn DocumentStore {
        self.host.documents()
    }

    fn documents(&self) -> Documents<'_> {
        Documents { store: self.document_store(), tenant: self.host.tenant() }
    }

    fn get<T: DeserializeOwned>(&self, kind: &str, key: &str) -> Result<Option<(T, u64)>, TenantError> {
        Ok(self.documents().get(kind, key)?)
    }

    fn all<T: DeserializeOwned>(&self, kind: &str) -> Result<Vec<(String, T)>, TenantError> {
        Ok(self.documents().all(kind)?)
    }

    fn put<T: Serialize>(&self, kind: &str, key: &str, value: Option<&T>, seen: u64) -> Result<bool, TenantError> {
        Ok(self.documents().put(kind, key, value, seen)?)
    }
}

impl Identify for Tenants {
    /// Returns the caller for a valid token of an enabled tenant.
    fn identify(&self, bearer: Option<&str>) -> Result<Caller, AuthError> {
        let shown = bearer.ok_or(AuthError::Missing)?;
        let (id, secret) = token::split_token(shown).ok_or(AuthError::Unknown)?;
        let known: Option<(Token, u64)> = self.get(TOKEN, id).map_err(|_| AuthError::Unavailable)?;
        let Some((known, _)) = known else {
            return Err(self.reject_token(OPERATORS, "unknown"));
        };
        if !known.accepts(secret, self.host.now()) || login::parent_refusal(self, id, &known)?.is_some() {
            return Err(self.reject_token(&known.tenant, id));
        }
        if !known.is_of_operators() {
            let (tenant, _) = self.tenant(&known.tenant).map_err(|error| match error {
                TenantError::Unknown(_) | TenantError::BeingRemoved(_) => AuthError::Unknown,
                _ => AuthError::Unavailable,
            })?;
            if tenant.disabled {
                return Err(self.reject_token(&known.tenant, id));
            }
        }
        let tenant = Tenant::from(known.tenant.as_str());
        let policy = Policy::read(self.document_store(), &tenant).map_err(|_| AuthError::Unavailable)?;
        self.uses.note(id, tenant.as_str(), known.expiry_of_use(), self.host.now());
        let token = Some(Arc::from(id));
        Ok(Caller { tenant, scopes: known.scopes(), token, policy: Arc::new(policy) })
    }

    fn token_of(&self, caller: &Caller) -> Result<OwnToken, AuthError> {
        token::own_token(self, caller)
    }

    fn still_knows(&self, caller: &Caller) -> bool {
        // If the store does not answer, the caller must authenticate again.
        matches!(self.refusal(caller), Ok(None))
    }

    fn refusal(&self, caller: &Caller) -> Result<Option<Refusal>, AuthError> {
        login::refusal(self, caller)
    }

    fn token_ends(&self, now: u64) -> Result<HashMap<Tenant, u64>, StoreError> {
        token::token_ends(self, now).map_err(|error| error.to_store_error())
    }

    fn log_in(&self, proof: &str, client: LoginClient<'_>) -> Result<Login, AuthError> {
        login::log_in(self, proof, client)
    }

    fn log_out(&self, caller: &Caller) -> Result<bool, AuthError> {
        login::log_out(self, caller)
    }

    fn sign_in(&self, granted: &Granted) -> Result<Login, AccountRefusal> {
        accounts::sign_in(self, granted)
    }

    fn end_sessions(&self, subject: &Subject) -> Result<(), AccountRefusal> {
        accounts::end_sessions(self, subject)
    }

    fn note(&self, caller: &Caller, action: &str, subject: &str) -> Result<(), AuthError> {
        let actor = caller.token.as_deref().unwrap_or(OPERATOR);
        self.note_by(actor, caller.tenant.as_str(), action, subject, Outcome::Done).map_err(|_| AuthError::Unavailable)
    }

    fn flush(&self) -> Result<(), StoreError> {
        self.uses.flush(self).map_err(|error| error.to_store_error())
    }

    fn policy(&self, tenant: &Tenant) -> Result<Policy, AuthError> {
        Policy::read(self.document_store(), tenant).map_err(|_| AuthError::Unavailable)
    }

    fn tenants(&self) -> Vec<Tenant> {
        self.listed.update(self.list().map_err(|error| error.to_store_error()))
    }
}
