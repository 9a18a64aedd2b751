//! Accounts: people and machines that an issuer has identified.

use sha2::{Digest, Sha256};

/// Maximum number of characters of an account's name that shows its subject. A longer subject is shown as its hash.
const MAX_NAME_CHARS: usize = 200;

/// A person or a machine, as an issuer names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The name of the issuer in the operator's file.
    pub issuer: String,
    /// The claim `sub`, which the issuer gives to no other person.
    pub subject: String,
}

impl Subject {
    /// Returns the id of the account.
    pub fn id(&self) -> String {
        hex::encode(&Sha256::digest(format!("{}\n{}", self.issuer, self.subject))[..16])
    }

    /// Returns the name of the account in audit logs: `oidc:ISSUER:SUBJECT`.
    pub fn name(&self) -> String {
        let name = format!("oidc:{}:{}", self.issuer, self.subject);
        match name.chars().count() > MAX_NAME_CHARS {
            true => format!("oidc:{}:sha256-{}", self.issuer, self.id()),
            false => name,
        }
    }
}

/// A person with the rights that the operator's rules give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The person.
    pub subject: Subject,
    /// The tenant.
    pub tenant: String,
    /// The names of the scopes, in the order of all scopes.
    pub scopes: Vec<String>,
    /// The lifetime of a session, in milliseconds.
    pub lasts: u64,
    /// True for a machine, which may have more sessions than a person.
    pub is_machine: bool,
}

/// The reason for which an account cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccountRefusal {
    /// An operator has disabled the account.
    #[error("the account `{0}` is disabled; ask an operator of this server")]
    Disabled(String),
    /// The tenant of the rule is disabled.
    #[error("the tenant `{0}` of this account is disabled; ask an operator of this server")]
    TenantDisabled(String),
    /// The tenant of the rule does not exist.
    #[error("the tenant `{0}` of this account does not exist; ask an operator of this server")]
    TenantUnknown(String),
    /// The tenant has its share of the accounts of the store, and none of them is idle.
    #[error(
        "the tenant of this account has its share of the {0} accounts of this server, and each has an open session or is \
         disabled; ask an operator to delete some"
    )]
    TooMany(usize),
    /// The store does not answer.
    #[error("the store of the accounts does not answer; try again later")]
    Unavailable,
}

impl AccountRefusal {
    /// Returns a stable code.
    pub fn code(&self) -> &'static str {
        match self {
            AccountRefusal::Disabled(_) => "account_disabled",
            AccountRefusal::TenantDisabled(_) => "tenant_disabled",
            AccountRefusal::TenantUnknown(_) => "tenant_not_found",
            AccountRefusal::TooMany(_) => "too_many_accounts",
            AccountRefusal::Unavailable => "store_unavailable",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_ids_tell_subjects_apart() {
        let subject = |issuer: &str, subject: &str| Subject { issuer: issuer.into(), subject: subject.into() };
        assert_eq!(subject("a", "b").name(), "oidc:a:b");
        assert_ne!(subject("a", "b").id(), subject("b", "b").id());
        let (long, longer) = (subject("a", &"x".repeat(250)), subject("a", &"x".repeat(251)));
        assert!(long.name().starts_with("oidc:a:sha256-") && long.name().len() < 64);
        assert_ne!(long.name(), longer.name());
    }
}
