//! The errors of operations on tenants.

use flowcell_contract::shell::shell_word;
use flowcell_runtime::ports::StoreError;

use super::MAX_NAME;
use crate::{
    drive::{jobs::JobError, triggers::operation::TriggerError},
    files::FileError,
    host::retention::{DeleteError, LabelRunError},
    operate::{documents::DocumentError, vault::VaultError},
};

/// An error of an operation on tenants.
#[derive(Debug, thiserror::Error)]
pub enum TenantError {
    /// The tenant does not exist.
    #[error("the tenant `{0}` does not exist; create it with `flowcell tenant create {word}`", word = shell_word(.0))]
    Unknown(String),
    /// A removed tenant had the name.
    #[error(
        "a tenant `{0}` was removed, and copies of the store may have its data; create another one of this name with \
         `flowcell tenant create {word} --reuse-name`",
        word = shell_word(.0)
    )]
    Removed(String),
    /// The removal of the tenant has begun.
    #[error(
        "the tenant `{0}` is being removed; finish it with `flowcell tenant delete {word} --yes`",
        word = shell_word(.0)
    )]
    BeingRemoved(String),
    /// The tenant to remove is enabled.
    #[error(
        "the tenant `{0}` is enabled; stop it first with `flowcell tenant disable {word} --stop`",
        word = shell_word(.0)
    )]
    Enabled(String),
    /// Processes drive runs of the tenant to remove.
    #[error(
        "{1} runs of the tenant `{0}` are driven; end them with `flowcell tenant disable {word} --stop`, or stop the \
         processes that drive them, and try again",
        word = shell_word(.0)
    )]
    Driven(String, u64),
    /// The tenant `local` cannot be removed.
    #[error(
        "the tenant `local` belongs to the operators and cannot be removed; remove its runs with `flowcell runs gc`, and \
         its folder of the store if nobody needs it"
    )]
    Local,
    /// A folder of the tenant to remove cannot be removed.
    #[error("cannot remove the tenant's files in {0}: {1}; give the command again once they can be removed")]
    Folder(String, std::io::Error),
    /// The name is taken.
    #[error("the tenant `{0}` already exists")]
    Taken(String),
    /// The name is invalid for a tenant.
    #[error("`{0}` is not a valid name of a tenant: use 1 to {MAX_NAME} letters, digits, `-` and `_`")]
    Name(String),
    /// The token does not exist.
    #[error("the token `{0}` does not exist; `flowcell token list` lists the tokens")]
    UnknownToken(String),
    /// The account does not exist.
    #[error("the account `{0}` does not exist; `flowcell account list` lists the accounts")]
    UnknownAccount(String),
    /// The name is invalid for a token.
    #[error("`{0}` is not a valid name of a token: use 1 to {MAX_NAME} letters, digits, `-` and `_`")]
    TokenName(String),
    /// A valid token of the tenant has the name.
    #[error("the token `{1}` of the tenant has the name `{0}`; revoke it, or choose another name")]
    TokenNameTaken(String, String),
    /// The scope does not exist.
    #[error("unknown scope `{0}`; the scopes are {1}")]
    UnknownScope(String, String),
    /// A token of this kind cannot have the scope.
    #[error("a token of {1} cannot have the scope `{0}`; it may have {2}")]
    ScopeNotAllowed(String, &'static str, String),
    /// The policy names an unknown capability.
    #[error("the policy is invalid: {0}")]
    Policy(String),
    /// Another caller changed the document at the same time.
    #[error("another process changed `{0}` at the same time; try again")]
    Changed(String),
    /// A document is damaged.
    #[error("the stored data of `{0}` is damaged: {1}")]
    Damaged(String, String),
    /// An error of a secret.
    #[error(transparent)]
    Secret(#[from] VaultError),
    /// An error of a file.
    #[error(transparent)]
    File(#[from] FileError),
    /// An error of a trigger.
    #[error(transparent)]
    Trigger(#[from] TriggerError),
    /// An error of a job.
    #[error(transparent)]
    Job(#[from] JobError),
    /// An error of a form.
    #[error(transparent)]
    Form(#[from] crate::forms::FormError),
    /// Runs were not deleted.
    #[error(transparent)]
    Delete(#[from] DeleteError),
    /// A run keeps the labels that it has.
    #[error(transparent)]
    Label(#[from] LabelRunError),
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl TenantError {
    /// Returns a stable error code.
    pub fn code(&self) -> &'static str {
        match self {
            TenantError::Unknown(_) => "tenant_not_found",
            TenantError::Taken(_) => "tenant_exists",
            TenantError::Removed(_) => "tenant_removed",
            TenantError::BeingRemoved(_) => "tenant_being_removed",
            TenantError::Enabled(_) => "tenant_enabled",
            TenantError::Driven(..) => "tenant_driven",
            TenantError::Local => "tenant_local",
            TenantError::Folder(..) => "tenant_files",
            TenantError::Name(_) | TenantError::TokenName(_) => "invalid_name",
            TenantError::TokenNameTaken(..) => "token_exists",
            TenantError::UnknownToken(_) => "token_not_found",
            TenantError::UnknownAccount(_) => "account_not_found",
            TenantError::UnknownScope(..) => "unknown_scope",
            TenantError::ScopeNotAllowed(..) => "scope_not_allowed",
            TenantError::Policy(_) => "invalid_policy",
            TenantError::Changed(_) => "conflict",
            TenantError::Damaged(..) => "damaged",
            TenantError::Secret(error) => error.code(),
            TenantError::File(error) => error.code(),
            TenantError::Trigger(error) => error.code(),
            TenantError::Job(error) => error.code(),
            TenantError::Form(error) => error.code(),
            TenantError::Delete(error) => error.code(),
            TenantError::Label(error) => error.code(),
            TenantError::Store(_) => "store_unavailable",
        }
    }
}

impl From<DocumentError> for TenantError {
    fn from(error: DocumentError) -> TenantError {
        match error {
            DocumentError::Damaged(what, why) => TenantError::Damaged(what, why),
            DocumentError::Changed(what) => TenantError::Changed(what),
            DocumentError::Store(error) => TenantError::Store(error),
        }
    }
}
