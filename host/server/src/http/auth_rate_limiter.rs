//! The rate limit for tokens and links that do not exist, by client address.
//!
//! The limit only bounds the work that guessing causes. A valid token is accepted no matter how many tokens from the
//! same address were unknown. Many callers may share an address, such as that of a proxy, and a stranger must not lock
//! them out.

use std::{
    collections::HashMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{api_error::ApiError, identity::AuthError, seats::counted_address};

/// Maximum number of unknown tokens from one address in a [`WINDOW`]. Above it, an unknown token from the address gets
/// 429 instead of 401. Look-ups of tokens from all addresses above this limit run one after the other.
pub(crate) const MAX_UNKNOWN_TOKENS: u32 = 100;
/// The length of an address's counting window, which begins with its first unknown token.
const WINDOW: Duration = Duration::from_secs(60);
/// The maximum number of addresses in the table. If it is full of addresses whose windows have not ended, it is
/// cleared.
const MAX_ADDRESSES: usize = 10_000;

/// The address of the client that sent a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientAddr(pub(crate) IpAddr);

/// Counts the unknown tokens of each client address.
pub(crate) struct AuthRateLimiter {
    tries: Mutex<HashMap<IpAddr, UnknownTokens>>,
    /// One permit: the look-ups of tokens from addresses with too many unknown tokens run one after the other.
    turn: Semaphore,
}

struct UnknownTokens {
    since: Instant,
    failed: u32,
}

impl Default for AuthRateLimiter {
    fn default() -> AuthRateLimiter {
        AuthRateLimiter { tries: Mutex::default(), turn: Semaphore::new(1) }
    }
}

impl AuthRateLimiter {
    /// Looks a token up, or a `what` of another kind, with which it counts. Returns 401 if it is unknown, and 429 if too many
    /// from this address were unknown.
    pub(crate) async fn limited<T>(
        &self,
        from: Option<IpAddr>,
        what: &str,
        look_up: impl Future<Output = Result<T, AuthError>>,
    ) -> Result<T, ApiError> {
        let now = Instant::now();
        let turn = match from {
            Some(from) => self.wait_for_turn(from, now).await,
            None => None,
        };
        let found = look_up.await;
        drop(turn);
        if let (Err(AuthError::Unknown), Some(from)) = (&found, from) {
            let retry_after = self.retry_after(from, now);
            self.count_unknown_token(from, now);
            if let Some(rest) = retry_after {
                let seconds = rest.as_secs() as u32 + 1;
                let why = format!(
                    "the {what} is unknown, and too many unknown tokens or links came from this address; check the {what}, \
                     and try again in {seconds} s"
                );
                return Err(ApiError::busy("too_many_failures", why).with_retry_after(seconds));
            }
        }
        Ok(found?)
    }

    /// Waits for the permit to look up a token from an address with too many unknown tokens, and returns it. Returns
    /// `None` at once for any other address, which needs no permit.
    pub(crate) async fn wait_for_turn(&self, from: IpAddr, now: Instant) -> Option<SemaphorePermit<'_>> {
        self.retry_after(from, now)?;
        // The semaphore is never closed, so this cannot fail.
        self.turn.acquire().await.ok()
    }

    /// Returns the time for which unknown tokens from this address still get 429. `None` means that they get 401.
    pub(crate) fn retry_after(&self, from: IpAddr, now: Instant) -> Option<Duration> {
        let tries = self.tries.lock();
        let tries = tries
            .get(&counted_address(from))
            .filter(|tries| tries.is_current(now) && tries.failed >= MAX_UNKNOWN_TOKENS)?;
        Some(WINDOW.saturating_sub(now.saturating_duration_since(tries.since)))
    }

    /// Counts an unknown token from this address.
    pub(crate) fn count_unknown_token(&self, from: IpAddr, now: Instant) {
        let (mut all, from) = (self.tries.lock(), counted_address(from));
        if all.len() >= MAX_ADDRESSES {
            all.retain(|_, tries| tries.is_current(now));
        }
        if all.len() >= MAX_ADDRESSES && !all.contains_key(&from) {
            all.clear();
        }
        let tries = all.entry(from).or_insert_with(|| UnknownTokens { since: now, failed: 0 });
        if !tries.is_current(now) {
            (tries.since, tries.failed) = (now, 0);
        }
        tries.failed = tries.failed.saturating_add(1);
    }
}

impl UnknownTokens {
    fn is_current(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) < WINDOW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const THERE: IpAddr = IpAddr::V6(std::net::Ipv6Addr::LOCALHOST);

    #[test]
    fn h18_unknown_tokens_count_for_one_minute_and_one_address() {
        let (failures, now) = (AuthRateLimiter::default(), Instant::now());
        (0..MAX_UNKNOWN_TOKENS - 1).for_each(|_| failures.count_unknown_token(HERE, now));
        assert_eq!(failures.retry_after(HERE, now), None);
        failures.count_unknown_token(HERE, now);
        let second = Duration::from_secs(1);
        assert_eq!(failures.retry_after(HERE, now + second), Some(WINDOW - second));
        assert_eq!(failures.retry_after(THERE, now), None);
        assert_eq!(failures.retry_after(HERE, now + WINDOW), None);
        failures.count_unknown_token(HERE, now + WINDOW);
        assert_eq!(failures.retry_after(HERE, now + WINDOW), None);
    }

    #[test]
    fn the_number_of_remembered_addresses_is_bounded() {
        let (failures, now) = (AuthRateLimiter::default(), Instant::now());
        for address in 0..MAX_ADDRESSES as u32 + 10 {
            failures.count_unknown_token(std::net::Ipv4Addr::from(address).into(), now);
        }
        assert!(failures.tries.lock().len() <= MAX_ADDRESSES);
    }
}
