//! A process that is suspended for a while, as on a sleeping machine, and one that gets SIGTERM.

use std::{thread, time::Duration};

use crate::faults::process::{PACKS, Project, stderr};

const SUSPENSION: Duration = Duration::from_millis(2_500);

#[test]
fn r12_timers_due_while_a_process_is_suspended_fire_once() {
    let mut project = Project::new(1, 0);
    let flow = "
flow: { name: timers, outputs: { waited: '{{ each.items }}' } }
nodes:
  - id: each
    type: control.foreach
    input: { list: [0, 1, 2, 3, 4, 5, 6, 7], concurrency: 8 }
    body: [one, two]
    bodyOutput: '{{ two.waitedMs }}'
  - { id: one, type: control.wait, input: { ms: '{{ 300 + 400 * each.index }}' }, policy: { totalTimeoutMs: 600000 } }
  - { id: two, type: control.wait, input: { ms: '{{ 50 + 300 * each.index }}' } }
  - id: send
    type: courier.send
    input: { url: ORIGIN/idempotent, errand: send, times: 3 }
    grants: { http: [ORIGIN] }
    policy: { timeoutMs: 60000 }
edges: [{ from: one, to: two }]
";
    let flow = flow.replace("ORIGIN", &project.ledger.origin());
    std::fs::write(project.folder().join("timers.yaml"), flow).unwrap();
    project.ledger.hold(Some("send"));
    let life = project.start(&Project::watch_arguments("timers.yaml", "r"));
    assert!(project.ledger.await_arrivals(1, Duration::from_secs(30)), "{:?}", life.errors());
    life.signal("STOP");
    project.ledger.hold(None);
    thread::sleep(SUSPENSION);
    life.signal("CONT");
    let (code, lines, said) = life.end();
    assert_eq!(code, Some(0), "{said}");
    project.note(&lines);
    let output = project.done(&["run", "timers.yaml", "--run-id", "r", "--quiet", "--packs", PACKS.to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let outputs: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for (index, waited) in outputs["waited"].as_array().unwrap().iter().enumerate() {
        assert!(waited.as_u64().unwrap() >= 50 + 300 * index as u64, "{outputs}");
    }
    let wrong = project.check();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_terminated_process_waits_for_the_replies_to_its_calls() {
    let mut project = Project::new(1, 0);
    let packs = PACKS.to_str().unwrap();
    let accepted = project.done(&["run", "pay.yaml", "--run-id", "r", "--detach", "--quiet", "--packs", packs]);
    assert!(accepted.status.success(), "{}", stderr(&accepted));
    project.claims.accepted.insert("r".into());
    project.ledger.hold(Some(""));
    let driving = project.start(&["drive", "--packs", packs]);
    assert!(project.ledger.await_arrivals(1, Duration::from_secs(60)), "{:?}", driving.errors());
    driving.signal("TERM");
    // One line reports the start, and one the stop. Only then the call gets its response.
    assert!(driving.await_lines(2, Duration::from_secs(60)), "{:?}", driving.errors());
    project.ledger.hold(None);
    let (code, _, said) = driving.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("r  parked  pay"), "{said}");
    assert_eq!(project.ledger.arrived(), 1, "a call began while the process was to end");
    // The reply was recorded before the end, so the call is not ambiguous.
    let driven = project.done(&["drive", "--once", "--packs", packs]);
    assert!(driven.status.success(), "{}", stderr(&driven));
    assert_eq!(project.ledger.arrived(), 2);
    assert_eq!(project.check(), Vec::<String>::new());
}
