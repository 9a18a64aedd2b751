//! The errors of the vault. No error contains a value or a key.

use flowcell_contract::shell::shell_word;

use crate::operate::documents::DocumentError;

use super::{MAX_CREDENTIALS, MAX_NAME, MAX_SECRETS, MAX_VALUE, MIN_VALUE};

/// An error of an operation on secrets.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// The name is invalid for a secret.
    #[error("the name of a secret must have 1 to {MAX_NAME} letters, digits, `-` and `_`")]
    Name,
    /// The value is invalid for a secret.
    #[error("a secret must have {MIN_VALUE} to {MAX_VALUE} bytes of text, without line breaks at its ends")]
    Value,
    /// The value does not fit into a header, and the secret is for a server.
    #[error("a secret for a server is sent in a header: {0}; set another value, or a secret `--for webhook`")]
    Header(&'static str),
    /// The origins of the secret are invalid.
    #[error("the origins of the secret are invalid: {0}")]
    Origins(String),
    /// The time after which the secret expires is invalid.
    #[error("a secret expires after 1 ms to 365 days, or has no end")]
    Lifetime,
    /// The secret does not exist.
    #[error("the secret `{0}` does not exist; create it with `flowcell secret set {word}`", word = shell_word(.0))]
    Unknown(String),
    /// The tenant has the maximum number of secrets.
    #[error("the limit of {MAX_SECRETS} secrets is reached; remove one with `flowcell secret rm NAME`")]
    TooMany,
    /// The operator has configured no key.
    #[error(
        "secrets of a shared store need the same key in every process: pass `--secret-key env:NAME` or `file:PATH` \
         with a key from `openssl rand -hex 32`"
    )]
    NoKey,
    /// The key cannot be read.
    #[error("cannot use the key of the secrets: {0}")]
    Key(String),
    /// The key of the tenant is missing.
    #[error(
        "the key of the tenant `{0}` is missing; put its file back into the folder `secret.key.tenants` beside the key \
         of the store, or remove what cannot be decrypted with `flowcell secret reset --tenant {word}`",
        word = shell_word(.0)
    )]
    NoTenantKey(String),
    /// The secret is encrypted with another key.
    #[error(
        "the secret is encrypted with the key {wanted}, but this process has {given}; pass the right key with \
         `--secret-key`, or remove what cannot be decrypted with `flowcell secret reset`"
    )]
    OtherKey {
        /// The name of the key that is needed.
        wanted: String,
        /// The names of the configured keys.
        given: String,
    },
    /// The secret does not decrypt, since its row was changed or moved.
    #[error(
        "the secret `{0}` was changed in the store; set it again with `flowcell secret set {word}`",
        word = shell_word(.0)
    )]
    Damaged(String),
    /// The data key does not decrypt.
    #[error("the data key {1} of the tenant `{0}` was changed in the store; set the secrets of the tenant again")]
    DamagedKey(String, String),
    /// The credential is invalid.
    #[error("the credential is invalid: {0}")]
    Credential(String),
    /// The credential does not exist.
    #[error(
        "the credential `{0}` does not exist; create it with `flowcell credential set {word}`",
        word = shell_word(.0)
    )]
    UnknownCredential(String),
    /// The authorization server gave no token.
    #[error("the credential was not connected: {0}")]
    NotConnected(String),
    /// The tenant has the maximum number of credentials.
    #[error("the limit of {MAX_CREDENTIALS} credentials is reached; remove one with `flowcell credential remove NAME`")]
    TooManyCredentials,
    /// The credential, or its token, does not decrypt, since its row was changed or moved.
    #[error(
        "the credential `{0}` was changed in the store; set it again with `flowcell credential set {word}`",
        word = shell_word(.0)
    )]
    DamagedCredential(String),
    /// Another caller changed the secret or the key at the same time.
    #[error("another process changed `{0}` at the same time; try again")]
    Changed(String),
    /// The error concerns one of several tenants.
    #[error("the tenant `{0}`: {1}")]
    Of(String, Box<VaultError>),
    /// The store does not answer, or a document is damaged.
    #[error(transparent)]
    Document(#[from] DocumentError),
}

impl VaultError {
    /// Returns a stable error code.
    pub fn code(&self) -> &'static str {
        match self {
            VaultError::Name => "invalid_name",
            VaultError::Value | VaultError::Header(_) | VaultError::Origins(_) | VaultError::Lifetime => {
                "invalid_secret"
            }
            VaultError::Credential(_) => "invalid_credential",
            VaultError::UnknownCredential(_) => "credential_not_found",
            VaultError::NotConnected(_) => "credential_not_connected",
            VaultError::TooManyCredentials => "too_many_credentials",
            VaultError::DamagedCredential(_) => "credential_damaged",
            VaultError::Unknown(_) => "secret_not_found",
            VaultError::TooMany => "too_many_secrets",
            VaultError::NoKey | VaultError::Key(_) | VaultError::NoTenantKey(_) => "secret_key_missing",
            VaultError::OtherKey { .. } => "secret_key_wrong",
            VaultError::Damaged(_) | VaultError::DamagedKey(..) => "secret_damaged",
            VaultError::Changed(_) | VaultError::Document(DocumentError::Changed(_)) => "conflict",
            VaultError::Of(_, error) => error.code(),
            VaultError::Document(DocumentError::Damaged(..)) => "damaged",
            VaultError::Document(DocumentError::Store(_)) => "store_unavailable",
        }
    }

    /// Returns whether the error is that the stored data does not decrypt.
    pub(super) fn is_decryption_failure(&self) -> bool {
        matches!(
            self,
            VaultError::OtherKey { .. }
                | VaultError::NoTenantKey(_)
                | VaultError::Damaged(_)
                | VaultError::DamagedCredential(_)
                | VaultError::DamagedKey(..)
        )
    }
}
