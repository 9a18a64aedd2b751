//! The tokens of a credential of the kind `oauth2`. One process at a time renews them, and every process uses a new token
//! only after it is stored.

use std::{fmt, sync::Arc};

use flowcell_contract::{Failure, Json, Tenant};
use zeroize::Zeroizing;

use super::{
    CredentialStore, OAuth2Settings, SecretMembers, blocking,
    oauth2::{self, Authorization, Lifetime, Token},
    settings::Grant,
};
use crate::{client::Client, code};

/// The time for which one process has the right to renew a token. After it, another process may try. A call that waits for the
/// lease of a process that has ended still has the time to get a token itself.
pub const REFRESH_LEASE_MS: u64 = 15_000;

/// The time after a renewal in which a status 401 renews the token no more, and after a final refusal of the issuer in which
/// the host does not ask it again.
pub const RENEWAL_PAUSE_MS: u64 = 30_000;

/// The time in milliseconds by which the end of a refresh token may differ from the earlier one and is the same end. Servers
/// name it in seconds from the answer on.
const SAME_END_MS: u64 = 60_000;

/// The longest time before the end of a token at which the host renews it.
const MAX_MARGIN_MS: u64 = 30_000;

const ACCESS: &str = "access";
const REFRESH: &str = "refresh";

/// Maximum number of looks at the tokens that another process renews.
const MAX_LOOKS: usize = 600;

/// A failed renewal, for those who wait for its end.
#[derive(Clone, Debug, PartialEq)]
pub struct RefreshFailure {
    /// The time of the failure in milliseconds since 1970.
    pub at: u64,
    /// The time of the first of the failures that have followed each other, in milliseconds since 1970.
    pub since: u64,
    /// The message of the failure, without secrets.
    pub message: String,
    /// The details of the failure, without secrets.
    pub details: Option<Json>,
    /// True if a retry makes sense.
    pub retryable: bool,
}

/// The tokens of a credential, and the state of their renewal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenState {
    /// The current token.
    pub token: Option<Token>,
    /// The time until which a process renews the token.
    pub claimed_until: Option<u64>,
    /// The last renewal, if it failed.
    pub failure: Option<RefreshFailure>,
    /// The number of the stored state; 0 if there is none.
    pub seen: u64,
}

/// The credential to which tokens belong.
pub(super) struct Of<'a> {
    pub(super) store: Arc<dyn CredentialStore>,
    pub(super) client: &'a Client,
    pub(super) tenant: &'a Tenant,
    pub(super) name: &'a str,
    pub(super) version: u64,
    pub(super) settings: &'a OAuth2Settings,
}

/// The same, for a task that nothing cancels.
#[derive(Clone)]
struct Owned {
    store: Arc<dyn CredentialStore>,
    client: Client,
    tenant: Tenant,
    name: String,
    version: u64,
    settings: OAuth2Settings,
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Token").field("renew_at", &self.renew_at).finish_non_exhaustive()
    }
}

impl Token {
    /// Creates a token that ends after `lasts` seconds. A refresh token has an end of its own, in seconds, if the server has
    /// named it.
    pub(super) fn new(access: String, refresh: Option<(String, Option<u64>)>, lasts: Option<u64>, now: u64) -> Token {
        let renew_at = lasts.map(|seconds| {
            let lasts = seconds.saturating_mul(1000);
            now.saturating_add(lasts.saturating_sub(MAX_MARGIN_MS).max(lasts / 2))
        });
        // Without a refresh token, the end of the access token is that of the right to it.
        let right_lasts = refresh.as_ref().map_or(lasts, |(_, lasts)| *lasts);
        let ends = |seconds: u64| now.saturating_add(seconds.saturating_mul(1000));
        let lifetime = right_lasts.map(|seconds| Lifetime { since: now, ends: ends(seconds) });
        let refresh = refresh.map(|(refresh, _)| Zeroizing::new(refresh));
        Token { access: Zeroizing::new(access), refresh, issued: Some(now), renew_at, lifetime }
    }

    /// Returns the token that follows an earlier one, for a credential with this grant. Without a refresh token of its own,
    /// it keeps the earlier one.
    fn following(self, earlier: Option<&Token>, grant: Grant) -> Token {
        let kept = earlier.and_then(|earlier| Some((earlier.refresh.clone()?, earlier.lifetime)));
        let before = kept.as_ref().and_then(|(_, lifetime)| *lifetime);
        let (refresh, lifetime) = match (self.refresh, kept) {
            (Some(refresh), _) => (Some(refresh), self.lifetime.map(|lifetime| lifetime.after(before))),
            (None, Some((refresh, lifetime))) => (Some(refresh), lifetime),
            // The client, or the secret `refreshToken`, gets the next one.
            (None, None) => (None, None),
        };
        // The client gets each token by itself.
        let lifetime = lifetime.filter(|_| grant != Grant::ClientCredentials);
        Token { refresh, lifetime, ..self }
    }

