//! The errors of the vault. No error contains a value or a key.

use crate::operate::documents::DocumentError;

use super::{MAX_NAME, MAX_SECRETS, MAX_VALUE, MIN_VALUE};

/// An error of an operation on secrets.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// The name is invalid for a secret.
    #[error("the name of a secret has 1 to {MAX_NAME} letters, digits, `-` and `_`")]
    Name,
    /// The value is invalid for a secret.
    #[error("a secret has {MIN_VALUE} to {MAX_VALUE} bytes of text, without line breaks at its ends")]
    Value,
    /// The origins of the secret are invalid.
    #[error("for whom the secret is: {0}")]
    Origins(String),
    /// The secret does not exist.
    #[error("there is no secret `{0}`; `flowcell secret set {0}` makes it")]
    Unknown(String),
    /// The tenant has the maximum number of secrets.
    #[error("there are {MAX_SECRETS} secrets already; `flowcell secret rm NAME` makes room")]
    TooMany,
    /// The operator has configured no key.
    #[error(
        "secrets of a shared store need a key that every process is given: `--secret-key env:NAME` or `file:PATH`, with \
         what `openssl rand -hex 32` prints"
    )]
    NoKey,
    /// The key cannot be read.
    #[error("the key of the secrets: {0}")]
    Key(String),
    /// The secret is encrypted with another key.
    #[error("it is encrypted under the key {wanted}, and this process has {given}; give that one with `--secret-key`")]
    OtherKey {
        /// The name of the key that is needed.
        wanted: String,
        /// The names of the configured keys.
        given: String,
    },
    /// The secret does not decrypt, since its row was changed or moved.
    #[error("the secret `{0}` was changed in the store; `flowcell secret set {0}` sets it anew")]
    Damaged(String),
    /// The data key does not decrypt.
    #[error("the data key {1} of the tenant `{0}` was changed in the store; what it encrypts has to be set anew")]
    DamagedKey(String, String),
    /// Another caller changed it at the same time.
    #[error("`{0}` was changed by somebody else at the same time; try again")]
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
            VaultError::Value | VaultError::Origins(_) => "invalid_secret",
            VaultError::Unknown(_) => "secret_not_found",
            VaultError::TooMany => "too_many_secrets",
            VaultError::NoKey | VaultError::Key(_) => "secret_key_missing",
            VaultError::OtherKey { .. } => "secret_key_wrong",
            VaultError::Damaged(_) | VaultError::DamagedKey(..) => "secret_damaged",
            VaultError::Changed(_) | VaultError::Document(DocumentError::Changed(_)) => "conflict",
            VaultError::Of(_, error) => error.code(),
            VaultError::Document(DocumentError::Damaged(..)) => "damaged",
            VaultError::Document(DocumentError::Store(_)) => "store_unavailable",
        }
    }

    /// Returns whether the stored data does not decrypt.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, VaultError::OtherKey { .. } | VaultError::Damaged(_) | VaultError::DamagedKey(..))
    }
}
