//! Connections that wait to be used again.

use std::{collections::HashMap, time::Duration};

use flowcell_contract::Tenant;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::connection::Connection;
use crate::egress::Origin;

/// Below the least time after which usual servers close: what one side closes while the other writes is lost.
const IDLE: Duration = Duration::from_secs(4);
/// Unused connections of one key, at most.
const MAX_PER_KEY: usize = 8;
/// Unused connections, at most.
const MAX: usize = 64;

/// Who may use a connection for what. Tenants share none: what one of them provokes must not answer another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) tenant: Tenant,
    pub(super) origin: Origin,
}

#[derive(Default)]
pub(super) struct Pool(Mutex<HashMap<Key, Vec<Idle>>>);

struct Idle {
    connection: Connection,
    since: Instant,
}

impl Idle {
    fn is_fresh(&self, now: Instant) -> bool {
        now.duration_since(self.since) < IDLE && !self.connection.is_closed()
    }
}

impl Pool {
    /// Takes a usable connection, the one that was used last.
    pub(super) async fn take(&self, key: &Key) -> Option<Connection> {
        loop {
            let mut connection = self.pop(key)?;
            if connection.is_usable().await {
                return Some(connection);
            }
        }
    }

    fn pop(&self, key: &Key) -> Option<Connection> {
        let mut idle = self.0.lock();
        sweep(&mut idle);
        Some(idle.get_mut(key)?.pop()?.connection)
    }

    /// Keeps a connection, unless there are enough.
    pub(super) fn put(&self, key: Key, connection: Connection) {
        let mut idle = self.0.lock();
        sweep(&mut idle);
        let full = idle.values().map(Vec::len).sum::<usize>() >= MAX;
        let same = idle.get(&key).map_or(0, Vec::len);
        if !full && same < MAX_PER_KEY && !connection.is_closed() {
            idle.entry(key).or_default().push(Idle { connection, since: Instant::now() });
        }
    }
}

/// Drops what is too old. There is no task that does so: at most [`MAX`] connections stay until somebody comes, or
/// until their peers close them.
fn sweep(idle: &mut HashMap<Key, Vec<Idle>>) {
    let now = Instant::now();
    idle.retain(|_, connections| {
        connections.retain(|connection| connection.is_fresh(now));
        !connections.is_empty()
    });
}
