//! Limits the pace at which runs begin that were resumed in vain, since each of them may have crashed its process. If
//! the process dies again, all of these runs that have begun become suspects.

use std::time::Duration;

use tokio::time::Instant;

/// Maximum number of such runs that begin in one [`STEP`].
const AT_ONCE: usize = 16;
/// The time within which a run that crashes its process usually does so.
const STEP: Duration = Duration::from_secs(1);

/// Counts the runs that have begun in the current step.
#[derive(Default)]
pub(super) struct Spread {
    since: Option<Instant>,
    begun: usize,
}

impl Spread {
    /// Returns whether one more run may begin now, and counts it.
    pub(super) fn take(&mut self) -> bool {
        if self.rest().is_zero() {
            (self.since, self.begun) = (Some(Instant::now()), 0);
        }
        let may = self.begun < AT_ONCE;
        self.begun += usize::from(may);
        may
    }

    /// Returns the time until the next step begins. Zero if no step has begun, or if the last one is over.
    pub(super) fn rest(&self) -> Duration {
        self.since.map_or(Duration::ZERO, |since| STEP.saturating_sub(since.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn r25_a_few_runs_begin_in_each_step() {
        let mut spread = Spread::default();
        for _ in 0..3 {
            assert_eq!((0..100).filter(|_| spread.take()).count(), AT_ONCE);
            tokio::time::advance(spread.rest() - Duration::from_millis(1)).await;
            assert!(!spread.take());
            tokio::time::advance(Duration::from_millis(1)).await;
        }
    }
}
