//! Limits how many of the runs resumed in vain begin in a second. A run was resumed in vain if its process died before
//! the run made progress. Each of these runs may have crashed the process. If the process dies again, those that have
//! begun become suspects.

use std::time::Duration;

use tokio::time::Instant;

/// Maximum number of runs resumed in vain that begin within one step. A step lasts [`STEP_TIME`].
const MAX_PER_STEP: usize = 16;
/// The length of a step. A run that crashes its process usually does so within this time.
const STEP_TIME: Duration = Duration::from_secs(1);

/// Counts the runs resumed in vain that have begun in the current step.
#[derive(Default)]
pub(super) struct Spread {
    since: Option<Instant>,
    begun: usize,
}

impl Spread {
    /// Returns whether one more run may begin now. If it may, the method counts it.
    pub(super) fn try_take(&mut self) -> bool {
        if self.time_to_next_step().is_zero() {
            (self.since, self.begun) = (Some(Instant::now()), 0);
        }
        let may = self.begun < MAX_PER_STEP;
        self.begun += usize::from(may);
        may
    }

    /// Returns the time until the next step begins. Zero if no step has begun, or if the last one is over.
    pub(super) fn time_to_next_step(&self) -> Duration {
        self.since.map_or(Duration::ZERO, |since| STEP_TIME.saturating_sub(since.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn r25_a_few_runs_begin_in_each_step() {
        let mut spread = Spread::default();
        for _ in 0..3 {
            assert_eq!((0..100).filter(|_| spread.try_take()).count(), MAX_PER_STEP);
            tokio::time::advance(spread.time_to_next_step() - Duration::from_millis(1)).await;
            assert!(!spread.try_take());
            tokio::time::advance(Duration::from_millis(1)).await;
        }
    }
}
