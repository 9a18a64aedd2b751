//! Runs that one process drives.

use crate::{
    nodes::{chain, ledger},
    server::server,
    supervisor::{Host, fresh},
};

#[test]
fn a_run_is_accepted_driven_and_read_back() {
    let Some(server) = server() else { return };
    let folder = tempfile::tempdir().unwrap();
    let host = Host::open(&server, folder.path());
    let run = fresh("chain");
    host.accept(&run, &chain(&["type: t.noop", "type: t.call", "type: t.noop"]));
    host.wait_for(&run, "succeeded");
    let facts = host.facts(&run);
    assert_eq!(
        (facts.first().map(String::as_str), facts.last().map(String::as_str)),
        (Some("RunStarted"), Some("RunEnded"))
    );
    assert_eq!(facts.iter().filter(|fact| *fact == "CallEnded").count(), 1, "{facts:?}");
    assert_eq!(ledger(&folder.path().join("ledger")).len(), 1);
}

#[test]
fn a_run_rests_on_a_timer_and_on_a_question() {
    let Some(server) = server() else { return };
    let folder = tempfile::tempdir().unwrap();
    let host = Host::open(&server, folder.path());
    let run = fresh("asks");
    host.accept(&run, &chain(&["type: t.wait, input: { ms: 300 }", "type: t.ask", "type: t.noop"]));
    host.wait_for_question(&run);
    assert!(host.command(&run, Host::answer("yes")).is_ok());
    host.wait_for(&run, "succeeded");
    let facts = host.facts(&run);
    assert_eq!(facts.iter().filter(|fact| *fact == "RunParked").count(), 2, "{facts:?}");
}
