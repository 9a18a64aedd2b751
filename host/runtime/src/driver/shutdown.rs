//! The orderly end of a drive whose process ends.
//!
//! The driver begins no attempts, calls or children. It waits [`CALL_GRACE_MS`] for calls that have left, so that no
//! person has to decide whether they happened. It drops attempts, which are repeated as after a crash. It then parks
//! the run, due at once, and another process resumes it.

use crate::limits::CALL_GRACE_MS;

/// The progress of a shutdown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Shutdown {
    /// The process continues.
    #[default]
    NotRequested,
    /// The driver waits for the ends of calls, and for children, until this time (milliseconds since 1970).
    Waiting(u64),
    /// The driver no longer waits.
    Over,
}

impl Shutdown {
    /// Records a request to stop. For the first request, returns the time at which the wait ends, and `None` for all
    /// others. A request that arrives at that time or later ends the wait.
    pub(super) fn request(&mut self, now: u64) -> Option<u64> {
        match *self {
            Shutdown::NotRequested => {
                let until = now.saturating_add(CALL_GRACE_MS);
                *self = Shutdown::Waiting(until);
                return Some(until);
            }
            Shutdown::Waiting(until) if until <= now => *self = Shutdown::Over,
            Shutdown::Waiting(_) | Shutdown::Over => {}
        }
        None
    }

    /// Returns whether a request to stop has arrived.
    pub(super) fn is_requested(self) -> bool {
        self != Shutdown::NotRequested
    }

    /// Returns whether the driver has to park the run now. `is_quiet` returns whether all calls have ended and all
    /// children are idle.
    pub(super) fn is_complete(self, is_quiet: impl FnOnce() -> bool) -> bool {
        match self {
            Shutdown::NotRequested => false,
            Shutdown::Waiting(_) => is_quiet(),
            Shutdown::Over => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Shutdown;
    use crate::limits::CALL_GRACE_MS;

    #[test]
    fn a_shutdown_is_complete_when_calls_and_children_are_quiet() {
        let mut shutdown = Shutdown::default();
        assert!(!shutdown.is_requested() && !shutdown.is_complete(|| true));
        assert_eq!(shutdown.request(5), Some(5 + CALL_GRACE_MS));
        assert!(shutdown.is_requested() && !shutdown.is_complete(|| false) && shutdown.is_complete(|| true));
    }

    #[test]
    fn a_second_request_ends_the_wait_only_after_the_grace_period() {
        let mut shutdown = Shutdown::default();
        let until = shutdown.request(5).unwrap();
        assert_eq!(shutdown.request(until - 1), None, "the first request alone sets the time");
        assert!(!shutdown.is_complete(|| false));
        assert_eq!(shutdown.request(until), None);
        assert!(shutdown.is_complete(|| false));
    }
}
