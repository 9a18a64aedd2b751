//! The relay of live events: notifications of PostgreSQL between the processes of a store.
//!
//! One connection of its own sends and receives. The name of the channel has the number of a table of the store, so
//! stores in other schemas of the database do not receive the messages. A notification has several messages, one a line.
//! While the server is away, messages are dropped: they neither delay a run nor count as an outage.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use sqlx::{Executor, Row as _, postgres::PgListener};
use tokio::{
    sync::{Notify, broadcast},
    time::timeout,
};

use super::{Shared, connection::Connections};
use crate::{
    limits::{MAX_RELAYED_BYTES, MAX_RELAYED_MESSAGES, RELAY_CHECK_MS, RELAY_PAUSE_MS, RELAY_RETRY_MS, SERVER_TEST_MS},
    shared::Relay,
};

/// The number of the table tells apart the stores in several schemas of one database.
const CONNECT: &str = "SELECT 'flowcell_live_' || ('flowcell_objects'::regclass::oid)::text, pg_backend_pid()";
/// A notification is a transaction that writes nothing. It does not wait for the disk or for a replica.
const DO_NOT_WAIT: &str = "SET synchronous_commit TO off";

/// The messages that wait for the server, and the receivers of those that have come.
pub(super) struct SqlRelay {
    waiting: Mutex<VecDeque<String>>,
    added: Notify,
    /// True once a caller receives messages.
    is_used: AtomicBool,
    received: broadcast::Sender<Arc<str>>,
}

impl Default for SqlRelay {
    fn default() -> SqlRelay {
        SqlRelay {
            waiting: Mutex::default(),
            added: Notify::new(),
            is_used: AtomicBool::new(false),
            received: broadcast::Sender::new(MAX_RELAYED_MESSAGES),
        }
    }
}

impl Relay for SqlRelay {
    fn send(&self, message: String) -> bool {
        let mut waiting = self.waiting.lock();
        let fits = message.len() <= MAX_RELAYED_BYTES && waiting.len() < MAX_RELAYED_MESSAGES;
        if fits && !message.contains('\n') {
            waiting.push_back(message);
            self.added.notify_one();
            return true;
        }
        false
    }

    fn receive(&self) -> broadcast::Receiver<Arc<str>> {
        self.is_used.store(true, Ordering::Release);
        self.added.notify_one();
        self.received.subscribe()
    }
}

impl SqlRelay {
    /// Removes and returns the messages of the next notification. Returns `None` if none waits.
    fn take_batch(&self) -> Option<String> {
        let mut waiting = self.waiting.lock();
        let mut batch = waiting.pop_front()?;
        while let Some(message) = waiting.pop_front() {
            if batch.len() + 1 + message.len() > MAX_RELAYED_BYTES {
                waiting.push_front(message);
                break;
            }
            batch.push('\n');
            batch.push_str(&message);
        }
        Some(batch)
    }
}

/// An error after which the relay connects again.
type Broken = Box<dyn std::error::Error>;

/// Sends and receives messages until the store is closed. Connects when the first caller receives messages, and again
/// after each error.
pub(super) async fn run(shared: Arc<Shared>) {
    let relay = &shared.relay;
    while !relay.is_used.load(Ordering::Acquire) {
        relay.added.notified().await;
    }
    while !shared.queue.is_closed() {
        let Err(error) = carry(relay, &shared.connections).await;
        tracing::debug!("live events of other processes are lost until the database server answers: {error}");
        relay.waiting.lock().clear();
        tokio::time::sleep(Duration::from_millis(RELAY_RETRY_MS)).await;
    }
}

async fn carry(relay: &SqlRelay, connections: &Connections) -> Result<std::convert::Infallible, Broken> {
    let (patience, opened) = (Duration::from_millis(SERVER_TEST_MS), Instant::now());
    let mut listener = timeout(patience, connections.open_listener(patience)).await??;
    listener.eager_reconnect(false);
    let row = timeout(patience, sqlx::query(CONNECT).fetch_one(&mut listener)).await??;
    let (channel, own): (String, i32) = (row.try_get(0)?, row.try_get(1)?);
    timeout(patience, listener.execute(DO_NOT_WAIT)).await??;
    timeout(patience, listener.listen(&channel)).await??;
    // Messages that came before.
    relay.added.notify_one();
    loop {
        tokio::select! {
            received = listener.try_recv() => {
                let notification = received?.ok_or("the connection is lost")?;
                if notification.process_id() as i32 != own {
                    // Without receivers, the messages are dropped.
                    notification.payload().lines().for_each(|message| _ = relay.received.send(message.into()));
                }
            }
            () = relay.added.notified() => {
                // More messages may follow at once, and all of them together are one transaction.
                tokio::time::sleep(Duration::from_millis(RELAY_PAUSE_MS)).await;
                while let Some(batch) = relay.take_batch() {
                    notify(&mut listener, &channel, &batch, patience).await?;
                }
            }
            () = tokio::time::sleep(Duration::from_millis(RELAY_CHECK_MS)) => {
                timeout(patience, listener.execute("SELECT 1")).await??;
            }
        }
        if !connections.has_primary_for(opened.elapsed()) {
            return Err("another database server is the primary".into());
        }
    }
}

/// Sends a notification. One that the server refuses is lost.
async fn notify(listener: &mut PgListener, channel: &str, batch: &str, patience: Duration) -> Result<(), Broken> {
    let sent = sqlx::query("SELECT pg_notify($1, $2)").bind(channel).bind(batch).execute(listener);
    match timeout(patience, sent).await? {
        Err(sqlx::Error::Database(error)) => tracing::debug!("the server refuses live events: {error}"),
        sent => _ = sent?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_batched_up_to_the_limit_and_dropped_above_it() {
        let relay = SqlRelay::default();
        assert!(!relay.send("x".repeat(MAX_RELAYED_BYTES + 1)), "larger than a notification");
        assert!(!relay.send("a\nb".to_owned()), "a line break ends a message");
        assert!(relay.send("x".repeat(MAX_RELAYED_BYTES)));
        let half = "y".repeat(MAX_RELAYED_BYTES / 2);
        (0..3).for_each(|_| assert!(relay.send(half.clone())));
        let sizes: Vec<_> = std::iter::from_fn(|| relay.take_batch()).map(|batch| batch.len()).collect();
        assert_eq!(
            sizes,
            [MAX_RELAYED_BYTES, half.len(), half.len(), half.len()],
            "two halves and a line break are too long"
        );
        (0..3).for_each(|_| assert!(relay.send("z".to_owned())));
        assert_eq!(relay.take_batch().as_deref(), Some("z\nz\nz"));
        let accepted = (0..2 * MAX_RELAYED_MESSAGES).filter(|_| relay.send("z".to_owned())).count();
        assert_eq!(accepted, MAX_RELAYED_MESSAGES);
    }
}