    /// Reads the members that [`Self::to_members`] has returned. `None`: there is no access token among them.
    pub fn from_members(
        members: &SecretMembers,
        issued: Option<u64>,
        renew_at: Option<u64>,
        lifetime: Option<Lifetime>,
    ) -> Option<Token> {
        let member = |name| members.get(name).map(|value| Zeroizing::new(value.to_owned()));
        Some(Token { access: member(ACCESS)?, refresh: member(REFRESH), issued, renew_at, lifetime })
    }

    /// Returns the secrets of the token.
    pub fn to_members(&self) -> SecretMembers {
        let refresh = self.refresh.as_ref().map(|refresh| (REFRESH.to_owned(), refresh.to_string()));
        [(ACCESS.to_owned(), self.access.to_string())].into_iter().chain(refresh).collect()
    }

    /// Returns true if the host renews the token because a server has refused it. A younger one would hardly be refused for
    /// its age, so a new one would be refused, too.
    pub(super) fn is_old(&self, now: u64) -> bool {
        self.issued.is_none_or(|at| now.saturating_sub(at) >= RENEWAL_PAUSE_MS)
    }

    fn is_usable(&self, now: u64) -> bool {
        self.renew_at.is_none_or(|at| now < at)
    }
}

impl Lifetime {
    /// Returns the lifetime of a token that follows an earlier one. An end that stays the same keeps its begin, so that it can
    /// be told from one that each renewal moves.
    fn after(self, earlier: Option<Lifetime>) -> Lifetime {
        match earlier {
            Some(earlier) if self.ends.abs_diff(earlier.ends) <= SAME_END_MS => earlier,
            Some(earlier) if self.ends < earlier.ends => Lifetime { since: earlier.since, ..self },
            _ => self,
        }
    }
}

impl Of<'_> {
    /// Returns the current token. Renews it if it ends soon, or if it is the one in `stale`, which a server has refused.
    pub(super) async fn current(&self, secrets: &SecretMembers, stale: Option<&Token>) -> Result<Token, Failure> {
        let owned = self.owned();
        let began = owned.store.now();
        for _ in 0..MAX_LOOKS {
            let state = owned.state().await?;
            let now = owned.store.now();
            let is_fresh =
                |token: &&Token| token.is_usable(now) && stale.is_none_or(|stale| stale.access != token.access);
            if let Some(token) = state.token.as_ref().filter(is_fresh) {
                return Ok(token.clone());
            }
            let is_known = |failure: &&RefreshFailure| failure.at >= began || failure.is_final(now);
            if let Some(failure) = state.failure.as_ref().filter(is_known) {
                return Err(failure.to_failure());
            }
            if state.claimed_until.is_some_and(|until| now < until) {
                owned.store.pause().await;
                continue;
            }
            let claim = TokenState { claimed_until: Some(now + REFRESH_LEASE_MS), ..state.clone() };
            if owned.replace(claim.clone()).await? {
                // The caller may give up, but an answer with a new refresh token must be stored.
                let (owned, secrets) = (owned.clone(), secrets.clone());
                let renewed = tokio::spawn(async move { owned.renew(&secrets, claim).await }).await;
                return renewed.unwrap_or_else(|_| Err(not_renewed(self.name, "the renewal was interrupted")));
            }
        }
        Err(not_renewed(self.name, "another process renews it for too long"))
    }

    /// Exchanges the code of an authorization for tokens, and stores them in place of earlier ones.
    pub(super) async fn connect(&self, secrets: &SecretMembers, with: &Authorization) -> Result<(), Failure> {
        let owned = self.owned();
        let token = owned.request(secrets, oauth2::Proof::Code(with)).await?;
        for _ in 0..MAX_LOOKS {
            let seen = owned.state().await?.seen;
            let state = TokenState { token: Some(token.clone()), claimed_until: None, failure: None, seen };
            if owned.replace(state).await? {
                return Ok(());
            }
        }
        Err(not_renewed(self.name, "other processes changed its tokens at the same time; try again"))
    }

    fn owned(&self) -> Owned {
        Owned {
            store: self.store.clone(),
            client: self.client.clone(),
            tenant: self.tenant.clone(),
            name: self.name.to_owned(),
            version: self.version,
            settings: self.settings.clone(),
        }
    }
}

