//! Counts posts to triggers that do not exist. Their senders are anonymous, so they may not fill the log.

use parking_lot::Mutex;

/// Minimum time between two lines in the log, in milliseconds.
const MIN_LINE_INTERVAL_MS: u64 = 60_000;

/// The posts to unknown triggers since the last line in the log.
#[derive(Default)]
pub(super) struct UnknownPosts(Mutex<Counted>);

#[derive(Default)]
struct Counted {
    posts: u64,
    logged: Option<u64>,
}

impl UnknownPosts {
    /// Counts one post at the time `now`, in milliseconds since 1970. If a line in the log is due, returns the number
    /// of posts since the last line.
    pub(super) fn count(&self, now: u64) -> Option<u64> {
        let mut counted = self.0.lock();
        counted.posts += 1;
        if counted.logged.is_some_and(|logged| now.abs_diff(logged) < MIN_LINE_INTERVAL_MS) {
            return None;
        }
        counted.logged = Some(now);
        Some(std::mem::take(&mut counted.posts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_posts_are_logged_once_a_minute_with_their_number() {
        let posts = UnknownPosts::default();
        let now = 1_000_000;
        assert_eq!(posts.count(now), Some(1));
        assert_eq!(posts.count(now + 1), None);
        assert_eq!(posts.count(now + MIN_LINE_INTERVAL_MS - 1), None);
        assert_eq!(posts.count(now + MIN_LINE_INTERVAL_MS), Some(3));
        assert_eq!(posts.count(now), Some(1), "the clock was set back by a minute");
    }
}
