//! The pool of idle connections.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Weak},
    time::Duration,
};

use flowcell_contract::Tenant;
use parking_lot::Mutex;
use tokio::{runtime, time::Instant};

use super::connection::Connection;
use crate::egress::Origin;

/// An unused connection is reused for at most this time. It is shorter than the idle timeout of common servers: a
/// message that the client writes while the server closes the connection is lost.
const MAX_IDLE_TIME: Duration = Duration::from_secs(4);
/// Maximum number of idle connections for one tenant and origin.
const MAX_PER_KEY: usize = 64;
/// Maximum number of idle connections in the pool.
const MAX_CONNECTIONS: usize = 256;
/// The minimum time between two searches of the whole pool for connections that nobody may use any more.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// The tenant and origin of a connection, and the runtime that drives it. Tenants share no connections: an answer caused
/// by one must not reach another. Runtimes share none either: a connection breaks when its runtime ends, and that must
/// not fail a request that waits on another runtime.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    tenant: Tenant,
    origin: Origin,
    runtime: runtime::Id,
}

impl Key {
    /// Returns the key of the connections that the present runtime drives.
    pub(super) fn of(tenant: &Tenant, origin: &Origin) -> Key {
        Key { tenant: tenant.clone(), origin: origin.clone(), runtime: runtime::Handle::current().id() }
    }
}

#[derive(Default)]
pub(super) struct Pool(Mutex<Connections>);

/// The idle connections of each key, those that were idle for the longest time first. No key has an empty list.
#[derive(Default)]
struct Connections {
    by_key: HashMap<Key, VecDeque<Idle>>,
    count: usize,
    swept: Option<Instant>,
    /// True if a [`Sweeper`] runs.
    has_sweeper: bool,
}

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
        let now = Instant::now();
        idle.sweep(now);
        loop {
            let found = idle.remove(key, VecDeque::pop_back)?;
            if found.is_fresh(now) {
                return Some(found.connection);
            }
        }
    }

    /// Adds a connection to the pool for reuse, unless it is closed. If its key then has more than [`MAX_PER_KEY`]
    /// connections, or the pool more than [`MAX_CONNECTIONS`], drops the one that was idle for the longest time.
    pub(super) fn put(self: &Arc<Pool>, key: Key, connection: Connection) {
        if connection.is_closed() {
            return;
        }
        let mut idle = self.0.lock();
        let now = Instant::now();
        idle.sweep(now);
        let of_key = idle.by_key.entry(key.clone()).or_default();
        of_key.push_back(Idle { connection, since: now });
        let is_key_full = of_key.len() > MAX_PER_KEY;
        idle.count += 1;
        let surplus = match is_key_full {
            true => Some(key),
            false if idle.count > MAX_CONNECTIONS => idle.key_of_oldest(),
            false => None,
        };
        let dropped = surplus.and_then(|key| idle.remove(&key, VecDeque::pop_front));
        let needs_sweeper = !std::mem::replace(&mut idle.has_sweeper, true);
        // Closing it need not keep others from the pool.
        drop(idle);
        drop(dropped);
        if needs_sweeper {
            tokio::spawn(Sweeper(Arc::downgrade(self)).run());
        }
    }
}

/// Closes idle connections while nobody uses the pool. It ends when the pool is empty, or with its runtime.
struct Sweeper(Weak<Pool>);

impl Sweeper {
    async fn run(mut self) {
        loop {
            tokio::time::sleep(MAX_IDLE_TIME).await;
            let Some(pool) = self.0.upgrade() else { return };
            let mut idle = pool.0.lock();
            idle.swept = None;
            idle.sweep(Instant::now());
            if idle.count == 0 {
                idle.has_sweeper = false;
                // The next connection may have another sweeper already when this one is dropped.
                self.0 = Weak::new();
                return;
            }
        }
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        if let Some(pool) = self.0.upgrade() {
            pool.0.lock().has_sweeper = false;
        }
    }
}

impl Connections {
    /// Removes one of a key's connections.
    fn remove(&mut self, key: &Key, which: fn(&mut VecDeque<Idle>) -> Option<Idle>) -> Option<Idle> {
        let of_key = self.by_key.get_mut(key)?;
        let removed = which(of_key);
        if of_key.is_empty() {
            self.by_key.remove(key);
        }
        self.count -= usize::from(removed.is_some());
        removed
    }

    fn key_of_oldest(&self) -> Option<Key> {
        let oldest = self.by_key.iter().filter_map(|(key, idle)| Some((key, idle.front()?.since)));
        oldest.min_by_key(|(_, since)| *since).map(|(key, _)| key.clone())
    }

    /// Drops closed connections, and those that were idle for longer than [`MAX_IDLE_TIME`], once in a while.
    fn sweep(&mut self, now: Instant) {
        if self.swept.is_some_and(|swept| now.duration_since(swept) < SWEEP_INTERVAL) {
            return;
        }
        self.swept = Some(now);
        self.by_key.retain(|_, idle| {
            idle.retain(|idle| idle.is_fresh(now));
            !idle.is_empty()
        });
        self.count = self.by_key.values().map(VecDeque::len).sum();
    }
}
