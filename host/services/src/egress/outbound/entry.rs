//! One origin of one tenant: its breaker, its rate, and the requests that wait for it.

use std::time::Duration;

use flowcell_contract::{Failure, Json, RunId};
use tokio::{task::AbortHandle, time::Instant};

use super::{
    super::origin::Origin,
    breaker::{Breaker, Refusal, Ticket},
    bucket::Bucket,
    limits::OutboundLimits,
    queue::Queue,
};
use crate::code;

/// The longest time that a request waits for its turn.
pub(super) const MAX_WAIT_FOR_TURN: Duration = Duration::from_secs(10);
/// The longest pause for which a server can ask by `Retry-After`.
pub(super) const MAX_PAUSE: Duration = Duration::from_secs(60);
/// An open breaker is forgotten if no request came for so long after its wait.
const MAX_OVERDUE: Duration = Duration::from_secs(10 * 60);

/// One origin of one tenant. `T` is a waiting request.
pub(super) struct Entry<T> {
    pub(super) breaker: Breaker,
    /// False if the operator has switched the breakers of the tenant off.
    pub(super) has_breaker: bool,
    limits: Option<Limits>,
    /// Requests that hold one of the places of [`OutboundLimits::max_concurrency`].
    in_flight: u32,
    pub(super) waiting: Queue<Option<RunId>, T>,
    /// The task that waits for the time of the next request. It ends with its runtime, and then another one takes over.
    pub(super) pump: Option<AbortHandle>,
    used: Option<Instant>,
}

struct Limits {
    bucket: Option<Bucket>,
    max_concurrency: u32,
}

/// The time at which the next request of an entry may begin.
pub(super) enum Next {
    At(Instant),
    /// All places are taken. The end of a request makes one free.
    NoPlace,
    Refused(Refusal),
}

impl<T> Default for Entry<T> {
    fn default() -> Entry<T> {
        Entry {
            breaker: Breaker::default(),
            has_breaker: true,
            limits: None,
            in_flight: 0,
            waiting: Queue::default(),
            pump: None,
            used: None,
        }
    }
}

impl<T> Entry<T> {
    pub(super) fn set_limits(&mut self, limits: Option<OutboundLimits>, now: Instant) {
        self.has_breaker = limits.is_none_or(|limits| limits.breaker != Some(false));
        if !self.has_breaker {
            self.breaker = Breaker::default();
        }
        self.limits = limits.map(|limits| Limits {
            bucket: limits.per_second.map(|rate| Bucket::new(rate, limits.burst(), now)),
            max_concurrency: limits.max_concurrency.unwrap_or(u32::MAX),
        });
    }

    /// Returns when the next request may begin after `queued` other ones.
    pub(super) fn next(&mut self, now: Instant, queued: usize) -> Next {
        let at = match self.breaker.next_at(now, queued) {
            Ok(at) => at,
            Err(refusal) => return Next::Refused(refusal),
        };
        let Some(limits) = &self.limits else { return Next::At(at) };
        if self.in_flight >= limits.max_concurrency {
            return Next::NoPlace;
        }
        Next::At(limits.bucket.as_ref().map_or(at, |bucket| bucket.next_at(now, queued).max(at)))
    }

    /// Begins a request. Returns its ticket, and whether it holds a place until [`Entry::release`].
    pub(super) fn begin(&mut self, now: Instant) -> (Ticket, bool) {
        self.used = Some(now);
        if let Some(limits) = &mut self.limits {
            limits.bucket.iter_mut().for_each(|bucket| bucket.take(now));
            self.in_flight += 1;
        }
        (self.breaker.begin(now), self.limits.is_some())
    }

    /// Returns the place of a request.
    pub(super) fn release(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Lets no request begin for the time that the server asks for, if the operator limits the rate.
    pub(super) fn pause(&mut self, now: Instant, time: Duration) {
        if let Some(bucket) = self.limits.as_mut().and_then(|limits| limits.bucket.as_mut()) {
            bucket.pause(now, time.min(MAX_PAUSE));
        }
    }

    /// Returns true if the entry can be removed, and a later request sees no difference.
    pub(super) fn is_as_new(&self, now: Instant) -> bool {
        self.is_unused(now) && self.breaker.is_as_new(now)
    }

    /// Returns true if the entry can be removed to make room: its breaker is closed, and nothing depends on its limits.
    pub(super) fn is_removable(&self, now: Instant) -> bool {
        self.is_unused(now) && self.breaker.is_closed(now)
    }

    /// Returns true if nothing has asked for the entry for so long that it can be removed.
    pub(super) fn is_stale(&self, now: Instant) -> bool {
        let overdue = self.breaker.overdue(now).is_some_and(|overdue| overdue > MAX_OVERDUE);
        self.is_as_new(now) || overdue && self.is_unused(now)
    }

    fn is_unused(&self, now: Instant) -> bool {
        let bucket = self.limits.as_ref().and_then(|limits| limits.bucket.as_ref());
        self.in_flight == 0 && self.waiting.is_empty() && bucket.is_none_or(|bucket| bucket.is_full(now))
    }

    pub(super) fn used(&self) -> Option<Instant> {
        self.used
    }

    pub(super) fn touch(&mut self, now: Instant) {
        self.used = Some(now);
    }
}

/// Returns the failure of a request that an open breaker refuses. It is told to come back at a random time, so that all
/// refused requests do not come back together.
pub(super) fn circuit_open(origin: &Origin, refusal: Refusal, random: f64) -> Failure {
    let Refusal { open_for, remaining, spread } = refusal;
    let after = Duration::from_secs(1).max(remaining) + spread.mul_f64(random);
    let message = format!(
        "{origin} has failed for {} s, so nothing was sent; it is tried again in {} s",
        open_for.as_secs(),
        remaining.as_secs() + 1
    );
    let details = [
        ("origin", Json::from(origin.to_string())),
        ("openForMs", Json::from(millis(open_for))),
        ("triedAgainInMs", Json::from(millis(remaining))),
    ];
    Failure {
        retry_after_ms: Some(millis(after)),
        details: Some(Json::object(details)),
        ..Failure::retryable(code::CIRCUIT_OPEN, message)
    }
}

/// Returns the failure of a request that would wait for too long. `wait` is the expected wait.
pub(super) fn rate_limited(origin: &Origin, wait: Duration, random: f64) -> Failure {
    let wait = wait.clamp(Duration::from_secs(1), MAX_PAUSE);
    let after = wait.mul_f64(1.0 + random);
    let message = format!(
        "too many requests to {origin}, so nothing was sent: a request waits for at most {} s",
        MAX_WAIT_FOR_TURN.as_secs()
    );
    Failure {
        retry_after_ms: Some(millis(after)),
        details: Some(Json::object([("origin", Json::from(origin.to_string()))])),
        ..Failure::retryable(code::RATE_LIMITED, message)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
