//! The tokio task that tests a suspect server until it can be used.

use std::sync::Arc;

use super::{
    Shared, epoch,
    outage::{Blocked, TEST_INTERVAL},
    sql_error::SqlError,
};
use crate::limits::SERVER_CONNECTIONS;

/// Tests the server whenever it is suspect, until an outage has ended.
pub(super) async fn test_suspect_server(shared: Arc<Shared>) {
    let outages = shared.connections.outages().clone();
    loop {
        outages.suspicion.notified().await;
        while let Err((blocked, error)) = test(&shared).await {
            if outages.record(blocked, &error) >= shared.options.outage_patience() {
                shared.claims.lose_all();
            }
            tokio::time::sleep(TEST_INTERVAL).await;
        }
        outages.end();
    }
}

/// Tests the server, and checks whether its database is the one that this process knows.
async fn test(shared: &Shared) -> Result<(), (Blocked, SqlError)> {
    shared.connections.test().await?;
    // The pool may have connections that are broken. Each of them fails once.
    let mut checked = check_database(shared).await;
    for _ in 0..SERVER_CONNECTIONS {
        if !matches!(checked, Err(SqlError::Lost(_))) {
            break;
        }
        checked = check_database(shared).await;
    }
    checked.map_err(|error| (Blocked::Everything, error))
}

async fn check_database(shared: &Shared) -> Result<(), SqlError> {
    let mut connection = shared.connections.acquire_now(shared.options.patience).await?;
    epoch::check(shared, &mut connection).await
}