impl Owned {
    /// Gets the next token, and stores it. `claim` is the state that this process has just written.
    async fn renew(&self, secrets: &SecretMembers, claim: TokenState) -> Result<Token, Failure> {
        let earlier = claim.token.as_ref().and_then(|token| token.refresh.clone());
        let proof = oauth2::Proof::of(&self.settings, secrets, earlier.as_deref());
        let asked = self.request(secrets, proof).await;
        let state = self.state().await?;
        if state.claimed_until != claim.claimed_until {
            return Err(not_renewed(&self.name, "the renewal took too long, and another process has begun one"));
        }
        let (next, failure) = match &asked {
            Ok(token) => (Some(token.clone().following(claim.token.as_ref(), self.settings.grant)), None),
            Err(failure) => {
                let failure = RefreshFailure::new(failure, self.store.now(), state.failure.as_ref());
                (state.token.clone(), Some(failure))
            }
        };
        let stored = TokenState { token: next.clone(), claimed_until: None, failure, seen: state.seen };
        if !self.replace(stored).await? {
            return Err(not_renewed(&self.name, "another process has changed its tokens at the same time"));
        }
        match (asked, next) {
            (Ok(_), Some(token)) => Ok(token),
            (Err(failure), _) => Err(failure),
            (Ok(token), None) => Ok(token),
        }
    }

    /// Asks the token endpoint for a token. The operator may have forbidden the tenant this server since the credential was
    /// set.
    async fn request(&self, secrets: &SecretMembers, proof: oauth2::Proof<'_>) -> Result<Token, Failure> {
        let own = self.clone();
        let allowed = blocking(move || own.store.check_token_url(&own.tenant, &own.settings.token_url)).await;
        allowed.map_err(|cause| oauth2::caused(&self.name, &cause))?;
        let (client, tenant, name, settings) = (&self.client, &self.tenant, &*self.name, &self.settings);
        let asking = oauth2::Asking { client, tenant, name, settings, secrets, now: self.store.now() };
        oauth2::request(&asking, proof).await
    }

    async fn state(&self) -> Result<TokenState, Failure> {
        let own = self.clone();
        blocking(move || own.store.tokens(&own.tenant, &own.name, own.version)).await
    }

    async fn replace(&self, state: TokenState) -> Result<bool, Failure> {
        let own = self.clone();
        blocking(move || own.store.replace_tokens(&own.tenant, &own.name, own.version, &state)).await
    }
}

impl RefreshFailure {
    fn new(failure: &Failure, at: u64, earlier: Option<&RefreshFailure>) -> RefreshFailure {
        let Failure { message, details, retryable, .. } = failure;
        let since = earlier.map_or(at, |earlier| earlier.since.min(at));
        RefreshFailure { at, since, message: message.clone(), details: details.clone(), retryable: *retryable }
    }

    /// Returns true if the issuer has refused for good, a short time before `now`. Another version of the credential, and a
    /// new consent, have no failure.
    fn is_final(&self, now: u64) -> bool {
        let is_answer = self.details.as_ref().is_some_and(|details| details.get(oauth2::STATUS).is_some());
        is_answer && !self.retryable && now.saturating_sub(self.at) < RENEWAL_PAUSE_MS
    }

    fn to_failure(&self) -> Failure {
        let RefreshFailure { message, details, retryable, .. } = self.clone();
        Failure { details, retryable, ..Failure::new(code::CREDENTIAL_REFRESH_FAILED, message) }
    }
}

