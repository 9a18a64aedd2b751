//! The pool of idle connections.

use std::{collections::HashMap, time::Duration};

use flowcell_contract::Tenant;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::connection::Connection;
use crate::egress::Origin;

/// An unused connection is reused for at most this time. It is shorter than the idle timeout of common servers: a
/// message that the client writes while the server closes the connection is lost.
const MAX_IDLE_TIME: Duration = Duration::from_secs(4);
/// Maximum number of idle connections for one tenant and origin.
const MAX_PER_KEY: usize = 8;
/// Maximum number of idle connections in the pool.
const MAX_CONNECTIONS: usize = 64;

/// The tenant and origin of a connection. Tenants share no connections: an answer caused by one must not reach another.
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
        now.duration_since(self.since) < MAX_IDLE_TIME && !self.connection.is_closed()
    }
}

impl Pool {
    /// Removes and returns a usable connection, the most recently used first; `None` if there is none.
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

    /// Adds a connection to the pool for reuse. Drops the connection if it is closed, or if the pool already has
    /// [`MAX_CONNECTIONS`] connections in all or [`MAX_PER_KEY`] for this key.
    pub(super) fn put(&self, key: Key, connection: Connection) {
        let mut idle = self.0.lock();
        sweep(&mut idle);
        let full = idle.values().map(Vec::len).sum::<usize>() >= MAX_CONNECTIONS;
        let same = idle.get(&key).map_or(0, Vec::len);
        if !full && same < MAX_PER_KEY && !connection.is_closed() {
            idle.entry(key).or_default().push(Idle { connection, since: Instant::now() });
        }
    }
}

/// Drops connections that were idle for longer than [`MAX_IDLE_TIME`]. It runs only when the pool is used. Until the
/// next use, up to [`MAX_CONNECTIONS`] connections may therefore stay open for longer, unless their peers close them.
fn sweep(idle: &mut HashMap<Key, Vec<Idle>>) {
    let now = Instant::now();
    idle.retain(|_, connections| {
        connections.retain(|connection| connection.is_fresh(now));
        !connections.is_empty()
    });
}
