//! Outages: times in which the server does not answer, or accepts no writes.
//!
//! Any error of a connection, and a slow statement, makes the server suspect. A tokio task (`recovery`) then tests the
//! server with a connection of its own, and with a commit, which may wait for a replica that is away. If the test fails, an
//! outage begins, and the test is repeated each second until it succeeds. No further commit begins meanwhile.
//! Callers wait for the end of the outage, for at most [`patience`](super::options::Options::patience). Once the outage
//! has lasted that long, callers get an error at once. Once the lease of this process may have ended, too, the process
//! gives up its runs, and drives them again after the outage. The log has a line at the begin of the outage, and then
//! one a minute.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::sql_error::SqlError;
use crate::limits::SLOW_STATEMENT_MS;

/// Interval between two tests of a server in an outage.
pub(super) const TEST_INTERVAL: Duration = Duration::from_secs(1);
/// Interval between two log lines about outages.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The operations that an outage prevents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Blocked {
    /// The server answers, and refuses writes: its disk is full, or it is a replica.
    Writes,
    /// The server does not answer.
    Everything,
}

/// An outage that has not ended.
struct Current {
    blocked: Blocked,
    since: Instant,
    error: Arc<str>,
    /// True if the log has a line about this outage.
    logged: bool,
}

#[derive(Default)]
struct State {
    current: Option<Current>,
    /// The time and text of the first error since the last successful test.
    suspected: Option<(Instant, Arc<str>)>,
    last_line: Option<Instant>,
}

/// The outages of one server.
#[derive(Default)]
pub(super) struct Outages {
    state: Mutex<State>,
    pub(super) suspicion: Notify,
    end: Notify,
}

impl Outages {
    /// Records an error after which the server may be unusable. The server is tested soon.
    pub(super) fn suspect(&self, error: &dyn std::fmt::Display) {
        self.state.lock().suspected.get_or_insert_with(|| (Instant::now(), error.to_string().into()));
        self.suspicion.notify_one();
    }

    /// Records an error of a statement. A lost connection makes the server suspect. A server that refuses writes is in
    /// an outage.
    pub(super) fn note(&self, error: &SqlError) {
        match error {
            SqlError::Lost(why) => self.suspect(why),
            SqlError::Unavailable(why) => self.begin(Blocked::Writes, why),
            _ => {}
        }
    }

    /// Begins an outage after an error of a statement. The current outage may only become worse.
    pub(super) fn begin(&self, blocked: Blocked, error: &dyn std::fmt::Display) {
        let current = self.state.lock().current.as_ref().map(|current| current.blocked);
        self.record(current.map_or(blocked, |current| current.max(blocked)), error);
        self.suspicion.notify_one();
    }

    /// Begins an outage, or records the latest error of the current one. Returns the time since its begin.
    pub(super) fn record(&self, blocked: Blocked, error: &dyn std::fmt::Display) -> Duration {
        let mut state = self.state.lock();
        let since = state.suspected.as_ref().map_or_else(Instant::now, |(since, _)| *since);
        let error: Arc<str> = error.to_string().into();
        let may_log = state.last_line.is_none_or(|line| line.elapsed() >= LOG_INTERVAL);
        let current = state.current.get_or_insert(Current { blocked, since, error: error.clone(), logged: false });
        (current.blocked, current.error) = (blocked, error);
        current.logged |= may_log;
        let (age, error) = (current.since.elapsed(), current.error.clone());
        if may_log {
            state.last_line = Some(Instant::now());
            let what = match blocked {
                Blocked::Writes => "written",
                Blocked::Everything => "read",
            };
            tracing::warn!(
                "the store cannot be {what}, so its runs wait; it is tried again each second, so far for {} s: {error}",
                age.as_secs()
            );
        }
        age
    }

