//! Invocations that the cluster gives up or cancels while their process lives.

use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
};

use crate::{
    nodes::{chain, ledger},
    server::{free_port, own_server, post, send, server, tables, wait_until},
    supervisor::{Host, fresh},
};

/// The calls of a run, each of which lasts 50 ms.
const CALLS: usize = 20;

/// Passes connections on to a port. A connection to that port stays open after the other side is gone, as after a failure
/// of the network. Returns the port of the proxy.
fn proxy(to: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for outer in listener.incoming() {
            // The process may have no endpoint yet.
            let (Ok(outer), Ok(inner)) = (outer, TcpStream::connect(("127.0.0.1", to))) else { continue };
            let (from, back) = (outer.try_clone().unwrap(), inner.try_clone().unwrap());
            std::thread::spawn(move || pass(from, &inner));
            std::thread::spawn(move || pass(back, &outer));
        }
    });
    port
}

/// Copies bytes until `from` ends. Bytes that `to` does not take are lost.
fn pass(mut from: TcpStream, mut to: &TcpStream) {
    let mut bytes = [0; 16 << 10];
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        let _ = to.write_all(&bytes[..length]);
    }
    // Dropped here, the connections would end.
    std::mem::forget((from, to.try_clone()));
}

#[test]
fn a_run_goes_on_while_a_given_up_invocation_is_open_in_its_process() {
    let Some(mut server) = own_server() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (port, file) = (free_port(), folder.path().join("ledger"));
    let url = format!("{}&url=http://127.0.0.1:{}", server.url(&tables().unwrap(), port), proxy(port));
    let host = Host::at(&url, folder.path());
    let run = fresh("open");
    host.accept(&run, &chain(&["type: t.call, input: { ms: 50 }"; CALLS]));
    for kills in 1..=2 {
        wait_until("calls are made", || ledger(&file).len() >= kills * 4);
        server.kill();
        server.start();
    }
    host.wait_for(&run, "succeeded");
    let facts = host.facts(&run);
    assert_eq!(facts.iter().filter(|fact| *fact == "CallEnded").count(), CALLS, "{facts:?}");
    let keys: BTreeSet<_> = ledger(&file).into_iter().collect();
    assert_eq!(keys.len(), CALLS, "each operation has one key");
}

#[test]
fn a_run_whose_invocation_is_cancelled_goes_on_and_keeps_its_facts() {
    let Some(server) = server() else { return };
    let folder = tempfile::tempdir().unwrap();
    let host = Host::open(&server, folder.path());
    let (run, file) = (fresh("cancelled"), folder.path().join("ledger"));
    host.accept(&run, &chain(&["type: t.call, input: { ms: 50 }"; CALLS]));
    wait_until("calls are made", || ledger(&file).len() >= 4);
    let query =
        format!("SELECT id FROM sys_invocation WHERE target_service_key = 'local/{run}' AND status = 'running'");
    let found = post(server.admin, "/query", &format!("{{\"query\":\"{query}\"}}"));
    let ids: Vec<_> = found.split('"').filter(|part| part.starts_with("inv_")).collect();
    assert!(!ids.is_empty(), "{found}");
    ids.iter().for_each(|id| _ = send(server.admin, "PATCH", &format!("/invocations/{id}/cancel"), ""));
    host.wait_for(&run, "succeeded");
    let facts = host.facts(&run);
    assert_eq!(facts.iter().filter(|fact| *fact == "CallEnded").count(), CALLS, "{facts:?}");
    let keys: BTreeSet<_> = ledger(&file).into_iter().collect();
    assert_eq!(keys.len(), CALLS, "each operation has one key");
}
