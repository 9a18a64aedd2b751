//! Tests a run that is being driven, a run whose process was killed, and ids that two flows would share.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
};

use serde_json::Value;

use super::project::{Project, SCRIPT, stderr, steps};
use crate::kit::Running;

/// A model that takes an hour for the first step.
const SLOW: &str = "\n      - { match: 'First', json: { route: go }, delayMs: 3600000 }\n";

/// Starts a process, and waits until it is in the first step.
fn busy(project: &Project) -> Running {
    project.set_script(SLOW);
    let arguments = ["-F", "matrix", "-s", "p", "-q", "-p", "go", "--events", "-"];
    let mut command = project.command(&arguments);
    let mut child = Running::from(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut events = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(events.any(|line| line.unwrap().contains("\"call:start\"")), "the first step has not begun");
    child
}

#[test]
fn a_run_in_progress_is_reported_and_not_started_again() {
    let project = Project::new();
    let owner = busy(&project);
    let (exit, printed) = project.run("go", &[]);
    assert_eq!(exit, 3);
    assert_eq!(steps(&printed, "running_steps"), ["first"]);
    assert_eq!(printed["running_steps"][0]["output"], Value::Null);
    let delete = project.done(&["-F", "matrix", "-s", "p", "-q", "-p", "go", "-D"]);
    assert_eq!(delete.status.code(), Some(2));
    assert!(stderr(&delete).contains("is in progress, so its sessions cannot be deleted"), "{}", stderr(&delete));

    drop(owner);
    assert_eq!(project.states(), ["first running"]);
    project.set_script(SCRIPT);
    let (exit, printed) = project.run("ignored", &[]);
    assert_eq!((exit, steps(&printed, "completed_steps")), (0, vec!["first".into(), "second".into()]));
    let events = project.events("p-matrix-first:1");
    assert!(events.iter().any(|event| event["type"] == "harness:resumed"), "the same run goes on");
    assert_eq!(project.states(), ["first completed", "second completed"]);
}

#[test]
fn an_interrupted_run_is_cancelled_before_it_is_deleted() {
    let project = Project::new();
    drop(busy(&project));
    project.set_script(SCRIPT);
    let (exit, printed) = project.run("end", &["-D"]);
    assert_eq!((exit, steps(&printed, "completed_steps")), (0, vec!["first".into()]), "{printed}");
    let statuses = project.query("SELECT run || ' ' || standing FROM runs WHERE depth = 0 ORDER BY id");
    assert_eq!(statuses, ["p-matrix-first:1 cancelled", "p-matrix-first:2 succeeded"]);
}

#[test]
fn a_cancelled_step_begins_again() {
    let project = Project::new();
    drop(busy(&project));
    assert!(project.done(&["runs", "cancel", "p-matrix-first:1"]).status.success());
    assert!(!project.done(&["runs", "resume", "p-matrix-first:1", "-q"]).status.success());
    assert_eq!(project.states(), ["first failed"]);
    assert_eq!(project.query("SELECT output FROM flow_states"), ["cancelled"]);
    project.set_script(SCRIPT);
    let (exit, printed) = project.run("ignored", &[]);
    assert_eq!((exit, steps(&printed, "completed_steps")), (0, vec!["first".into(), "second".into()]), "{printed}");
    assert_eq!(project.query("SELECT args FROM flow_states WHERE step_id = 'first'"), [r#"{"prompt":"go"}"#]);
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
    assert!(stderr(&refused).contains("`p-a-b-c` belongs to another flow"), "{}", stderr(&refused));
}

/// The owner of the store drives flows of agents for other processes, and these print the same output.
#[test]
fn a_flow_beside_an_owner_of_the_store_is_handed_over_and_followed() {
    for owner in [&["drive"][..], &["-F", "matrix", "-s", "own", "-q", "-p", "go", "--events", "-"]] {
        let project = Project::new();
        let slow = SLOW.replace("'First'", "'First: slow'");
        project.set_script(&format!("{slow}{SCRIPT}"));
        let own: Vec<&str> = owner.iter().map(|word| if *word == "go" { "slow" } else { word }).collect();
        let mut command = project.command(&own);
        let mut child = Running::from(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut events = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        match owner {
            ["drive"] => assert!(said.any(|line| line.contains("driving the runs"))),
            _ => assert!(events.any(|line| line.contains("\"call:start\""))),
        }
        let (exit, printed) = project.run("go", &[]);
        assert_eq!((exit, steps(&printed, "completed_steps")), (0, vec!["first".into(), "second".into()]));
        // The next run of the prefix continues its sessions. A run with `-D` begins anew.
        let (exit, printed) = project.run("later", &["-D"]);
        assert_eq!((exit, steps(&printed, "postponed_steps")), (0, vec!["third".into()]), "{printed}");
        let (exit, printed) = project.run("ignored", &[]);
        assert_eq!((exit, steps(&printed, "postponed_steps").len()), (0, 0), "{printed}");
        let wrong = project.done(&["-F", "matrix", "-s", "p", "-q", "-p", "go", "-A", "note=1", "--files", "."]);
        assert_eq!(wrong.status.code(), Some(2));
        assert!(stderr(&wrong).contains("without `--files"), "{}", stderr(&wrong));
    }
}
