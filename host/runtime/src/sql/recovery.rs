//! The tokio task that tests a suspect server until it can be used.

use std::{sync::Arc, time::Duration};

use futures_util::{
    FutureExt,
    future::{LocalBoxFuture, join_all},
};
use tokio::time::{Instant, timeout};

use super::{
    Shared,
    connection::{Connection, args},
    epoch, heartbeat,
    outage::{Blocked, TEST_INTERVAL},
    replication,
    sql_error::SqlError,
};
use crate::limits::{COMMIT_TEST_MS, SERVER_TEST_CONNECTIONS, SLOW_COMMIT_MS, SLOW_STATEMENT_MS};

/// Tests the server whenever it is suspect, until an outage has ended.
pub(super) async fn test_suspect_server(shared: Arc<Shared>) {
    let outages = shared.connections.outages().clone();
    loop {
        outages.suspicion.notified().await;
        let mut commits = TestCommits::default();
        while let Err((blocked, error)) = test(&shared, &mut commits).await {
            if outages.record(blocked, &error) >= shared.options.outage_patience() {
                shared.claims.lose_all();
            }
            tokio::time::sleep(TEST_INTERVAL).await;
        }
        outages.end();
    }
}

/// Tests the server, and checks whether its database is the one that this process knows.
async fn test(shared: &Arc<Shared>, commits: &mut TestCommits) -> Result<(), (Blocked, SqlError)> {
    shared.connections.test().await?;
    let check = async |connection: &mut Connection| epoch::check(shared, connection).await;
    with_whole_connection(shared, check).await.map_err(|error| (Blocked::Everything, error))?;
    remove_broken_connections(shared).await;
    test_commit(shared, commits).await
}

/// Closes idle connections that are broken, so that callers do not fail with them. Those to an earlier primary may be silent.
async fn remove_broken_connections(shared: &Shared) {
    let patience = Duration::from_millis(SLOW_STATEMENT_MS);
    let idle: Vec<Connection> = std::iter::from_fn(|| shared.connections.take_idle(patience)).collect();
    let tests = idle.into_iter().map(|mut connection| async move {
        // A connection that fails is closed.
        let _ = connection.row("SELECT 1", args![]).await;
    });
    join_all(tests).await;
}

/// Does work on a connection for tests. Some may be broken since an earlier test. Each of them fails once.
async fn with_whole_connection<T>(
    shared: &Shared,
    work: impl AsyncFn(&mut Connection) -> Result<T, SqlError>,
) -> Result<T, SqlError> {
    let mut broken = 0;
    loop {
        let done = match shared.connections.acquire_for_test(shared.options.patience).await {
            Ok(mut connection) => work(&mut connection).await,
            Err(error) => Err(error),
        };
        match done {
            Err(SqlError::Lost(_)) if broken < SERVER_TEST_CONNECTIONS => broken += 1,
            done => return done,
        }
    }
}

/// A commit that shows whether commits return.
struct TestCommit {
    began: Instant,
    returning: LocalBoxFuture<'static, Result<(), SqlError>>,
}

impl TestCommit {
    fn begin(mut connection: Connection) -> TestCommit {
        // The test commit itself is given up, and not a statement of it.
        connection.replace_patience(Duration::MAX);
        let returning = async move { heartbeat::commit_test_row(&mut connection).await };
        TestCommit { began: Instant::now(), returning: returning.boxed_local() }
    }
}

/// The test commits of one outage. Each one that waits for a replica keeps a session of the server busy, even after its
/// connection is closed, so all tests wait for the same one, also after the server was away. A server that was cut off may
/// never answer it, so it is given up in the end. The sessions stay few, because the time for it doubles.
struct TestCommits {
    waiting: Option<TestCommit>,
    patience: Duration,
}

impl Default for TestCommits {
    fn default() -> TestCommits {
        TestCommits { waiting: None, patience: Duration::from_millis(COMMIT_TEST_MS) }
    }
}

impl TestCommits {
    /// Gives up a test commit on an earlier primary, and one that has waited for too long. Returns whether one still waits.
    fn still_wait(&mut self, now: Instant, is_on_primary: impl FnOnce(Duration) -> bool) -> bool {
        let Some(test) = &self.waiting else { return false };
        let age = now - test.began;
        if !is_on_primary(age) {
            *self = TestCommits::default();
        } else if age >= self.patience {
            (self.waiting, self.patience) = (None, self.patience * 2);
        }
        self.waiting.is_some()
    }
}

async fn test_commit(shared: &Arc<Shared>, commits: &mut TestCommits) -> Result<(), (Blocked, SqlError)> {
    let refused = |error| (Blocked::Writes, error);
    loop {
        let is_new = !commits.still_wait(Instant::now(), |age| shared.connections.has_primary_for(age));
        if is_new {
            let acquired = shared.connections.acquire_for_test(shared.options.patience).await;
            commits.waiting = Some(TestCommit::begin(acquired.map_err(refused)?));
        }
        let Some(test) = &mut commits.waiting else { return Ok(()) };
        let Ok(returned) = timeout(Duration::from_millis(SLOW_COMMIT_MS), &mut test.returning).await else {
            let seconds = test.began.elapsed().as_secs();
            let cause = explain_wait(shared).await;
            let why = format!("the server answers, but a commit has not returned for {seconds} s: {cause}");
            return Err(refused(SqlError::Transient(why)));
        };
        commits.waiting = None;
        match returned {
            // Its connection broke while the server was away.
            Err(SqlError::Lost(_)) if !is_new => {}
            returned => return returned.map_err(refused),
        }
    }
}

/// Returns the reason that the server gives for its waiting commits.
async fn explain_wait(shared: &Shared) -> String {
    match with_whole_connection(shared, replication::awaited_replica).await {
        Ok(Some(replica)) => replica,
        Ok(None) => {
            "no commit waits for a replica, so look for the load, the disk and the locks of the server".to_owned()
        }
        Err(error) => format!("the server does not give the reason: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_commits_that_do_not_return_are_few() {
        let begin = Instant::now();
        let mut commits = TestCommits::default();
        let mut begun = 0;
        // Tests in an outage of one day, some of which fail before the commit.
        for seconds in (0..24 * 3_600).step_by(7) {
            let now = begin + Duration::from_secs(seconds);
            if !commits.still_wait(now, |_| true) {
                begun += 1;
                let returning = std::future::pending().boxed_local();
                commits.waiting = Some(TestCommit { began: now, returning });
            }
        }
        assert_eq!(begun, 11);
        assert!(!commits.still_wait(begin + Duration::from_secs(24 * 3_600), |_| false), "another primary");
        assert_eq!(commits.patience, TestCommits::default().patience);
    }
}
