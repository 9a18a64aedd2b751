//! Tenants of a server: who they are, which tokens let them in, and what was done in their name.
//!
//! | room | what it is |
//! |---|---|
//! | [`token`] | what lets somebody in: shown once, kept as a hash |
//! | [`audit`] | what was done, as a chain of hashes for each tenant |
//! | [`policy`] | what a tenant may do, and how much |
//! | [`operation`] | what operators ask for, from whichever process |
//!
//! All of it is in the registry of the store, so that every process on a shared store knows the same.

pub mod audit;
pub mod operation;
pub mod policy;
pub mod token;

use std::sync::Arc;

use flowcell_contract::{Json, Tenant};
use flowcell_runtime::ports::{Registered, Registry, StoreError};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    Host,
    server::identity::{Caller, Identify, Refused},
};
use audit::{Act, Outcome};
use token::Token;

/// In whose name operators act. No tenant has this name.
const OPERATORS: &str = "";
const TENANT: &str = "tenant";
const TOKEN: &str = "token";
/// Tenants, and tokens of a tenant, that are read at a time.
const PAGE: usize = 500;
/// Characters of a tenant's name.
const MAX_NAME: usize = 64;

/// Why something about tenants was not done.
#[derive(Debug, thiserror::Error)]
pub enum TenantError {
    /// There is none of this name.
    #[error("there is no tenant `{0}`; `flowcell tenant create {0}` makes it")]
    Unknown(String),
    /// The name is taken.
    #[error("there is a tenant `{0}` already")]
    Taken(String),
    /// It cannot be the name of a tenant.
    #[error("`{0}` cannot be a tenant's name: it has 1 to {MAX_NAME} letters, digits, `-` and `_`")]
    Name(String),
    /// There is no such token.
    #[error("there is no token `{0}`; `flowcell token list` tells which there are")]
    UnknownToken(String),
    /// There is no such scope.
    #[error("there is no scope `{0}`; the scopes are {1}")]
    UnknownScope(String, String),
    /// Somebody else has changed it at the same time.
    #[error("`{0}` was changed by somebody else at the same time; try again")]
    Changed(String),
    /// What is registered is not as it was written.
    #[error("what is registered of `{0}` is damaged: {1}")]
    Damaged(String, String),
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl TenantError {
    /// A stable code.
    pub fn code(&self) -> &'static str {
        match self {
            TenantError::Unknown(_) => "tenant_not_found",
            TenantError::Taken(_) => "tenant_exists",
            TenantError::Name(_) => "invalid_name",
            TenantError::UnknownToken(_) => "token_not_found",
            TenantError::UnknownScope(..) => "unknown_scope",
            TenantError::Changed(_) => "conflict",
            TenantError::Damaged(..) => "damaged",
            TenantError::Store(_) => "store_unavailable",
        }
    }
}

/// What is registered of a tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfTenant {
    created: u64,
    /// Its tokens let nobody in.
    #[serde(default)]
    disabled: bool,
}

/// A tenant, as operators see it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TenantRow {
    /// Its name.
    pub name: String,
    /// When it was made, in milliseconds since 1970.
    pub created: u64,
    /// Its tokens let nobody in, and none of its runs is begun or gone on with.
    pub disabled: bool,
}

/// The tenants of a store.
#[derive(Clone)]
pub struct Tenants(Host);

impl Tenants {
    /// Those in the store of a host.
    pub fn of(host: &Host) -> Tenants {
        Tenants(host.of(Tenant::from(OPERATORS)))
    }

