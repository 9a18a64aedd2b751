//! Restores a database from an older copy: the work that its runs did after the copy was made is not repeated
//! automatically.

use std::fs;

use crate::faults::{
    checker,
    process::{PACKS, Project, stderr},
};

fn run_ok(project: &Project, arguments: &[&str]) -> String {
    let output = project.done(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    stderr(&output) + &String::from_utf8_lossy(&output.stdout)
}

/// Returns the name and status of each run, and whether it needs attention.
fn standing(project: &Project) -> Vec<(String, String, bool)> {
    let runs = checker::runs(&project.store()).into_iter().filter(|run| run.parent.is_none());
    runs.map(|run| (run.name, run.standing, run.attention)).collect()
}

fn expected_standing(runs: [&str; 3], standing: &str, attention: bool) -> Vec<(String, String, bool)> {
    runs.map(|run| (run.to_owned(), standing.to_owned(), attention)).into()
}

#[test]
fn t11_runs_of_an_older_copy_are_parked_and_repeat_nothing() {
    let runs = ["parent", "pay", "send"];
    let project = Project::new(1, 0);
    let packs = PACKS.to_str().unwrap();
    for run in runs {
        let (flow, errand) = (format!("{run}.yaml"), format!("errand={run}"));
        run_ok(&project, &["run", &flow, "--run-id", run, "-i", &errand, "--detach", "--quiet", "--packs", packs]);
    }
    let drive = ["drive", "--once", "--packs", packs];
    run_ok(&project, &["store", "backup", "saved"]);
    // A copy without later commits is equivalent to the store.
    let database = project.store().join("flowcell.db");
    let bring_back = || {
        for beside in ["-wal", "-shm"] {
            _ = fs::remove_file(format!("{}{beside}", database.display()));
        }
        fs::copy(project.folder().join("saved/flowcell.db"), &database).unwrap();
    };
    bring_back();
    let said = run_ok(&project, &drive);
    assert!(!said.contains("older copy"), "{said}");
    assert_eq!(standing(&project), expected_standing(runs, "succeeded", false));
    let arrived = project.ledger.arrived();
    assert!(arrived > 0);
    // The server has received requests that the copy does not record.
    bring_back();
    let said = run_ok(&project, &drive);
    assert!(said.contains("restored from an older copy, so 3 unfinished runs"), "{said}");
    assert_eq!(standing(&project), expected_standing(runs, "parked", true));
    // The next process does not drive them either, and does not warn again.
    let said = run_ok(&project, &drive);
    assert!(!said.contains("older copy"), "{said}");
    assert_eq!(standing(&project), expected_standing(runs, "parked", true));
    assert_eq!(project.ledger.arrived(), arrived, "a call was made again");
    let shown = run_ok(&project, &["runs", "show", "send"]);
    assert!(shown.contains("the store was restored from an older copy"), "{shown}");
    assert!(run_ok(&project, &["store", "check"]).contains("\"damage\": []"));
    // A person has examined one of them, and allows to repeat it.
    run_ok(&project, &["runs", "resume", "send", "--quiet", "--packs", packs]);
    assert!(project.ledger.arrived() > arrived);
    assert_eq!(standing(&project)[2], ("send".to_owned(), "succeeded".to_owned(), false));
    assert!(project.ledger.book().wrong.is_empty());
}
