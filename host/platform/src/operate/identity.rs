//! Callers and their scopes.

use std::{collections::HashMap, fmt, sync::Arc};

use flowcell_contract::Tenant;
use flowcell_runtime::ports::StoreError;

use crate::operate::{
    account::{AccountRefusal, Granted, Subject},
    policy::{OPERATORS, Policy},
};

/// A permission of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Reads flows and the catalog, and checks flows.
    FlowRead,
    /// Creates and removes flows.
    FlowWrite,
    /// Starts runs.
    RunCreate,
    /// Reads runs, their events and their open questions.
    RunRead,
    /// Controls runs: cancels, resumes, retries, sends messages.
    RunControl,
    /// Answers gates.
    GateDecide,
    /// Sets, lists and removes secrets, but never reads their values.
    SecretWrite,
    /// Manages the tenant.
    Admin,
    /// Reads metrics: a tenant its own, the operators those of the whole server.
    MetricsRead,
    /// Deletes ended runs.
    RunDelete,
    /// Reads the tenants and their runs. Only the operators may have it.
    AdminRead,
    /// Enables and disables tenants, and cancels their runs. Only the operators may have it.
    AdminWrite,
}

impl Scope {
    /// Every scope, in the order of the bits in [`Scopes`].
    pub const ALL: [Scope; 12] = [
        Scope::FlowRead,
        Scope::FlowWrite,
        Scope::RunCreate,
        Scope::RunRead,
        Scope::RunControl,
        Scope::GateDecide,
        Scope::SecretWrite,
        Scope::Admin,
        Scope::MetricsRead,
        Scope::RunDelete,
        Scope::AdminRead,
        Scope::AdminWrite,
    ];

    /// Returns the scope's name in tokens and errors.
    pub fn name(self) -> &'static str {
        match self {
            Scope::FlowRead => "flow:read",
            Scope::FlowWrite => "flow:write",
            Scope::RunCreate => "run:create",
            Scope::RunRead => "run:read",
            Scope::RunControl => "run:control",
            Scope::GateDecide => "gate:decide",
            Scope::SecretWrite => "secret:write",
            Scope::Admin => "admin",
            Scope::MetricsRead => "metrics:read",
            Scope::RunDelete => "run:delete",
            Scope::AdminRead => "admin:read",
            Scope::AdminWrite => "admin:write",
        }
    }

    /// Returns whether a token of this tenant may have the scope. Tokens of the operators have no other scopes than those
    /// that act on the whole server.
    pub(crate) fn is_allowed_for(self, tenant: &str) -> bool {
        match tenant == OPERATORS {
            true => self.is_for_operators() || self == Scope::MetricsRead,
            false => !self.is_for_operators(),
        }
    }

    /// Returns whether only the operators may have the scope, because it acts on all tenants.
    pub fn is_for_operators(self) -> bool {
        matches!(self, Scope::AdminRead | Scope::AdminWrite)
    }

    /// Returns the scopes that a token of a tenant may have.
    pub fn of_tenants() -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(|scope| !scope.is_for_operators())
    }

    /// Returns the scope with this name, or `None` if no scope has it.
    pub fn named(name: &str) -> Option<Scope> {
        Scope::ALL.into_iter().find(|scope| scope.name() == name)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A set of scopes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scopes(u16);

impl Scopes {
    /// Returns the set of all scopes.
    pub fn all() -> Scopes {
        Scope::ALL.into_iter().collect()
    }

    /// Returns the names of the scopes.
    pub fn names(self) -> Vec<String> {
        Scope::ALL.into_iter().filter(|scope| self.has(*scope)).map(|scope| scope.name().to_owned()).collect()
    }

    /// Returns whether the set contains a scope.
    pub fn has(self, scope: Scope) -> bool {
        self.0 & 1 << scope as u8 != 0
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Scopes {
        Scopes(scopes.into_iter().fold(0, |bits, scope| bits | 1 << scope as u8))
    }
}

/// An authenticated caller.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The tenant that the caller acts for. Its name is empty for the operators.
    pub tenant: Tenant,
    /// The caller's permissions.
    pub scopes: Scopes,
    /// The id of the caller's token, without its secret. `None` for a caller without a token.
    pub token: Option<Arc<str>>,
    /// The operator's policy for the tenant.
    pub policy: Arc<Policy>,
}

impl Caller {
    /// Returns whether the caller acts for the operators, with a token that belongs to no tenant.
    pub fn is_operator(&self) -> bool {
        self.tenant.as_str() == OPERATORS
    }
}

/// A token as its owner sees it, without its secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnToken {
    /// The name of the token. Empty if it has none.
    pub name: String,
    /// The time when it expires, in milliseconds since 1970. `None` means never.
    pub expires: Option<u64>,
    /// A warning before it expires, such as `expires in 3 days`.
    pub warning: Option<String>,
}

/// An error of authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The request has no token.
    #[error("this server requires a token: send `Authorization: Bearer TOKEN`")]
    Missing,
    /// The token is unknown, expired or revoked.
    #[error("the token is unknown or expired")]
    Unknown,
    /// The store does not answer.
    #[error("the store of the tokens does not answer; try again later")]
    Unavailable,
}

