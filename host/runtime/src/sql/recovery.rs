//! The tokio task that tests a suspect server until it can be used.

use std::{sync::Arc, time::Duration};

use futures_util::{FutureExt, future::LocalBoxFuture};
use tokio::time::{Instant, timeout};

use super::{
    Shared,
    connection::Connection,
    epoch, heartbeat,
    outage::{Blocked, TEST_INTERVAL},
    replication,
    sql_error::SqlError,
};
use crate::limits::{COMMIT_TEST_MS, SERVER_CONNECTIONS, SLOW_COMMIT_MS};

/// Tests the server whenever it is suspect, until an outage has ended.
pub(super) async fn test_suspect_server(shared: Arc<Shared>) {
    let outages = shared.connections.outages().clone();
    loop {
        outages.suspicion.notified().await;
        let mut commit = None;
        while let Err((blocked, error)) = test(&shared, &mut commit).await {
            if outages.record(blocked, &error) >= shared.options.outage_patience() {
                shared.claims.lose_all();
            }
            tokio::time::sleep(TEST_INTERVAL).await;
        }
        outages.end();
    }
}

/// Tests the server, and checks whether its database is the one that this process knows. `commit` is the test commit of an
/// earlier test that has not returned.
async fn test(shared: &Arc<Shared>, commit: &mut Option<TestCommit>) -> Result<(), (Blocked, SqlError)> {
    let tested = async {
        shared.connections.test().await?;
        let check = async |connection: &mut Connection| epoch::check(shared, connection).await;
        with_whole_connection(shared, check).await.map_err(|error| (Blocked::Everything, error))
    };
    if let Err(error) = tested.await {
        // A server that was cut off would not say that the commit has returned.
        *commit = None;
        return Err(error);
    }
    test_commit(shared, commit).await
}

/// Does work on a connection of the pool. The pool may have connections that are broken. Each of them fails once.
async fn with_whole_connection<T>(
    shared: &Shared,
    work: impl AsyncFn(&mut Connection) -> Result<T, SqlError>,
) -> Result<T, SqlError> {
    let mut broken = 0;
    loop {
        let done = match shared.connections.acquire_now(shared.options.patience).await {
            Ok(mut connection) => work(&mut connection).await,
            Err(error) => Err(error),
        };
        match done {
            Err(SqlError::Lost(_)) if broken < SERVER_CONNECTIONS => broken += 1,
            done => return done,
        }
    }
}

/// A commit that shows whether commits return. Each commit that waits for a replica keeps a session of the server busy, even
/// after its connection is closed, so all tests of an outage wait for the same one.
struct TestCommit {
    began: Instant,
    returning: LocalBoxFuture<'static, Result<(), SqlError>>,
}

impl TestCommit {
    fn begin(shared: Arc<Shared>) -> TestCommit {
        let returning = async move {
            let commit = async |connection: &mut Connection| {
                connection.replace_patience(Duration::from_millis(COMMIT_TEST_MS));
                heartbeat::commit_test_row(connection).await
            };
            with_whole_connection(&shared, commit).await
        };
        TestCommit { began: Instant::now(), returning: returning.boxed_local() }
    }
}

async fn test_commit(shared: &Arc<Shared>, commit: &mut Option<TestCommit>) -> Result<(), (Blocked, SqlError)> {
    let is_current = |test: &TestCommit| shared.connections.has_primary_for(test.began.elapsed());
    let mut test = commit.take().filter(is_current).unwrap_or_else(|| TestCommit::begin(shared.clone()));
    match timeout(Duration::from_millis(SLOW_COMMIT_MS), &mut test.returning).await {
        Ok(returned) => returned.map_err(|error| (Blocked::Writes, error)),
        Err(_) => {
            let seconds = test.began.elapsed().as_secs();
            *commit = Some(test);
            let cause = explain_wait(shared).await;
            let why = format!("the server answers, but a commit has not returned for {seconds} s: {cause}");
            Err((Blocked::Writes, SqlError::Transient(why)))
        }
    }
}

/// Returns what the server says that its commits wait for.
async fn explain_wait(shared: &Shared) -> String {
    match with_whole_connection(shared, replication::awaited_replica).await {
        Ok(Some(replica)) => replica,
        Ok(None) => {
            "no commit waits for a replica, so look for the load, the disk and the locks of the server".to_owned()
        }
        Err(error) => format!("it is unknown what it waits for: {error}"),
    }
}