    /// Makes a tenant.
    pub fn create(&self, name: &str) -> Result<(), TenantError> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(fits) {
            return Err(TenantError::Name(name.to_owned()));
        }
        let tenant = OfTenant { created: self.0.now(), disabled: false };
        if !self.put(TENANT, name, Some(&tenant), 0)? {
            return Err(TenantError::Taken(name.to_owned()));
        }
        self.note(name, "tenant.create", name, Outcome::Done)
    }

    /// Lets the tokens of a tenant in, or nobody.
    pub fn enable(&self, name: &str, enabled: bool) -> Result<(), TenantError> {
        let (tenant, version) = self.tenant(name)?;
        let tenant = OfTenant { disabled: !enabled, ..tenant };
        if !self.put(TENANT, name, Some(&tenant), version)? {
            return Err(TenantError::Changed(name.to_owned()));
        }
        let action = if enabled { "tenant.enable" } else { "tenant.disable" };
        self.note(name, action, name, Outcome::Done)
    }

    /// All tenants, in the order of their names.
    pub fn list(&self) -> Result<Vec<TenantRow>, TenantError> {
        let row = |(name, of): (String, OfTenant)| TenantRow { name, created: of.created, disabled: of.disabled };
        Ok(self.all(TENANT)?.into_iter().map(row).collect())
    }

    fn tenant(&self, name: &str) -> Result<(OfTenant, u64), TenantError> {
        self.get(TENANT, name)?.ok_or_else(|| TenantError::Unknown(name.to_owned()))
    }

    /// Notes what was done in the name of a tenant.
    fn note(&self, tenant: &str, action: &str, subject: &str, outcome: Outcome) -> Result<(), TenantError> {
        let act = Act { actor: "operator".into(), action: action.into(), subject: subject.into(), outcome };
        audit::append(self.registry(), &Tenant::from(tenant), self.0.now(), &act)
    }

    fn registry(&self) -> &dyn Registry {
        self.0.registry()
    }

    fn get<T: DeserializeOwned>(&self, kind: &str, key: &str) -> Result<Option<(T, u64)>, TenantError> {
        let found = self.registry().registered(self.0.tenant(), kind, key)?;
        found.map(|found| Ok((read(&found)?, found.version))).transpose()
    }

    fn all<T: DeserializeOwned>(&self, kind: &str) -> Result<Vec<(String, T)>, TenantError> {
        let (mut all, mut after) = (Vec::new(), String::new());
        loop {
            let page = self.registry().registered_after(self.0.tenant(), kind, &after, PAGE)?;
            let Some(last) = page.last() else { return Ok(all) };
            after = last.key.clone();
            for found in page {
                all.push((found.key.clone(), read(&found)?));
            }
        }
    }

    fn put<T: Serialize>(&self, kind: &str, key: &str, value: Option<&T>, seen: u64) -> Result<bool, TenantError> {
        let json = value.map(|value| to_json(key, value)).transpose()?;
        Ok(self.registry().register(self.0.tenant(), kind, key, json.as_ref(), seen)?)
    }
}

impl Identify for Tenants {
    /// Whoever shows the token of a tenant that lets somebody in.
    fn identify(&self, bearer: Option<&str>) -> Result<Caller, Refused> {
        let shown = bearer.ok_or(Refused::Missing)?;
        let (id, secret) = token::parts(shown).ok_or(Refused::Unknown)?;
        let known: Option<(Token, u64)> = self.get(TOKEN, id).map_err(|_| Refused::Unavailable)?;
        let Some((known, _)) = known.filter(|(known, _)| known.opens(secret, self.0.now())) else {
            return Err(Refused::Unknown);
        };
        let (tenant, _) = self.tenant(&known.tenant).map_err(|error| match error {
            TenantError::Unknown(_) => Refused::Unknown,
            _ => Refused::Unavailable,
        })?;
        if tenant.disabled {
            return Err(Refused::Unknown);
        }
        Ok(Caller { tenant: known.tenant.as_str().into(), scopes: known.scopes(), token: Some(Arc::from(id)) })
    }

    fn host(&self, _: &Host, tenant: &Tenant) -> Result<Host, Refused> {
        Tenants::host(self, tenant).map_err(|_| Refused::Unavailable)
    }

    fn tenants(&self) -> Vec<Tenant> {
        let rows = self.list().unwrap_or_default();
        rows.into_iter().filter(|row| !row.disabled).map(|row| Tenant::from(row.name)).collect()
    }
}

fn read<T: DeserializeOwned>(found: &Registered) -> Result<T, TenantError> {
    let damaged = |error: serde_json::Error| TenantError::Damaged(found.key.clone(), error.to_string());
    serde_json::from_str(&found.value.to_text()).map_err(damaged)
}

fn to_json<T: Serialize>(key: &str, value: &T) -> Result<Json, TenantError> {
    let text = serde_json::to_string(value).map_err(|error| TenantError::Damaged(key.to_owned(), error.to_string()))?;
    Json::parse(&text).map_err(|error| TenantError::Damaged(key.to_owned(), error.to_string()))
}
