//! The reasons for which a sign-in fails.

use crate::operate::account::AccountRefusal;

/// The reason for which a sign-in fails. It repeats no token, code or secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignInError {
    /// The file has no such issuer.
    #[error("this server has no sign-in of this name; go back to the login page, and choose another one")]
    UnknownIssuer,
    /// The browser has reached the server by an address that is not listed.
    #[error("sign-in does not work at the address `{0}`; open the console at {1}")]
    Origin(String, String),
    /// The cookie is missing, of another store, of another sign-in, too old, or used.
    #[error("{0}; go back to the login page, and sign in again")]
    State(&'static str),
    /// The issuer or this server has refused the person.
    #[error("the sign-in by `{issuer}` was refused: {why}")]
    Refused {
        /// The name of the issuer in the file.
        issuer: String,
        /// The reason as part of a sentence.
        why: String,
    },
    /// The account cannot be used.
    #[error(transparent)]
    Account(#[from] AccountRefusal),
    /// The issuer does not answer as it should.
    #[error("the issuer `{issuer}` cannot be used at present: {why}; try again later, or log in by a link or a token")]
    Unavailable {
        /// The name of the issuer in the file.
        issuer: String,
        /// The reason as part of a sentence.
        why: String,
    },
    /// The store or its keys cannot be read.
    #[error("the store of the accounts does not answer; try again later")]
    Store,
}

impl SignInError {
    /// Returns a stable code.
    pub fn code(&self) -> &'static str {
        match self {
            SignInError::UnknownIssuer => "issuer_not_found",
            SignInError::Origin(..) => "sign_in_origin",
            SignInError::State(_) => "sign_in_state",
            SignInError::Refused { .. } => "sign_in_refused",
            SignInError::Account(refusal) => refusal.code(),
            SignInError::Unavailable { .. } => "issuer_unavailable",
            SignInError::Store => "store_unavailable",
        }
    }
}
