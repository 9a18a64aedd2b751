//! What can go wrong with secrets. No error has a value or a key in it.

use crate::operate::documents::DocumentError;

use super::{MAX_NAME, MAX_SECRETS, MAX_VALUE, MIN_VALUE};

/// Why something about secrets was not done.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// It cannot be the name of a secret.
    #[error("the name of a secret has 1 to {MAX_NAME} letters, digits, `-` and `_`")]
    Name,
    /// It cannot be the value of a secret.
    #[error("a secret has {MIN_VALUE} to {MAX_VALUE} bytes of text, without line breaks at its ends")]
    Value,
    /// It cannot be whom a secret is for.
    #[error("for whom the secret is: {0}")]
    Origins(String),
    /// There is none of this name.
    #[error("there is no secret `{0}`; `flowcell secret set {0}` makes it")]
    Unknown(String),
    /// There are as many as there may be.
    #[error("there are {MAX_SECRETS} secrets already; `flowcell secret rm NAME` makes room")]
    TooMany,
    /// Nobody has given the key.
    #[error(
        "secrets of a shared store need a key that every process is given: `--secret-key env:NAME` or `file:PATH`, with \
         what `openssl rand -hex 32` prints"
    )]
    NoKey,
    /// The key cannot be read.
    #[error("the key of the secrets: {0}")]
    Key(String),
    /// It is encrypted under another key.
    #[error("it is encrypted under the key {wanted}, and this process has {given}; give that one with `--secret-key`")]
    OtherKey {
        /// The name of the key that is needed.
        wanted: String,
        /// The names of the keys that there are.
        given: String,
    },
    /// It does not open: somebody has written to the store, or has moved rows in it.
    #[error("the secret `{0}` was changed in the store; `flowcell secret set {0}` sets it anew")]
    Damaged(String),
    /// The data key does not open.
    #[error("the data key {1} of the tenant `{0}` was changed in the store; what it encrypts has to be set anew")]
    DamagedKey(String, String),
    /// Somebody else has changed it at the same time.
    #[error("`{0}` was changed by somebody else at the same time; try again")]
    Changed(String),
    /// It is about one tenant of several.
    #[error("the tenant `{0}`: {1}")]
    Of(String, Box<VaultError>),
    /// The store does not answer, or what it answers is damaged.
    #[error(transparent)]
    Document(#[from] DocumentError),
}

impl VaultError {
    /// A stable code.
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

    /// Whether what is kept does not open as it was closed.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, VaultError::OtherKey { .. } | VaultError::Damaged(_) | VaultError::DamagedKey(..))
    }
}
