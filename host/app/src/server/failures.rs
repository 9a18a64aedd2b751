//! Those who show tokens that nobody has: how many tries an address has.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use sha2::{Digest, Sha256};

/// Tries of an address in a minute that may fail; after that only those who were let in from there before are asked.
pub(crate) const FAILURES: u32 = 100;
/// How long failures count.
const WINDOW: Duration = Duration::from_secs(60);
/// Addresses that are remembered.
const ADDRESSES: usize = 10_000;
/// Tokens that are remembered of an address from which somebody fails.
const TOKENS: usize = 64;

/// The address that a request comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) IpAddr);

type Hash = [u8; 32];

/// Failures of the last minute, by address. Without failures nothing is remembered.
#[derive(Default)]
pub(crate) struct Failures(Mutex<HashMap<IpAddr, Tries>>);

struct Tries {
    since: Instant,
    failed: u32,
    /// The hashes of tokens that were good from there meanwhile.
    good: Vec<Hash>,
}

impl Failures {
    /// How long somebody has to wait until this token is looked at; none: not at all.
    pub(super) fn rest(&self, from: IpAddr, token: Option<&str>, now: Instant) -> Option<Duration> {
        let tries = self.tries();
        let tries = tries.get(&from).filter(|tries| tries.count_at(now))?;
        let may_try = tries.failed < FAILURES || token.is_some_and(|token| tries.good.contains(&hash(token)));
        (!may_try).then(|| WINDOW.saturating_sub(now.saturating_duration_since(tries.since)))
    }

    /// Nobody has what was shown.
    pub(super) fn failed(&self, from: IpAddr, now: Instant) {
        let mut all = self.tries();
        if all.len() >= ADDRESSES {
            all.retain(|_, tries| tries.count_at(now));
        }
        if all.len() >= ADDRESSES && !all.contains_key(&from) {
            all.clear();
        }
        let tries = all.entry(from).or_insert_with(|| Tries { since: now, failed: 0, good: Vec::new() });
        if !tries.count_at(now) {
            (tries.since, tries.failed) = (now, 0);
        }
        tries.failed = tries.failed.saturating_add(1);
    }

    /// Somebody was let in.
    pub(super) fn succeeded(&self, from: IpAddr, token: &str) {
        let mut all = self.tries();
        let Some(tries) = all.get_mut(&from) else { return };
        let hash = hash(token);
        if tries.good.len() < TOKENS && !tries.good.contains(&hash) {
            tries.good.push(hash);
        }
    }

    fn tries(&self) -> MutexGuard<'_, HashMap<IpAddr, Tries>> {
        // A panic while the lock was held cannot have left the map half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn hash(token: &str) -> Hash {
    Sha256::digest(token.as_bytes()).into()
}

impl Tries {
    fn count_at(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) < WINDOW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const THERE: IpAddr = IpAddr::V6(std::net::Ipv6Addr::LOCALHOST);

    #[test]
    fn h18_whoever_guesses_is_turned_away_for_a_while_and_those_who_were_let_in_are_not() {
        let (failures, now) = (Failures::default(), Instant::now());
        failures.failed(HERE, now);
        failures.succeeded(HERE, "known");
        (0..FAILURES).for_each(|_| failures.failed(HERE, now));
        let rest = |from, token, after| failures.rest(from, token, now + after);
        let second = Duration::from_secs(1);
        assert_eq!(rest(HERE, Some("guessed"), Duration::ZERO), Some(WINDOW));
        assert_eq!(rest(HERE, None, second), Some(WINDOW - second));
        assert_eq!((rest(HERE, Some("known"), second), rest(THERE, Some("guessed"), second)), (None, None));
        assert_eq!(rest(HERE, Some("guessed"), WINDOW), None);
        failures.failed(HERE, now + WINDOW);
        assert_eq!(rest(HERE, Some("guessed"), WINDOW), None);
    }

    #[test]
    fn no_more_addresses_are_remembered_than_a_number() {
        let (failures, now) = (Failures::default(), Instant::now());
        for address in 0..ADDRESSES as u32 + 10 {
            failures.failed(std::net::Ipv4Addr::from(address).into(), now);
        }
        assert!(failures.tries().len() <= ADDRESSES);
    }
}
