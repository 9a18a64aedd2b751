//! Messages between the processes of a store that may be lost, such as live events.

use std::sync::Arc;

use flowcell_runtime::{
    shared::{Relay, SharedRuns},
    sql::{Dialect, Options, SharedStore},
};
use tokio::sync::broadcast::Receiver;

use super::wait_for;
use crate::stores::{
    backend::Backend,
    servers::{Server, own_server, server},
};

/// A process of a store.
struct Process {
    relay: Arc<dyn Relay>,
    received: Receiver<Arc<str>>,
    _store: SharedStore,
}

impl Process {
    fn open(url: &str) -> Process {
        let store = SharedStore::open(url, Options::default()).unwrap();
        let relay = store.relay().unwrap();
        Process { received: relay.receive(), relay, _store: store }
    }

    /// Returns the messages that have come since the last call.
    fn take(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.received.try_recv().ok()).map(|message| message.to_string()).collect()
    }

    /// Sends a message until another process has it. Returns what that process has received.
    fn reach(&self, other: &mut Process, message: &str) -> Vec<String> {
        wait_for(message, || {
            self.relay.send(message.to_owned());
            Some(other.take()).filter(|taken| !taken.is_empty())
        })
    }
}

fn with_schema(server: &Server, database: &str, schema: &str) -> String {
    server.execute(database, &[&format!("CREATE SCHEMA {schema}")]);
    format!("{}&options[search_path]={schema}", server.url(database))
}

#[test]
fn messages_reach_the_other_processes_of_their_store_and_no_others() {
    let Some(server) = server(Dialect::Postgres) else { return };
    let (one, two) = (server.database(), server.database());
    let urls = [server.url(&one), with_schema(server, &one, "other"), server.url(&two)];
    let mut stores: Vec<_> = urls.iter().map(|url| (Process::open(url), Process::open(url))).collect();
    // Each store receives its message after the servers have told the earlier ones to all listeners.
    for round in 0..2 {
        for (index, (sender, receiver)) in stores.iter_mut().enumerate() {
            let own = format!("{index} of {round}");
            let taken = sender.reach(receiver, &own);
            assert!(taken.iter().all(|message| message.starts_with(&format!("{index} of"))), "{own}: {taken:?}");
            assert_eq!(sender.take(), [""; 0], "a process does not receive its own messages");
        }
    }
}

#[test]
fn a_message_is_as_large_as_a_notification() {
    let Some(server) = server(Dialect::Postgres) else { return };
    let url = server.url(&server.database());
    let (sender, mut receiver) = (Process::open(&url), Process::open(&url));
    let largest = "x".repeat(flowcell_runtime::limits::MAX_RELAYED_BYTES);
    assert!(!sender.relay.send(format!("{largest}x")));
    assert_eq!(sender.reach(&mut receiver, &largest)[0], largest);
}

#[test]
fn messages_go_on_after_the_server_was_killed() {
    let Some(mut server) = own_server(Dialect::Postgres) else { return };
    let url = server.url(&server.database());
    let (sender, mut receiver) = (Process::open(&url), Process::open(&url));
    sender.reach(&mut receiver, "before");
    server.kill();
    // Messages of the outage are lost, and nothing waits for them.
    (0..10_000).for_each(|_| _ = sender.relay.send("during".to_owned()));
    server.start();
    wait_for("a message after the outage", || {
        let taken = sender.reach(&mut receiver, "after");
        taken.iter().any(|message| message == "after").then_some(())
    });
}

/// MySQL and MariaDB have no notifications.
pub(crate) fn only_postgres_has_a_relay(backend: &Backend) {
    let store = backend.open();
    let Backend::Server(server, _) = backend else { return };
    assert_eq!(store.server.as_ref().unwrap().relay().is_some(), server.dialect == Dialect::Postgres);
}
