//! Tests commands about runs that another process drives.

use serde_json::json;

use super::{Other, outputs, project_folder};
use crate::kit::{output_of, stderr};

/// A run that is driven cannot be repeated. The command says so, and does not look for the new run.
#[test]
fn a_driven_run_is_not_repeated() {
    let folder = project_folder();
    let folder = folder.path();
    // The first line comes before the store has the run.
    let _owner = Other::start(folder, &["run", "waits.yaml", "--run-id", "own"], "waits for the event");
    for more in [&[][..], &["--run-id", "new"]] {
        let refused = output_of(folder, &[&["runs", "retry", "own"], more].concat());
        assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
        let said = stderr(&refused);
        assert!(said.contains("the run `own` is being driven already") && said.contains("when it has ended"), "{said}");
    }
    let again = output_of(folder, &["runs", "show", "new"]);
    assert!(stderr(&again).contains("no run `new`"), "{}", stderr(&again));
}

#[test]
fn a_run_whose_owner_dies_continues_in_the_following_process() {
    let folder = project_folder();
    let folder = folder.path();
    let owner = Other::start(folder, &["drive"], "driving the runs");
    let mut follower = Other::start(folder, &["run", "waits.yaml", "--run-id", "w"], "owns the store drives the run");
    drop(owner);
    follower.hear("this process continues the run");
    // The process owns the store now, and answers requests.
    let mut emitted = std::iter::repeat_with(|| output_of(folder, &["emit", "w", "go", "\"on\""])).take(1_000);
    // An emission whose answer is lost may have arrived: then the run has ended with it.
    let last = emitted.find(|output| output.status.success() || stderr(output).contains("the run has ended"));
    assert!(last.is_some(), "{}", stderr(&output_of(folder, &["emit", "w", "go", "\"on\""])));
    let ended = follower.end();
    assert_eq!(outputs(&ended), json!({ "said": "on" }));
}
