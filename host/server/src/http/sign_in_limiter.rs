//! The rate limit for sign-ins that come back from an issuer, by client address.

use std::{
    collections::HashMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::seats::counted_address;

/// Maximum number of sign-ins that browsers of one address finish in a [`WINDOW`].
const MAX_RETURNS: u32 = 120;
/// The time during which sign-ins of an address count.
pub(crate) const WINDOW: Duration = Duration::from_secs(60);
/// Maximum number of addresses whose sign-ins are counted.
const MAX_ADDRESSES: usize = 10_000;

/// Counts the sign-ins that browsers of an address finish. Only those count whose state fits a cookie of this server, so
/// a stranger cannot use up the count of others by made-up ones.
#[derive(Default)]
pub(crate) struct SignInLimiter(Mutex<HashMap<IpAddr, (Instant, u32)>>);

impl SignInLimiter {
    /// Counts a sign-in. Returns false if the address has finished too many.
    pub(crate) fn count(&self, from: IpAddr, now: Instant) -> bool {
        let (mut all, from) = (self.0.lock(), counted_address(from));
        if all.len() >= MAX_ADDRESSES && !all.contains_key(&from) {
            all.retain(|_, (since, _)| now.saturating_duration_since(*since) < WINDOW);
            if all.len() >= MAX_ADDRESSES {
                all.clear();
            }
        }
        let (since, count) = all.entry(from).or_insert((now, 0));
        if now.saturating_duration_since(*since) >= WINDOW {
            (*since, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
        *count <= MAX_RETURNS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sign_ins_of_an_address_are_counted_for_a_minute() {
        let (limiter, now) = (SignInLimiter::default(), Instant::now());
        let (here, there): (IpAddr, IpAddr) = ([127, 0, 0, 1].into(), [127, 0, 0, 2].into());
        assert!((0..MAX_RETURNS).all(|_| limiter.count(here, now)));
        assert!(!limiter.count(here, now) && limiter.count(there, now));
        assert!(limiter.count(here, now + WINDOW));
        for address in 0..MAX_ADDRESSES as u32 + 10 {
            limiter.count(std::net::Ipv4Addr::from(address).into(), now);
        }
        assert!(limiter.0.lock().len() <= MAX_ADDRESSES);
    }
}