/// The reason why a caller is no longer authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The caller has no token, and the server requires one now.
    #[error("the server requires tokens now, and the caller had none")]
    TokenRequired,
    /// The token does not exist, or belongs to another tenant.
    #[error("the token of the caller does not exist any more")]
    TokenUnknown,
    /// The token was revoked.
    #[error("the token of the caller was revoked")]
    TokenRevoked,
    /// The token has expired.
    #[error("the token of the caller has expired")]
    TokenExpired,
    /// The tenant is disabled.
    #[error("the tenant is disabled")]
    TenantDisabled,
    /// The account of the session is disabled.
    #[error("the account of the caller is disabled")]
    AccountDisabled,
}

impl Refusal {
    /// Returns a stable code.
    pub fn code(self) -> &'static str {
        match self {
            Refusal::TokenRequired => "token_required",
            Refusal::TokenUnknown => "token_unknown",
            Refusal::TokenRevoked => "token_revoked",
            Refusal::TokenExpired => "token_expired",
            Refusal::TenantDisabled => "tenant_disabled",
            Refusal::AccountDisabled => "account_disabled",
        }
    }
}

/// A client that logs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginClient<'a> {
    /// A browser, which keeps its token in a cookie.
    Browser,
    /// A command, with the PKCE verifier of its code. A command that logs in with a token has none.
    Command {
        /// The text whose SHA-256 is the challenge of the code.
        verifier: Option<&'a str>,
    },
}

/// The login of a browser or a command: a token of its own, which ends early if it is revoked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// The token.
    pub token: String,
    /// The lifetime of the token, in milliseconds.
    pub lasts: u64,
}

/// Authenticates the callers of a server.
pub trait Identify: Send + Sync {
    /// Returns the caller with the token `bearer`. Without a token, returns the local caller if the server accepts that
    /// caller, and otherwise fails.
    fn identify(&self, bearer: Option<&str>) -> Result<Caller, AuthError>;

    /// Returns what a caller may know about its own token. Default: nothing.
    fn token_of(&self, _caller: &Caller) -> Result<OwnToken, AuthError> {
        Ok(OwnToken::default())
    }

    /// Returns whether a caller is still authenticated, so that its streams may continue.
    fn still_knows(&self, _caller: &Caller) -> bool {
        true
    }

    /// Returns the reason why a caller is no longer authenticated, or `None` if it is. Fails if the store does not
    /// answer.
    fn refusal(&self, caller: &Caller) -> Result<Option<Refusal>, AuthError> {
        Ok((!self.still_knows(caller)).then_some(Refusal::TokenUnknown))
    }

    /// Returns true if every caller needs a token. If it is false, a server listens only on its own machine.
    fn asks_for_tokens(&self) -> bool {
        true
    }

    /// Returns the tenants whose runs are driven.
    fn tenants(&self) -> Vec<Tenant>;

    /// Returns when the first of the tokens in use of each tenant expires, in milliseconds since 1970. A token counts as in
    /// use for 7 days after its last use. The tokens of the operators have the tenant [`OPERATORS`]. By default no token
    /// is known.
    fn token_ends(&self, _now: u64) -> Result<HashMap<Tenant, u64>, StoreError> {
        Ok(HashMap::new())
    }

    /// Logs a client in. `proof` is a one-time code, or a token; the new token has at most the scopes of this token, and
    /// ends with it. By default, no proof is accepted.
    fn log_in(&self, _proof: &str, _client: LoginClient<'_>) -> Result<Login, AuthError> {
        Err(AuthError::Unknown)
    }

    /// Revokes the token that a client got from [`Identify::log_in`]. Every other token stays valid. Returns whether the
    /// client has no valid token any more. By default no client has one.
    fn log_out(&self, _caller: &Caller) -> Result<bool, AuthError> {
        Ok(true)
    }

    /// Makes a session for a person identified by an issuer, with the rights that the operator's rules give. By
    /// default, no tenant has accounts.
    fn sign_in(&self, granted: &Granted) -> Result<Login, AccountRefusal> {
        Err(AccountRefusal::TenantUnknown(granted.tenant.clone()))
    }

    /// Ends the sessions of a person who is no longer admitted by any rule of the operator.
    fn end_sessions(&self, _subject: &Subject) -> Result<(), AccountRefusal> {
        Ok(())
    }

    /// Adds an audit entry about a caller's action, if a log exists. The entry is on stable storage when this returns.
    fn note(&self, _caller: &Caller, _action: &str, _subject: &str) -> Result<(), AuthError> {
        Ok(())
    }

    /// Writes what is only in memory so far, such as the last use of tokens. A server calls this about once a second.
    fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Returns the operator's policy for a tenant.
    fn policy(&self, _tenant: &Tenant) -> Result<Policy, AuthError> {
        Ok(Policy::default())
    }
}

/// Treats every caller on this machine as the tenant `local`, with all scopes.
pub struct Local;

impl Identify for Local {
    fn identify(&self, _bearer: Option<&str>) -> Result<Caller, AuthError> {
        Ok(Caller { tenant: Tenant::local(), scopes: Scopes::all(), token: None, policy: Arc::default() })
    }

    fn asks_for_tokens(&self) -> bool {
        false
    }

    fn tenants(&self) -> Vec<Tenant> {
        vec![Tenant::local()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_contains_only_its_own_scopes() {
        let scopes: Scopes = [Scope::RunRead, Scope::Admin].into_iter().collect();
        for scope in Scope::ALL {
            assert_eq!(scopes.has(scope), matches!(scope, Scope::RunRead | Scope::Admin), "{scope}");
            assert_eq!(Scope::named(scope.name()), Some(scope));
            assert!(Scopes::all().has(scope) && !Scopes::default().has(scope));
        }
    }
}