    /// Ends the current outage, if there is one.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.suspected = None;
        let ended = state.current.take();
        drop(state);
        if let Some(ended) = ended {
            if ended.logged {
                let outcome = match ended.blocked {
                    Blocked::Writes => "written",
                    Blocked::Everything => "read",
                };
                let seconds = ended.since.elapsed().as_secs();
                tracing::warn!("the store can be {outcome} again, after {seconds} s");
            }
            self.end.notify_waiters();
        }
    }

    /// Returns the error of an outage that prevents this operation for longer than `patience`.
    pub(super) fn error(&self, operation: Blocked, patience: Duration) -> Option<SqlError> {
        let state = self.state.lock();
        let current = state.current.as_ref().filter(|current| current.blocked >= operation)?;
        let age = current.since.elapsed();
        let why = || format!("the database server has been away for {} s: {}", age.as_secs(), current.error);
        (age >= patience).then(|| SqlError::Outage(why()))
    }

    /// Waits for work of the server, and suspects it if the work takes long.
    pub(super) async fn watch<T>(&self, work: impl Future<Output = T>) -> T {
        let mut working = std::pin::pin!(work);
        let slow = tokio::time::timeout(Duration::from_millis(SLOW_STATEMENT_MS), &mut working).await;
        match slow {
            Ok(done) => done,
            Err(_) => {
                self.suspect(&"the server has not answered yet");
                working.await
            }
        }
    }

    /// Returns the error of the present outage that prevents the operation, or else the given error.
    pub(super) fn explain(&self, operation: Blocked, error: SqlError) -> SqlError {
        if error.is_transient() { self.error(operation, Duration::ZERO).unwrap_or(error) } else { error }
    }

    /// Waits until no outage prevents the operation. Fails once one has prevented it for longer than `patience`.
    pub(super) async fn wait(&self, operation: Blocked, patience: Duration) -> Result<(), SqlError> {
        loop {
            // The future is enabled before the check, so that it sees an end right after the check.
            let mut ended = std::pin::pin!(self.end.notified());
            ended.as_mut().enable();
            if let Some(error) = self.error(operation, patience) {
                return Err(error);
            }
            if self.error(operation, Duration::ZERO).is_none() {
                return Ok(());
            }
            let _ = tokio::time::timeout(TEST_INTERVAL, ended).await;
        }
    }

    /// Waits for the end of the current outage, at most for `pause`. Without an outage, waits for `pause`.
    pub(super) async fn pause(&self, pause: Duration) {
        let _ = tokio::time::timeout(pause, self.end.notified()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::StoreError;

    #[test]
    fn callers_get_an_error_once_an_outage_is_longer_than_their_patience() {
        let outages = Outages::default();
        assert!(outages.error(Blocked::Writes, Duration::ZERO).is_none());
        outages.begin(Blocked::Writes, &"the disk is full");
        assert!(outages.error(Blocked::Everything, Duration::ZERO).is_none(), "reads succeed");
        assert!(outages.error(Blocked::Writes, Duration::from_secs(60)).is_none(), "the caller waits");
        let error = outages.error(Blocked::Writes, Duration::ZERO).map(StoreError::from).unwrap();
        assert!(error.is_outage() && error.to_string().ends_with(": the disk is full"), "{error}");
        outages.begin(Blocked::Everything, &"connection refused");
        assert!(outages.error(Blocked::Everything, Duration::ZERO).is_some());
        outages.begin(Blocked::Writes, &"a late commit");
        assert!(outages.error(Blocked::Everything, Duration::ZERO).is_some(), "only a test shows that reads succeed");
        outages.record(Blocked::Writes, &"the disk is full");
        assert!(outages.error(Blocked::Everything, Duration::ZERO).is_none());
        outages.end();
        assert!(outages.error(Blocked::Writes, Duration::ZERO).is_none());
    }

    #[test]
    fn the_log_has_one_line_a_minute() {
        let outages = Outages::default();
        let logged = || outages.state.lock().current.as_ref().map(|current| current.logged);
        outages.begin(Blocked::Everything, &"a");
        assert_eq!(logged(), Some(true));
        outages.end();
        // The next outage begins within the minute.
        outages.begin(Blocked::Everything, &"b");
        assert_eq!(logged(), Some(false));
    }
}
