//! Incidents of single runs and flows.

use std::{fs, net::TcpListener};

use serde_json::{Value, json};

use super::{
    Person, assert_ended, assert_fires, follow, kill, post, scrape, scrape_with, scrape_without, status, wait_until,
};
use crate::{
    client::ask,
    guests,
    kit::{flowcell, output_of, stderr, stdout},
    samples::{asks, hello},
    server::process::{serve_by, stop},
};

/// The maximum number of processes that a run kills before it is parked.
const MAX_LIVES: usize = 6;

#[cfg(target_os = "linux")]
#[test]
fn a_question_that_nobody_answers() {
    let folder = tempfile::tempdir().unwrap();
    let person = Person::beside(folder.path());
    let (child, address) = Person::serve(folder.path(), &[]);
    let (started, _) = post(address, "/v1/runs?wait=true", &json!({ "flow": asks(), "runId": "stuck" }));
    assert!(started < 300);
    person.hears("gate_opened", &[("run", "stuck"), ("address", "ok")]);
    let parked = r#"flowcell_runs_parked{tenant="local",flow="asks",reason="gate"} 1"#;
    let new = scrape_with(address, None, parked);
    assert_eq!(stop(child), Some(0));
    // Two days later.
    let mut command = flowcell(folder.path());
    command.env("LD_PRELOAD", guests::bad_machine()).env("BAD_CLOCK", (2 * 24 * 3_600).to_string());
    let (child, address, _output) = serve_by(command, &[]);
    let old = scrape_with(address, None, parked);
    assert_fires("FlowcellQuestionOpen", &[Some(&new), Some(&old)]);
    let words = [("2h", "0.001s"), ("RUN", "stuck"), ("GATE", "ok"), ("VALUE", "yes")];
    let outputs = follow(folder.path(), "Nobody answers a question", &words, &[]);
    assert!(stdout(&outputs[0]).starts_with("stuck "), "{}", stdout(&outputs[0]));
    assert!(stdout(&outputs[1]).contains("Go on?"), "{}", stdout(&outputs[1]));
    wait_until("the end of the run", || status(address, "stuck") == "succeeded");
    let ended = scrape_without(address, None, parked);
    assert_ended("FlowcellQuestionOpen", &[Some(&old), Some(&ended)]);
    assert_eq!(stop(child), Some(0));
}

#[test]
fn a_version_of_a_flow_that_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let person = Person::beside(folder.path());
    let (child, address) = Person::serve(folder.path(), &[]);
    let gate = json!({ "id": "ok", "type": "control.gate", "input": { "prompt": "Go on?", "choices": ["yes", "no"] } });
    let about = json!({ "name": "order", "policy": { "failFast": false } });
    let flow = |node: Value| json!({ "flow": { "flow": &about, "nodes": [node, &gate] } });
    let wrong = json!({ "id": "a", "type": "control.fail", "input": { "message": "out of stock" } });
    let (stored, answer) = post(address, "/v1/flows", &flow(wrong));
    assert_eq!(stored, 201, "{answer}");
    for run in ["bad", "parked"] {
        let (_, waits) = post(address, "/v1/runs?wait=true", &json!({ "flow": "order", "runId": run }));
        assert_eq!(waits["status"], "parked", "{waits}");
    }
    assert!(post(address, "/v1/runs/bad/gates/ok/reply", &json!({ "answer": "yes" })).0 < 300);
    person.hears("run_failed", &[("run", "bad"), ("flow", "order")]);
    assert!(post(address, "/v1/flows", &flow(json!({ "id": "a", "type": "control.noop" }))).0 < 300);
    let words = [("FLOW", "order"), ("RUN", "bad"), ("PARKED", "parked")];
    let outputs = follow(folder.path(), "A version of a flow is wrong", &words, &[]);
    assert!(stdout(&outputs[0]).contains('1') && stdout(&outputs[1]).contains("version: 2"), "{outputs:?}");
    let repeated = ask(address, "GET", "/v1/runs?retryOf=bad", &[], "").json();
    assert_eq!(repeated["runs"][0]["status"], "succeeded", "{repeated}");
    // The run that waited goes on in the new version, and its question is still open.
    assert!(
        stdout(&outputs[4]).contains("version: 1 to 2\ngo on: ok (waiting)\nstart anew:\n  a: the type"),
        "{outputs:?}"
    );
    assert!(post(address, "/v1/runs/parked/gates/ok/reply", &json!({ "answer": "yes" })).0 < 300);
    wait_until("the end of the run that moved", || status(address, "parked") == "succeeded");
    let moved = ask(address, "GET", "/v1/runs/parked", &[], "").json();
    assert_eq!(moved["version"], 2, "{moved}");
    assert_eq!(stop(child), Some(0));
}

