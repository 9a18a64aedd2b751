//! Sign-in by OpenID Connect: people prove who they are to an issuer of the operator, and get a session of the console.
//!
//! The operator's file names the issuers, and the rules from claims to a tenant and its scopes. A browser takes the code
//! flow with PKCE: [`SignIns::begin`] returns the page of the issuer and a signed cookie, and [`SignIns::finish`] exchanges
//! the code, checks the ID token, and applies the rules.
//!
//! | module | contents |
//! |---|---|
//! | [`config`] | the operator's file |
//! | `error` | the reasons for which a sign-in fails |
//! | `exchange` | requests to issuers: bounded, timed, without redirects |
//! | `issuer` | an issuer in force: its metadata, its keys, and the exchange of a code |
//! | `keys` | the public keys of issuers, and signatures |
//! | `pending` | the signed cookie of a sign-in that has begun |
//! | [`present`] | the issuers in force, and their replacement |
//! | `rules` | from claims to a tenant and its scopes |
//! | `token` | the check of a token |
//!
//! **Strangers cause no requests to an issuer with made-up values.** A code is exchanged only once for each cookie that
//! this store has signed, and only if the state fits the cookie. Unknown keys are looked for at most once a minute.

pub mod config;
mod error;
mod exchange;
mod issuer;
mod keys;
mod pending;
pub mod present;
mod rules;
mod token;

pub use self::{
    config::{MAX_SIGN_IN_FILE_BYTES, SignInFile},
    error::SignInError,
    pending::PENDING_LIFETIME_MS,
    present::{Begun, Callback, SignIns, SignedIn},
};
