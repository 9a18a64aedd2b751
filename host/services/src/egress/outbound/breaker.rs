//! The circuit breaker of one origin: a state machine without a clock, without locks and without I/O.
//!
//! | state | requests | ends |
//! |---|---|---|
//! | closed | all begin | [`MAX_FAILURES`] failures in a row: open |
//! | open | none begins | after its wait the next request becomes the probe: probing |
//! | probing | none but the probe begins, and another one every [`PROBE_TIME`] | a probe is answered: recovering. It fails: open, with a longer wait |
//! | recovering | their rate doubles each second | after [`RECOVERY`]: closed. Half of the answers are failures: open |

use std::time::Duration;

use tokio::time::Instant;

/// The number of failures in a row that opens a breaker.
pub(super) const MAX_FAILURES: u32 = 10;
/// A failure that is older than this no longer counts.
pub(super) const FAILURE_MEMORY: Duration = Duration::from_secs(60);
/// The wait of a breaker that opens for the first time. Each failed probe doubles it.
pub(super) const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait before the random extension of up to a third.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(30);
/// The longest interval after the wait in which refused requests are told to come back, each at a random time. It is twice
/// the wait if that is shorter.
pub(super) const MAX_SPREAD: Duration = Duration::from_secs(20);
/// The time for which all requests wait for the end of one probe. After it the next request is a probe, too: the caller of the
/// first one may wait for an answer for hours.
pub(super) const PROBE_TIME: Duration = Duration::from_secs(30);
/// The time after a successful probe in which the rate of requests grows.
pub(super) const RECOVERY: Duration = Duration::from_secs(7);
/// The number of requests that begin in the first second of a recovery. Each later second has twice as many.
pub(super) const FIRST_SECOND: f64 = 10.0;

/// The breaker of one origin.
#[derive(Debug)]
pub(super) struct Breaker {
    state: State,
    /// Counts the changes of the state, so that the end of an older request changes nothing.
    epoch: u64,
    /// The number of times that the breaker has opened since it was closed.
    openings: u32,
    /// The time at which the breaker first opened since it was closed.
    since: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Closed { failures: u32, last: Option<Instant> },
    Open { until: Instant },
    Probing { since: Instant },
    Recovering { since: Instant, begun: f64, answers: u32, failures: u32 },
}

/// The right to send one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ticket {
    epoch: u64,
}

/// The end of a request, as the breaker sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The server answered.
    Answered,
    /// No connection, no answer in time, or the status 502, 503 or 504.
    Failed,
    /// The request says nothing about the server: it was cancelled, or its address is private.
    Unknown,
}

/// The state of a breaker that refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The time since the breaker first opened.
    pub(super) open_for: Duration,
    /// The time until the next probe, if it is known.
    pub(super) remaining: Duration,
    /// The interval after that in which refused requests come back.
    pub(super) spread: Duration,
}

/// The state of a breaker that does not let all requests begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// No request begins. After the wait the next request is the probe.
    Open,
    /// A request probes the server, and the others wait for its end.
    Probing,
    /// The probe was answered, and the rate of requests grows.
    Recovering,
}

/// The present state of a breaker that is not closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotClosed {
    pub(super) state: BreakerState,
    /// The time since the breaker first opened.
    pub(super) open_for: Duration,
    /// The time until the state ends: until the next probe, or until the breaker is closed. Zero if an open breaker waits
    /// for a request.
    pub(super) remaining: Duration,
}

/// A change that people want to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The breaker opened for the first time since it was closed.
    Opened,
    /// The breaker opened again.
    Reopened,
    /// The probe was answered.
    Recovers,
}

impl Default for Breaker {
    fn default() -> Breaker {
        Breaker { state: State::Closed { failures: 0, last: None }, epoch: 0, openings: 0, since: None }
    }
}

impl Breaker {
    /// Returns the time from which the next request may begin, which may be in the past. `queued` other requests begin
    /// before it.
    pub(super) fn next_at(&mut self, now: Instant, queued: usize) -> Result<Instant, Refusal> {
        self.close_if_recovered(now);
        match self.state {
            State::Closed { .. } => Ok(now),
            State::Open { until } if until <= now => Ok(now),
            State::Open { until } => Err(self.refusal(now, until - now)),
            State::Probing { since } => match PROBE_TIME.checked_sub(now.saturating_duration_since(since)) {
                Some(left) if !left.is_zero() => Err(self.refusal(now, left)),
                _ => Ok(now),
            },
            State::Recovering { since, begun, .. } => {
                let begun = begun.max(begun_by(now - since)) + queued as f64;
                Ok(since + Duration::from_secs_f64((1.0 + begun / FIRST_SECOND).log2()))
            }
        }
    }

    /// Begins a request for which [`Breaker::next_at`] has given a time that is not after `now`.
    pub(super) fn begin(&mut self, now: Instant) -> Ticket {
        match &mut self.state {
            State::Open { .. } => self.change(State::Probing { since: now }),
            // The epoch stays: a late answer of the earlier probe counts, too.
            State::Probing { since } => *since = now,
            State::Recovering { since, begun, .. } => *begun = begun.max(begun_by(now - *since)) + 1.0,
            State::Closed { .. } => {}
        }
        Ticket { epoch: self.epoch }
    }