fn not_renewed(name: &str, why: &str) -> Failure {
    let message = format!("the token of the credential `{name}` was not renewed: {why}");
    Failure::retryable(code::CREDENTIAL_REFRESH_FAILED, message)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::time::Duration;

    use super::*;
    use crate::http::Limits;

    const DAY: u64 = 24 * 3_600_000;

    /// Returns the token of an answer with these members.
    fn token(members: &str, now: u64) -> Token {
        let body = format!(r#"{{ "access_token": "access-token"{members} }}"#);
        oauth2::token(body.as_bytes(), now).unwrap().unwrap()
    }

    #[test]
    fn a_token_has_the_end_of_its_refresh_token_or_its_own() {
        let refresh = r#", "expires_in": 3600, "refresh_token": "refresh-token""#;
        for (members, ends) in [
            (String::new(), None),
            (r#", "expires_in": 5184000"#.into(), Some(60 * DAY)),
            (refresh.into(), None),
            (format!(r#"{refresh}, "refresh_token_expires_in": 2592000"#), Some(30 * DAY)),
            (format!(r#"{refresh}, "refresh_expires_in": "86400""#), Some(DAY)),
            (format!(r#"{refresh}, "x_refresh_token_expires_in": 86400"#), Some(DAY)),
            (format!(r#"{refresh}, "refresh_expires_in": 0"#), None),
            (format!(r#"{refresh}, "refresh_expires_in": -1"#), None),
            (format!(r#"{refresh}, "refresh_expires_in": 18446744073709551615"#), Some(u64::MAX)),
        ] {
            let lifetime = ends.map(|ends: u64| Lifetime { since: 7, ends: ends.saturating_add(7) });
            assert_eq!(token(&members, 7).lifetime, lifetime, "{members}");
        }
    }

    #[test]
    fn an_end_that_stays_keeps_its_begin_and_one_that_moves_does_not() {
        let answer = |days: u64, now: u64| {
            let seconds = days * DAY / 1000;
            token(&format!(r#", "refresh_token": "r", "refresh_expires_in": {seconds}"#), now)
        };
        let first = answer(30, 0);
        let next = |answer: Token, grant| answer.following(Some(&first), grant).lifetime;
        let code = Grant::AuthorizationCode;
        assert_eq!(next(answer(20, 10 * DAY + 999), code), Some(Lifetime { since: 0, ends: 30 * DAY }));
        assert_eq!(next(answer(5, 10 * DAY), code), Some(Lifetime { since: 0, ends: 15 * DAY }));
        assert_eq!(next(answer(30, 10 * DAY), code), Some(Lifetime { since: 10 * DAY, ends: 40 * DAY }));
        assert_eq!(next(token(r#", "refresh_token": "r""#, DAY), code), None, "the server names no end any more");
        // Without a new refresh token the earlier one stays, with its end.
        let kept = token(r#", "expires_in": 3600"#, DAY).following(Some(&first), code);
        assert_eq!((kept.refresh, kept.lifetime), (first.refresh.clone(), first.lifetime));
        assert_eq!(next(answer(30, DAY), Grant::ClientCredentials), None);
        assert_eq!(token(r#", "expires_in": 3600"#, 0).following(None, Grant::RefreshToken).lifetime, None);
    }

    #[test]
    fn a_short_token_of_an_issuer_is_refused() {
        let read = |token: &str| oauth2::token(format!(r#"{{ "access_token": "{token}" }}"#).as_bytes(), 0).unwrap();
        let why = read("abcdefg").unwrap_err();
        assert!(why.contains("fewer than 8 bytes") && !why.contains("abc"), "{why}");
        assert!(read("abcdefgh").is_ok());
    }

    #[test]
    fn a_call_outlasts_the_lease_of_a_process_that_ended() {
        let lease = Duration::from_millis(REFRESH_LEASE_MS);
        assert!(oauth2::TIME_LIMIT < lease, "a renewal ends within its lease");
        assert!(lease + oauth2::TIME_LIMIT < Limits::default().default_timeout);
    }

    #[test]
    fn only_final_refusals_of_an_issuer_pause_renewals() {
        let details = |member: &str| Some(Json::object([(member, Json::from(400_u64))]));
        let failure = |details, retryable| {
            let failure = Failure { details, retryable, ..Failure::new(code::CREDENTIAL_REFRESH_FAILED, "no") };
            RefreshFailure::new(&failure, 5, None)
        };
        let is_final =
            |failure: RefreshFailure| [5, RENEWAL_PAUSE_MS + 4, RENEWAL_PAUSE_MS + 5].map(|now| failure.is_final(now));
        assert_eq!(is_final(failure(details("status"), false)), [true, true, false]);
        assert_eq!(is_final(failure(details("status"), true)), [false; 3], "429 and 5xx");
        assert_eq!(is_final(failure(details("code"), false)), [false; 3], "the issuer was not reached");
        assert_eq!(is_final(failure(None, false)), [false; 3]);
    }

    #[test]
    fn failures_that_follow_each_other_have_one_begin() {
        let failure = Failure::new(code::CREDENTIAL_REFRESH_FAILED, "no");
        let first = RefreshFailure::new(&failure, 5, None);
        let second = RefreshFailure::new(&failure, 9, Some(&first));
        assert_eq!((first.since, second.since, second.at), (5, 5, 9));
    }
}
