//! Who calls, and what they may do.

use std::{fmt, sync::Arc};

use flowcell_contract::Tenant;

use crate::operate::policy::Policy;

/// Something that a caller may be allowed to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Reads flows and the catalog, and checks flows.
    FlowRead,
    /// Creates and removes flows.
    FlowWrite,
    /// Starts runs.
    RunCreate,
    /// Reads runs, their events and what they wait for.
    RunRead,
    /// Steers runs: cancels, resumes, retries, sends.
    RunControl,
    /// Answers gates.
    GateDecide,
    /// Sets, lists and removes secrets; never reads them.
    SecretWrite,
    /// Looks after the tenant.
    Admin,
    /// Reads the numbers of the whole server, those of other tenants among them.
    MetricsRead,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Scope; 9] = [
        Scope::FlowRead,
        Scope::FlowWrite,
        Scope::RunCreate,
        Scope::RunRead,
        Scope::RunControl,
        Scope::GateDecide,
        Scope::SecretWrite,
        Scope::Admin,
        Scope::MetricsRead,
    ];

    /// Its name, as tokens and errors have it.
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
        }
    }

    /// The scope of a name.
    pub fn named(name: &str) -> Option<Scope> {
        Scope::ALL.into_iter().find(|scope| scope.name() == name)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// What a caller may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scopes(u16);

impl Scopes {
    /// Everything.
    pub fn all() -> Scopes {
        Scope::ALL.into_iter().collect()
    }

    /// Whether something is among it.
    pub fn has(self, scope: Scope) -> bool {
        self.0 & 1 << scope as u8 != 0
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Scopes {
        Scopes(scopes.into_iter().fold(0, |bits, scope| bits | 1 << scope as u8))
    }
}

/// One who calls.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Whose flows and runs these are.
    pub tenant: Tenant,
    /// What the caller may do with them.
    pub scopes: Scopes,
    /// The name of the token that was shown, if one was; never the token itself.
    pub token: Option<Arc<str>>,
    /// What the operator lets the tenant do.
    pub policy: Arc<Policy>,
}

/// Why nobody is known by what was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is no token.
    #[error("this server asks for a token: send `Authorization: Bearer TOKEN`")]
    Missing,
    /// Nobody has this token, or has it any more.
    #[error("this token is not known, or is over")]
    Unknown,
    /// Nobody can say now who has it.
    #[error("the store that knows the tokens does not answer")]
    Unavailable,
}

/// Tells who calls.
pub trait Identify: Send + Sync {
    /// Who has this token; or, without one, who calls from this machine.
    fn identify(&self, bearer: Option<&str>) -> Result<Caller, Refused>;

    /// Whether a caller who was known before still is, and what it listens to may go on.
    fn still_knows(&self, _caller: &Caller) -> bool {
        true
    }

    /// Whether nobody is known without a token. Only then a server listens beyond its machine.
    fn asks_for_tokens(&self) -> bool {
        true
    }

    /// Whose runs are driven.
    fn tenants(&self) -> Vec<Tenant>;

    /// Notes what a caller has done, where that is kept. It is on stable storage when this returns.
    fn note(&self, _caller: &Caller, _action: &str, _subject: &str) -> Result<(), Refused> {
        Ok(())
    }

    /// What the operator lets a tenant do.
    fn policy(&self, _tenant: &Tenant) -> Result<Policy, Refused> {
        Ok(Policy::default())
    }
}

/// Everybody on this machine is the tenant `local`, and may do everything.
pub struct Local;

impl Identify for Local {
    fn identify(&self, _bearer: Option<&str>) -> Result<Caller, Refused> {
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
    fn a_scope_is_had_or_not() {
        let scopes: Scopes = [Scope::RunRead, Scope::Admin].into_iter().collect();
        for scope in Scope::ALL {
            assert_eq!(scopes.has(scope), matches!(scope, Scope::RunRead | Scope::Admin), "{scope}");
            assert_eq!(Scope::named(scope.name()), Some(scope));
            assert!(Scopes::all().has(scope) && !Scopes::default().has(scope));
        }
    }
}
