//! Messages to runs that are driven.

use flowcell_runtime::RunCommand;

use crate::{
    nodes::{chain, ledger},
    server::{server, wait_until},
    supervisor::{Host, fresh},
};

#[test]
fn a_run_in_a_long_call_is_cancelled_through_the_inbox() {
    let Some(server) = server() else { return };
    let folder = tempfile::tempdir().unwrap();
    let host = Host::open(&server, folder.path());
    let run = fresh("long");
    // The call lasts longer than any wait of this test.
    host.accept(&run, &chain(&["type: t.call, input: { ms: 600000 }", "type: t.noop"]));
    wait_until("the call is made", || !ledger(&folder.path().join("ledger")).is_empty());
    assert_eq!(host.mail(&run, "m1", &RunCommand::Cancel), Ok(()));
    assert_eq!(host.mail(&run, "m1", &RunCommand::Cancel), Ok(()), "a repeated message has the same outcome");
    host.wait_for(&run, "cancelled");
}

#[test]
fn a_message_to_a_parked_run_wakes_it() {
    let Some(server) = server() else { return };
    let folder = tempfile::tempdir().unwrap();
    let host = Host::open(&server, folder.path());
    let run = fresh("parked");
    host.accept(&run, &chain(&["type: t.noop", "type: t.ask"]));
    host.wait_for_question(&run);
    let wrong = RunCommand::reply("nowhere", "yes".into(), Default::default());
    assert_eq!(host.mail(&run, "m1", &wrong).unwrap_err().code(), "gate_closed");
    assert_eq!(host.mail(&run, "m2", &Host::answer("yes")), Ok(()));
    host.wait_for(&run, "succeeded");
}
