//! Machines that send the token of an issuer, such as a job of GitHub Actions, in place of a token of this server.
//!
//! The first request with a token makes a session of its account ([`SignIns::sign_in_machine`]). The process keeps the
//! session for further requests with the same token. So a request with such a token is one with the token of a session:
//! its rights, the audit log and the end of its streams follow from the account.

use std::collections::HashMap;

use flowcell_platform::sign_in::SignIns;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::api_error::ApiError;

/// Maximum number of tokens of issuers whose sessions a process keeps.
pub(crate) const MAX_MACHINES: usize = 10_000;

/// The sessions of machines, by the SHA-256 of their tokens.
#[derive(Default)]
pub(crate) struct Machines(Mutex<HashMap<[u8; 32], Session>>);

struct Session {
    token: String,
    /// Its end in milliseconds since 1970.
    ends: u64,
}

/// Returns whether a bearer token has the form of one of an issuer. Tokens of this server have another form.
pub(crate) fn is_issued(bearer: &str) -> bool {
    bearer.starts_with("eyJ") && bearer.matches('.').count() == 2
}

impl Machines {
    /// Returns the token of the session of a machine. Returns `None` if its token is of no issuer for machines.
    pub(crate) async fn session(&self, sign_ins: &SignIns, bearer: &str, now: u64) -> Result<Option<String>, ApiError> {
        let key: [u8; 32] = Sha256::digest(bearer).into();
        if let Some(session) = self.0.lock().get(&key).filter(|session| now < session.ends) {
            return Ok(Some(session.token.clone()));
        }
        let Some(login) = sign_ins.sign_in_machine(bearer).await? else { return Ok(None) };
        let mut all = self.0.lock();
        if all.len() >= MAX_MACHINES {
            all.retain(|_, session| now < session.ends);
        }
        if all.len() >= MAX_MACHINES {
            all.clear();
        }
        let (token, ends) = (login.token, now.saturating_add(login.lasts));
        all.insert(key, Session { token: token.clone(), ends });
        Ok(Some(token))
    }

    /// Forgets a session that is not valid any more. The next request with the token makes another one.
    pub(crate) fn forget(&self, bearer: &str) {
        let key: [u8; 32] = Sha256::digest(bearer).into();
        self.0.lock().remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_issuers_are_told_from_those_of_this_server() {
        for (bearer, expected) in
            [("eyJhbGciOiJub25lIn0.e30.", true), ("fct_a_b", false), ("eyJ", false), ("", false), ("eyJ.a.b.c", false)]
        {
            assert_eq!(is_issued(bearer), expected, "{bearer}");
        }
    }
}
