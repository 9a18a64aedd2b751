//! A run that somebody drives, one whose process was killed, and ids that two flows would have.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Stdio},
};

use serde_json::Value;

use super::project::{Project, SCRIPT, steps, told};

/// The first step takes an hour.
const SLOW: &str = "\n      - { match: 'First', json: { route: go }, delayMs: 3600000 }\n";

/// A process that is in the middle of the first step.
fn busy(project: &Project) -> Child {
    project.model(SLOW);
    let arguments = ["-F", "matrix", "-s", "p", "-q", "-p", "go", "--events", "-"];
    let mut child = project.command(&arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut events = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(events.any(|line| line.unwrap().contains("\"call:start\"")), "the first step has not begun");
    child
}

#[test]
fn while_somebody_drives_the_run_its_states_are_told_and_nothing_runs() {
    let project = Project::new();
    let mut owner = busy(&project);
    let (exit, printed) = project.run("go", &[]);
    assert_eq!(exit, 3);
    assert_eq!(steps(&printed, "running_steps"), ["first"]);
    assert_eq!(printed["running_steps"][0]["output"], Value::Null);
    let delete = project.done(&["-F", "matrix", "-s", "p", "-q", "-p", "go", "-D"]);
    assert_eq!(delete.status.code(), Some(2));
    assert!(told(&delete).contains("uses the store"), "{}", told(&delete));
    let other = project.done(&["-F", "matrix", "-s", "other", "-q", "-p", "go"]);
    assert_eq!(other.status.code(), Some(2), "another prefix is not what the owner of the store runs");

    owner.kill().unwrap();
    owner.wait().unwrap();
    assert_eq!(project.states(), ["first running"]);
    project.model(SCRIPT);
    let (exit, printed) = project.run("ignored", &[]);
    assert_eq!((exit, steps(&printed, "completed_steps")), (0, vec!["first".into(), "second".into()]));
    let events = project.events("p-matrix-first:1");
    assert!(events.iter().any(|event| event["type"] == "harness:resumed"), "the same run goes on");
    assert_eq!(project.states(), ["first completed", "second completed"]);
}

#[test]
fn an_interrupted_run_is_cancelled_before_it_is_deleted() {
    let project = Project::new();
    let mut owner = busy(&project);
    owner.kill().unwrap();
    owner.wait().unwrap();
    project.model(SCRIPT);
    let (exit, printed) = project.run("end", &["-D"]);
    assert_eq!((exit, steps(&printed, "completed_steps")), (0, vec!["first".into()]), "{printed}");
    let statuses = project.asked("SELECT run || ' ' || standing FROM runs WHERE depth = 0 ORDER BY id");
    assert_eq!(statuses, ["p-matrix-first:1 cancelled", "p-matrix-first:2 succeeded"]);
}

#[test]
fn a_cancelled_step_is_begun_again() {
    let project = Project::new();
    let mut owner = busy(&project);
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert!(project.done(&["runs", "cancel", "p-matrix-first:1"]).status.success());
    assert!(!project.done(&["runs", "resume", "p-matrix-first:1", "-q"]).status.success());
    assert_eq!(project.states(), ["first failed"]);
    assert_eq!(project.asked("SELECT output FROM flow_states"), ["cancelled"]);
    project.model(SCRIPT);
    let (exit, printed) = project.run("ignored", &[]);
    assert_eq!((exit, steps(&printed, "completed_steps")), (0, vec!["first".into(), "second".into()]), "{printed}");
    assert_eq!(project.asked("SELECT args FROM flow_states WHERE step_id = 'first'"), [r#"{"prompt":"go"}"#]);
}

#[test]
fn two_flows_do_not_share_a_session() {
    let project = Project::new();
    let flow = "flow: { steps: [{ id: STEP, prompt: 'First: end' }] }\n";
    project.write(".flowcell/flows/a.yaml", &flow.replace("STEP", "b-c"));
    project.write(".flowcell/flows/a-b.yaml", &flow.replace("STEP", "c"));
    assert!(project.done(&["-F", "a", "-s", "p", "-q", "-p", "x"]).status.success());
    let refused = project.done(&["-F", "a-b", "-s", "p", "-q", "-p", "x"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(told(&refused).contains("`p-a-b-c` belongs to another flow"), "{}", told(&refused));
}
