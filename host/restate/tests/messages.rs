//! Messages to runs that are driven.

use flowcell_contract::Json;
use flowcell_runtime::RunCommand;

use crate::{
    nodes::{chain, ledger},
    server::{server, wait_until},
    supervisor::{Host, fresh},
};

/// The senders of messages at one time, and the messages of each.
const SENDERS: usize = 6;
const MESSAGES: usize = 6;

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
fn each_of_many_messages_is_applied_once() {
    let Some(server) = server() else { return };
    let folder = tempfile::tempdir().unwrap();
    let host = Host::open(&server, folder.path());
    let run = fresh("told");
    host.accept(&run, &chain(&["type: t.call, input: { ms: 600000 }", "type: t.noop"]));
    wait_until("the call is made", || !ledger(&folder.path().join("ledger")).is_empty());
    std::thread::scope(|scope| {
        for sender in 0..SENDERS {
            let (host, run) = (&host, &run);
            scope.spawn(move || {
                for n in 0..MESSAGES {
                    let message = RunCommand::Send { content: Json::from("word").into() };
                    assert_eq!(host.mail(run, &format!("{sender}-{n}"), &message), Ok(()));
                }
            });
        }
    });
    assert_eq!(host.mail(&run, "last", &RunCommand::Cancel), Ok(()));
    host.wait_for(&run, "cancelled");
    let facts = host.facts(&run);
    assert_eq!(facts.iter().filter(|fact| *fact == "MessageSent").count(), SENDERS * MESSAGES, "{facts:?}");
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
