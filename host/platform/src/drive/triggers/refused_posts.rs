//! Counts refused posts of senders that are not authenticated. Anyone can send them, so they may not fill the log.

use std::collections::HashMap;

use parking_lot::Mutex;

/// Minimum time between two lines in the log about the same refusal, in milliseconds.
const MIN_LINE_INTERVAL_MS: u64 = 60_000;
/// Maximum number of different refusals that are counted. Further ones are counted together.
const MAX_REFUSALS: usize = 1_000;

/// The refused posts since the last lines in the log, by the trigger and the reason.
#[derive(Default)]
pub(super) struct RefusedPosts(Mutex<HashMap<String, Counted>>);

#[derive(Default)]
struct Counted {
    posts: u64,
    logged: Option<u64>,
}

impl RefusedPosts {
    /// Counts one post at the time `now`, in milliseconds since 1970. If a line in the log is due, returns the number
    /// of posts since the last line about the same refusal.
    pub(super) fn count(&self, refusal: &str, now: u64) -> Option<u64> {
        let mut counts = self.0.lock();
        let is_recent = |logged: Option<u64>| logged.is_some_and(|logged| now.abs_diff(logged) < MIN_LINE_INTERVAL_MS);
        if counts.len() >= MAX_REFUSALS && !counts.contains_key(refusal) {
            counts.retain(|_, counted| is_recent(counted.logged));
        }
        let refusal = if counts.len() >= MAX_REFUSALS && !counts.contains_key(refusal) { "" } else { refusal };
        let counted = counts.entry(refusal.to_owned()).or_default();
        counted.posts += 1;
        if is_recent(counted.logged) {
            return None;
        }
        counted.logged = Some(now);
        Some(std::mem::take(&mut counted.posts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000_000;

    #[test]
    fn a_refusal_is_logged_once_a_minute_with_its_number() {
        let posts = RefusedPosts::default();
        assert_eq!(posts.count("a", NOW), Some(1));
        assert_eq!(posts.count("a", NOW + 1), None);
        assert_eq!(posts.count("b", NOW + 1), Some(1));
        assert_eq!(posts.count("a", NOW + MIN_LINE_INTERVAL_MS - 1), None);
        assert_eq!(posts.count("a", NOW + MIN_LINE_INTERVAL_MS), Some(3));
        assert_eq!(posts.count("a", NOW), Some(1), "the clock was set back by a minute");
    }

    #[test]
    fn the_number_of_different_refusals_is_bounded() {
        let posts = RefusedPosts::default();
        let logged = |now| (0..3 * MAX_REFUSALS).filter(|at| posts.count(&at.to_string(), now).is_some()).count();
        assert_eq!(logged(NOW), MAX_REFUSALS + 1);
        assert!(posts.0.lock().len() <= MAX_REFUSALS + 1);
        assert_eq!(logged(NOW + MIN_LINE_INTERVAL_MS), MAX_REFUSALS + 1, "old ones make room");
    }
}
