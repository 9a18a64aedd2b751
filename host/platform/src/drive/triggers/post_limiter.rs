//! The rate limit for posts that are refused, by the address of the sender and the trigger.
//!
//! Some schemes present a secret as it is, which a stranger may guess. So after [`MAX_REFUSED_POSTS`] in a minute no
//! further post from the same address to the same trigger is checked until the minute is over. Posts from other addresses
//! are checked as before, and so are posts with a signature, so that a stranger does not lock the true sender out unless
//! both share an address and the scheme presents the secret itself.
//!
//! Posts to triggers that do not exist count in the same way, and so do those of all schemes: the limit must not reveal
//! which triggers exist, nor their schemes.

use std::{collections::HashMap, net::IpAddr, time::Duration};

use flowcell_contract::Tenant;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

/// Number of refused posts from one address to one trigger in a [`WINDOW`] after which further ones get 429.
pub const MAX_REFUSED_POSTS: u32 = 20;
/// The length of a counting window, which begins with the first refused post.
const WINDOW: Duration = Duration::from_secs(60);
/// Maximum number of pairs of address and trigger that are counted.
const MAX_PAIRS: usize = 10_000;
/// Maximum number of triggers of one address that are counted apart. All others of the address have one count.
const MAX_TRIGGERS: usize = 100;

/// The address of a sender, and the trigger that it posts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pair {
    from: IpAddr,
    /// The digest of the tenant, the flow and the id of the trigger, which may be long.
    trigger: [u8; 16],
}

impl Pair {
    pub(super) fn new(from: IpAddr, (tenant, flow, id): (&Tenant, &str, &str)) -> Pair {
        let mut digest = Sha256::new();
        for part in [tenant.as_str(), flow, id] {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        let mut trigger = [0; 16];
        trigger.copy_from_slice(&digest.finalize()[..16]);
        Pair { from, trigger }
    }
}

/// Counts the refused posts of each pair.
#[derive(Default)]
pub(super) struct PostLimiter(Mutex<Table>);

#[derive(Default)]
struct Table {
    pairs: HashMap<Pair, Refused>,
    /// The number of pairs of each address.
    of_address: HashMap<IpAddr, usize>,
}

struct Refused {
    since: Instant,
    posts: u32,
}

impl Refused {
    fn is_current(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) < WINDOW
    }
}

impl PostLimiter {
    /// Returns the number of seconds for which posts of this pair are not checked. `None`: they are checked.
    pub(super) fn retry_after(&self, pair: &Pair, now: Instant) -> Option<u32> {
        let table = self.0.lock();
        let refused = table
            .pairs
            .get(&table.counted(pair))
            .filter(|refused| refused.is_current(now) && refused.posts >= MAX_REFUSED_POSTS)?;
        let rest = WINDOW.saturating_sub(now.saturating_duration_since(refused.since));
        Some(u32::try_from(rest.as_secs()).unwrap_or(u32::MAX).saturating_add(1))
    }

    /// Counts a refused post.
    pub(super) fn count(&self, pair: Pair, now: Instant) {
        let mut table = self.0.lock();
        let mut pair = table.counted(&pair);
        if table.pairs.len() >= MAX_PAIRS && !table.pairs.contains_key(&pair) {
            table.make_room(now);
            pair = table.counted(&pair);
        }
        let Table { pairs, of_address } = &mut *table;
        let refused = pairs.entry(pair).or_insert_with(|| {
            *of_address.entry(pair.from).or_default() += 1;
            Refused { since: now, posts: 0 }
        });
        if !refused.is_current(now) {
            *refused = Refused { since: now, posts: 0 };
        }
        refused.posts = refused.posts.saturating_add(1);
    }
}

impl Table {
    /// Returns the pair that counts for this one: itself, or the common one of an address with many triggers.
    fn counted(&self, pair: &Pair) -> Pair {
        let is_known = self.pairs.contains_key(pair);
        let has_many = self.of_address.get(&pair.from).is_some_and(|triggers| *triggers >= MAX_TRIGGERS);
        if !is_known && has_many { Pair { trigger: [0; 16], ..*pair } } else { *pair }
    }

