//! The limit on the rate of requests to one origin: a token bucket, kept as the time at which it is full again.

use std::time::Duration;

use tokio::time::Instant;

/// A token bucket.
#[derive(Debug)]
pub(super) struct Bucket {
    /// The time in which one token arrives.
    interval: Duration,
    /// The time in which all tokens but one arrive.
    tolerance: Duration,
    /// The time at which the bucket is full.
    full_at: Instant,
    /// The time before which no request begins, because the server has asked for a pause.
    pause_until: Instant,
}

impl Bucket {
    pub(super) fn new(per_second: f64, burst: u32, now: Instant) -> Bucket {
        let interval = Duration::from_secs_f64(1.0 / per_second);
        let tolerance = interval.saturating_mul(burst.max(1) - 1);
        Bucket { interval, tolerance, full_at: now, pause_until: now }
    }

    /// Returns the time from which the next request may begin, after `queued` other ones.
    pub(super) fn next_at(&self, now: Instant, queued: usize) -> Instant {
        let queued = u32::try_from(queued).unwrap_or(u32::MAX);
        let full_at = self.full_at.max(self.pause_until) + self.interval.saturating_mul(queued).min(MAX_AHEAD);
        let begins = full_at.checked_sub(self.tolerance).unwrap_or(now);
        begins.max(self.pause_until).max(now)
    }

    /// Takes one token.
    pub(super) fn take(&mut self, now: Instant) {
        self.full_at = self.full_at.max(now) + self.interval;
    }

    /// Lets no request begin for this time.
    pub(super) fn pause(&mut self, now: Instant, time: Duration) {
        self.pause_until = self.pause_until.max(now + time);
    }

    pub(super) fn is_full(&self, now: Instant) -> bool {
        self.full_at <= now && self.pause_until <= now
    }
}

/// The longest wait that is computed; nothing waits for so long.
const MAX_AHEAD: Duration = Duration::from_secs(24 * 3600);
