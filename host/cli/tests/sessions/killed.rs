//! The journal and the session tables agree wherever the process is killed.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    process::Stdio,
};

use super::project::{Project, steps};

/// Returns the status of the steps from the journal, in the words of the table.
pub(crate) fn by_the_journal(project: &Project) -> Vec<String> {
    let mut steps = BTreeMap::new();
    for event in project.events("p-matrix-first:1") {
        let status = match event["type"].as_str().unwrap() {
            "task:start" => "running",
            "task:complete" => "completed",
            "task:failed" => "failed",
            _ => continue,
        };
        steps.insert(event["nodeId"].as_str().unwrap().to_owned(), status);
    }
    steps.into_iter().map(|(step, status)| format!("{step} {status}")).collect()
}

pub(crate) fn is_over(project: &Project) -> bool {
    project.events("p-matrix-first:1").iter().any(|event| event["type"] == "harness:complete")
}

/// Kills a run after `count` events. Returns whether it was still alive.
pub(crate) fn killed_after(project: &Project, count: usize) -> bool {
    let arguments = ["-F", "matrix", "-s", "p", "-q", "-p", "go", "--events", "-"];
    let mut command = project.command(&arguments);
    command.env("FLOWCELL_TEST_HOLD_BACK", "1").stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let seen = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok).take(count).count();
    let _ = child.kill();
    child.wait().unwrap();
    seen == count
}

#[test]
fn states_agree_with_the_journal_wherever_the_process_is_killed() {
    let mut kills = 0;
    for count in (1..40).step_by(4) {
        let project = Project::new();
        kills += usize::from(killed_after(&project, count));
        assert_eq!(project.states(), by_the_journal(&project), "killed after {count} events");
        if is_over(&project) {
            continue;
        }
        kills += usize::from(killed_after(&project, 3));
        assert_eq!(project.states(), by_the_journal(&project), "killed after {count} events, and again");
        if is_over(&project) {
            continue;
        }
        let (exit, printed) = project.run("go", &[]);
        assert_eq!((exit, steps(&printed, "completed_steps")), (0, vec!["first".into(), "second".into()]));
        assert_eq!(project.states(), by_the_journal(&project));
        assert_eq!(project.message_roles("second").len(), 4, "nothing was said twice");
    }
    assert!(kills > 8, "only {kills} processes were killed");
}