    /// Takes in the end of a request. `random` is from 0 to 1 and lengthens the wait of a breaker that opens.
    pub(super) fn end(&mut self, ticket: Ticket, outcome: Outcome, now: Instant, random: f64) -> Option<Change> {
        self.close_if_recovered(now);
        if ticket.epoch != self.epoch {
            return None;
        }
        match (&mut self.state, outcome) {
            (State::Closed { failures, .. }, Outcome::Answered) => *failures = 0,
            (State::Closed { failures, last }, Outcome::Failed) => {
                let is_old = last.is_none_or(|last| now.saturating_duration_since(last) > FAILURE_MEMORY);
                *failures = if is_old { 1 } else { *failures + 1 };
                *last = Some(now);
                if *failures >= MAX_FAILURES {
                    return Some(self.open(now, random));
                }
            }
            (State::Probing { .. }, Outcome::Answered) => {
                self.change(State::Recovering { since: now, begun: 0.0, answers: 1, failures: 0 });
                return Some(Change::Recovers);
            }
            (State::Probing { .. }, Outcome::Failed) => return Some(self.open(now, random)),
            // Another request becomes the probe.
            (State::Probing { .. }, Outcome::Unknown) => self.change(State::Open { until: now }),
            (State::Recovering { answers, .. }, Outcome::Answered) => *answers += 1,
            (State::Recovering { answers, failures, .. }, Outcome::Failed) => {
                *failures += 1;
                if *failures >= *answers {
                    return Some(self.open(now, random));
                }
            }
            (_, Outcome::Unknown) | (State::Open { .. }, _) => {}
        }
        None
    }

    /// Returns true if the breaker lets requests begin without a limit.
    pub(super) fn is_closed(&self, now: Instant) -> bool {
        match self.state {
            State::Closed { .. } => true,
            State::Recovering { since, .. } => now.saturating_duration_since(since) >= RECOVERY,
            State::Open { .. } | State::Probing { .. } => false,
        }
    }

    /// Returns true if the breaker refuses requests, or waits for the end of a probe.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, State::Open { .. } | State::Probing { .. })
    }

    /// Returns the present state of the breaker, or `None` if it lets all requests begin.
    pub(super) fn not_closed(&self, now: Instant) -> Option<NotClosed> {
        let (state, until) = match self.state {
            State::Open { until } => (BreakerState::Open, until),
            State::Probing { since } => (BreakerState::Probing, since + PROBE_TIME),
            State::Recovering { since, .. } if !self.is_closed(now) => (BreakerState::Recovering, since + RECOVERY),
            State::Recovering { .. } | State::Closed { .. } => return None,
        };
        let open_for = self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        Some(NotClosed { state, open_for, remaining: until.saturating_duration_since(now) })
    }

    /// Returns true if a new breaker would behave in the same way.
    pub(super) fn is_as_new(&self, now: Instant) -> bool {
        match self.state {
            State::Closed { failures, last } => {
                failures == 0 || last.is_none_or(|last| now.saturating_duration_since(last) > FAILURE_MEMORY)
            }
            _ => self.is_closed(now),
        }
    }

    /// Returns the time by which the wait of an open breaker has ended for so long. `None` if it is not open.
    pub(super) fn overdue(&self, now: Instant) -> Option<Duration> {
        match self.state {
            State::Open { until } => Some(now.saturating_duration_since(until)),
            _ => None,
        }
    }

    fn open(&mut self, now: Instant, random: f64) -> Change {
        let wait = wait_after(self.openings).mul_f64(1.0 + random.clamp(0.0, 1.0) / 3.0);
        self.openings += 1;
        self.since.get_or_insert(now);
        self.change(State::Open { until: now + wait });
        if self.openings == 1 { Change::Opened } else { Change::Reopened }
    }

    fn close_if_recovered(&mut self, now: Instant) {
        if matches!(self.state, State::Recovering { .. }) && self.is_closed(now) {
            self.change(State::Closed { failures: 0, last: None });
            (self.openings, self.since) = (0, None);
        }
    }

    fn change(&mut self, state: State) {
        self.state = state;
        self.epoch += 1;
    }

    fn refusal(&self, now: Instant, remaining: Duration) -> Refusal {
        let open_for = self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let wait = wait_after(self.openings.saturating_sub(1));
        Refusal { open_for, remaining, spread: (wait * 2).min(MAX_SPREAD) }
    }
}

/// Returns the wait of a breaker that has opened so many times before, without its random extension.
fn wait_after(openings: u32) -> Duration {
    FIRST_WAIT.saturating_mul(1 << openings.min(16)).min(MAX_WAIT)
}

/// Returns the number of requests that may begin in this time since a successful probe.
fn begun_by(elapsed: Duration) -> f64 {
    FIRST_SECOND * (elapsed.as_secs_f64().exp2() - 1.0)
}