#[test]
fn a_run_that_ends_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let options = ["--allow-private", &*target];
    let person = Person::beside(folder.path());
    let (mut child, mut address) = Person::serve(folder.path(), &options);
    let before = scrape(address, None);
    let url = format!("http://{target}/");
    let node = json!({ "id": "send", "type": "http.request", "input": { "url": url }, "grants": { "http": [url] } });
    let flow = json!({ "flow": { "name": "poison" }, "nodes": [node] });
    let (started, answer) = post(address, "/v1/runs", &json!({ "flow": flow, "runId": "poison" }));
    assert_eq!(started, 201, "{answer}");
    listener.set_nonblocking(true).unwrap();
    // Each process dies during the request, until one finds the run parked.
    let mut lives = 0;
    loop {
        let mut request = None;
        wait_until("a request or a parked run", || {
            request = listener.accept().ok();
            request.is_some() || status(address, "poison") == "needs_attention"
        });
        if request.is_none() {
            break;
        }
        lives += 1;
        assert!(lives <= MAX_LIVES, "the run ended {lives} processes");
        kill(child);
        (child, address) = Person::serve(folder.path(), &options);
    }
    assert!(lives >= 2, "a single death parks no run");
    person.hears("crash_loop", &[("run", "poison")]);
    let parked = r#"flowcell_runs_parked{tenant="local",flow="poison",reason="crash_loop"} 1"#;
    let during = scrape_with(address, None, parked);
    assert_fires("FlowcellRunEndsProcess", &[Some(&before), Some(&during)]);
    let outputs = follow(folder.path(), "A run ends the process", &[("RUN", "poison")], &[]);
    assert!(stdout(&outputs[0]).starts_with("poison "), "{}", stdout(&outputs[0]));
    assert!(stdout(&outputs[1]).contains("its process ended repeatedly"), "{}", stdout(&outputs[1]));
    wait_until("the end of the run", || status(address, "poison") == "cancelled");
    assert_ended("FlowcellRunEndsProcess", &[Some(&during), Some(&scrape_without(address, None, parked))]);
    let (_, after) = post(address, "/v1/runs?wait=true", &json!({ "flow": hello() }));
    assert_eq!(after["status"], "succeeded", "{after}");
    assert_eq!(stop(child), Some(0));
}

#[test]
fn a_store_that_was_restored() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let person = Person::beside(folder);
    let (child, address) = Person::serve(folder, &[]);
    for run in ["first", "second"] {
        assert!(post(address, "/v1/runs?wait=true", &json!({ "flow": asks(), "runId": run })).0 < 300);
    }
    assert!(output_of(folder, &["store", "backup", "saved"]).status.success());
    let (_, after) = post(address, "/v1/runs?wait=true", &json!({ "flow": hello() }));
    assert_eq!(after["status"], "succeeded", "{after}");
    let before = scrape(address, None);
    assert_eq!(stop(child), Some(0));
    for file in ["flowcell.db-wal", "flowcell.db-shm"] {
        // A process that ends in order may have removed the file.
        let _ = fs::remove_file(folder.join(".flowcell").join(file));
    }
    fs::copy(folder.join("saved/flowcell.db"), folder.join(".flowcell/flowcell.db")).unwrap();
    let (child, address) = Person::serve(folder, &[]);
    person.hears("restored", &[]);
    let parked = r#"reason="restored"} 2"#;
    let during = scrape_with(address, None, parked);
    assert_fires("FlowcellRunsRestored", &[Some(&before), Some(&during)]);
    let words = [("RUN", "first"), ("OTHER", "second")];
    let outputs = follow(folder, "The store was restored from a copy", &words, &[]);
    assert!(stdout(&outputs[0]).contains("first ") && stdout(&outputs[1]).contains("restored"), "{outputs:?}");
    wait_until("the end of the run", || status(address, "first") == "cancelled");
    // The other run waits for the answer to its question again.
    assert_eq!(outputs[3].status.code(), Some(3), "{}", stderr(&outputs[3]));
    assert_eq!(post(address, "/v1/runs/second/gates/ok/reply", &json!({ "answer": "yes" })).0, 200);
    wait_until("the end of the run", || status(address, "second") == "succeeded");
    assert_ended("FlowcellRunsRestored", &[Some(&during), Some(&scrape_without(address, None, "\"restored\""))]);
    assert_eq!(stop(child), Some(0));
}

#[test]
fn a_run_that_needs_a_decision() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let person = Person::beside(folder);
    let (child, address) = Person::serve(folder, &[]);
    let before = scrape(address, None);
    let flow = json!({
        "flow": { "name": "pay" },
        "nodes": [
            { "id": "book", "type": "control.noop", "undo": "unbook" },
            { "id": "unbook", "type": "control.fail", "input": { "message": "closed" } },
            { "id": "no", "type": "control.fail", "input": { "message": "no" } },
        ],
        "edges": [{ "from": "book", "to": "no" }],
    });
    let (_, blocked) = post(address, "/v1/runs?wait=true", &json!({ "flow": flow, "runId": "pay" }));
    assert_eq!(blocked["status"], "needs_attention", "{blocked}");
    person.hears("run_blocked", &[("run", "pay"), ("code", "undo_failed")]);
    let parked = r#"flowcell_runs_parked{tenant="local",flow="pay",reason="undo_failed"} 1"#;
    let during = scrape_with(address, None, parked);
    assert_fires("FlowcellRunsBlocked", &[Some(&before), Some(&during)]);
    let words = [("TENANT", "local"), ("RUN", "pay"), ("TASK", "unbook"), ("WHY", "unclear")];
    let outputs = follow(folder, "A run needs a decision", &words, &[]);
    assert!(stdout(&outputs[0]).contains("undo_failed unbook"), "{}", stdout(&outputs[0]));
    wait_until("the end of the run", || status(address, "pay") == "failed");
    assert_ended("FlowcellRunsBlocked", &[Some(&during), Some(&scrape_without(address, None, parked))]);
    assert_eq!(stop(child), Some(0));
}