    /// Removes the pairs whose windows have ended, or else those below the limit, or else all.
    fn make_room(&mut self, now: Instant) {
        self.pairs.retain(|_, refused| refused.is_current(now));
        if self.pairs.len() >= MAX_PAIRS {
            self.pairs.retain(|_, refused| refused.posts >= MAX_REFUSED_POSTS);
        }
        if self.pairs.len() >= MAX_PAIRS {
            self.pairs.clear();
        }
        self.of_address.clear();
        for pair in self.pairs.keys() {
            *self.of_address.entry(pair.from).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(from: u32, id: &str) -> Pair {
        Pair::new(std::net::Ipv4Addr::from(from).into(), (&Tenant::from("a"), "flow", id))
    }

    #[test]
    fn refused_posts_count_for_one_minute_one_address_and_one_trigger() {
        let (limiter, now) = (PostLimiter::default(), Instant::now());
        let own = pair(1, "hook");
        (1..MAX_REFUSED_POSTS).for_each(|_| limiter.count(own, now));
        assert_eq!(limiter.retry_after(&own, now), None);
        limiter.count(own, now);
        assert_eq!(limiter.retry_after(&own, now + Duration::from_secs(1)), Some(60));
        assert_eq!(limiter.retry_after(&own, now + WINDOW - Duration::from_millis(1)), Some(1));
        for other in [pair(2, "hook"), pair(1, "other")] {
            assert_eq!(limiter.retry_after(&other, now), None, "{other:?}");
        }
        assert_eq!(limiter.retry_after(&own, now + WINDOW), None);
        limiter.count(own, now + WINDOW);
        assert_eq!(limiter.retry_after(&own, now + WINDOW), None, "a new window begins");
    }

    #[test]
    fn the_parts_of_a_trigger_are_told_apart() {
        let of = |tenant: &str, flow: &str, id: &str| {
            Pair::new(std::net::Ipv4Addr::LOCALHOST.into(), (&Tenant::from(tenant), flow, id))
        };
        assert_ne!(of("a", "bc", "d"), of("ab", "c", "d"));
        assert_ne!(of("a", "b", "cd"), of("a", "bc", "d"));
    }

    #[test]
    fn the_table_is_bounded_and_keeps_the_pairs_above_the_limit() {
        let (limiter, now) = (PostLimiter::default(), Instant::now());
        let guesser = pair(1, "hook");
        (0..MAX_REFUSED_POSTS).for_each(|_| limiter.count(guesser, now));
        (0..2 * MAX_PAIRS as u32 + 10).for_each(|from| limiter.count(pair(from, "made up"), now));
        assert!(limiter.0.lock().pairs.len() <= MAX_PAIRS);
        assert!(limiter.retry_after(&guesser, now).is_some(), "made-up triggers do not reset the count");
        (0..MAX_REFUSED_POSTS).for_each(|_| (0..MAX_PAIRS as u32).for_each(|from| limiter.count(pair(from, "x"), now)));
        assert!(limiter.0.lock().pairs.len() <= MAX_PAIRS);
    }

    #[test]
    fn an_address_does_not_reset_its_count_by_posts_to_other_triggers() {
        let (limiter, now) = (PostLimiter::default(), Instant::now());
        let guesser = pair(1, "hook");
        (1..MAX_REFUSED_POSTS).for_each(|_| limiter.count(guesser, now));
        for number in 0..2 * MAX_PAIRS {
            limiter.count(pair(1, &format!("made up {number}")), now);
        }
        assert_eq!(limiter.0.lock().pairs.len(), MAX_TRIGGERS + 1);
        assert!(limiter.retry_after(&pair(1, "never posted to"), now).is_some(), "the others have one count");
        limiter.count(guesser, now);
        assert!(limiter.retry_after(&guesser, now).is_some());
    }
}
