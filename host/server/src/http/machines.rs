//! Machines that send the token of an issuer, such as a job of GitHub Actions, in place of a token of this server.
//!
//! The first request with a token makes a session of its account ([`flowcell_platform::sign_in::SignIns::sign_in_machine`]). The process keeps the
//! session for further requests with the same token. So a request with such a token is one with the token of a session:
//! its rights, the audit log and the end of its streams follow from the account.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::identity::Login;

/// Maximum number of tokens of issuers whose sessions a process keeps.
pub(crate) const MAX_MACHINES: usize = 10_000;

/// The SHA-256 of a token of an issuer.
type Key = [u8; 32];

/// The sessions of machines, by their tokens.
#[derive(Default)]
pub(crate) struct Machines {
    sessions: Mutex<HashMap<Key, Session>>,
    /// The tokens with which requests sign in at this moment.
    turns: Mutex<HashMap<Key, Arc<tokio::sync::Mutex<()>>>>,
}

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
    /// Returns the token of the session of a machine. `sign_in` makes one; of several requests at a time with the same token,
    /// one makes it. Returns `None` if the token is of no issuer for machines.
    pub(crate) async fn session<E>(
        &self,
        bearer: &str,
        now: u64,
        sign_in: impl Future<Output = Result<Option<Login>, E>>,
    ) -> Result<Option<String>, E> {
        let key: Key = Sha256::digest(bearer).into();
        if let Some(token) = self.known(&key, now) {
            return Ok(Some(token));
        }
        let turn = Turn { machines: self, key, turn: self.turns.lock().entry(key).or_default().clone() };
        let _held = turn.turn.lock().await;
        if let Some(token) = self.known(&key, now) {
            return Ok(Some(token));
        }
        let Some(login) = sign_in.await? else { return Ok(None) };
        let mut all = self.sessions.lock();
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

    fn known(&self, key: &Key, now: u64) -> Option<String> {
        let all = self.sessions.lock();
        all.get(key).filter(|session| now < session.ends).map(|session| session.token.clone())
    }

    /// Forgets a session that is not valid any more. The next request with the token makes another one.
    pub(crate) fn forget(&self, bearer: &str, session: &str) {
        let key: Key = Sha256::digest(bearer).into();
        let mut all = self.sessions.lock();
        // Another request may have made the next one.
        if all.get(&key).is_some_and(|known| known.token == session) {
            all.remove(&key);
        }
    }
}

/// The turn of a request to sign in with a token.
struct Turn<'m> {
    machines: &'m Machines,
    key: Key,
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut turns = self.machines.turns.lock();
        // The other one is in the table.
        if Arc::strong_count(&self.turn) <= 2 {
            turns.remove(&self.key);
        }
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
    #[tokio::test]
    async fn one_of_many_requests_with_a_token_signs_in() {
        let machines = Machines::default();
        let (give, given) = tokio::sync::oneshot::channel::<Login>();
        let first = machines.session("a", 0, async { Ok::<_, ()>(given.await.ok()) });
        let second = machines.session("a", 0, async { Err::<Option<Login>, ()>(()) });
        let other = machines.session("b", 0, async { Err::<Option<Login>, ()>(()) });
        let (first, second, other, ()) = tokio::join!(first, second, other, async {
            assert!(give.send(Login { token: "session".into(), lasts: 10 }).is_ok());
        });
        let session = Ok(Some("session".to_owned()));
        assert_eq!((&first, &second, other), (&session, &session, Err(())));
        assert!(machines.turns.lock().is_empty(), "no turn stays");
        machines.forget("a", "an earlier one");
        assert_eq!(machines.known(&Sha256::digest("a").into(), 9).as_deref(), Some("session"));
        assert_eq!(machines.known(&Sha256::digest("a").into(), 10), None, "it has ended");
        machines.forget("a", "session");
        assert_eq!(machines.known(&Sha256::digest("a").into(), 9), None);
    }
}
