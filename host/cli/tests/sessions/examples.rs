//! Runs every flow in `flows/agentic/`, once by its file and once by its name. Scripted models lead each flow through
//! its branches.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::project::{Project, stderr, steps};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../flows/agentic").canonicalize().unwrap()
}

/// Returns a project with the examples.
fn project() -> Project {
    let project = Project::new();
    for entry in fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.extension().is_some_and(|extension| extension == "yaml") {
            let name = entry.file_name().unwrap().to_str().unwrap();
            project.write(&format!(".agents/flows/{name}"), &fs::read_to_string(&entry).unwrap());
        }
    }
    project
}

/// The arguments of each example, and the steps that it completes with a model that has no script.
const EXAMPLES: [(&str, &[&str], &[&str]); 5] = [
    ("improve-text", &[], &["write", "criticise", "print"]),
    ("release-notes", &["-A", "version=1.2.3"], &["write-notes"]),
    ("resolve-issue", &[], &["pick-workflow", "analyse-issue", "implement", "check-own-work", "report"]),
    ("review-change", &[], &["describe", "correctness", "security", "wording"]),
    ("watch-issue", &["-A", "issue=ABC-1"], &["judge"]),
];

#[test]
fn every_example_runs_to_its_end_without_a_key() {
    let project = project();
    let examples = fs::read_dir(project.path().join(".agents/flows")).unwrap().count();
    assert_eq!(examples, EXAMPLES.len(), "an example is not run");
    for (name, more, completed) in EXAMPLES {
        let by_name = [&["-F", name, "-s", "p", "-q", "-p", "A change", "--simulate", "model"], more].concat();
        let output = project.done(&by_name);
        assert!(output.status.success(), "{name}: {}", stderr(&output));
        let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(steps(&printed, "completed_steps"), completed, "{name}");
        let file = folder().join(format!("{name}.yaml")).display().to_string();
        let mut by_file = vec!["run", &file, "-q", "--simulate", "model", "-i", "prompt=A change"];
        by_file.extend(more.iter().map(|word| if *word == "-A" { "-i" } else { word }));
        let output = project.done(&by_file);
        assert!(output.status.success(), "{name}: {}", stderr(&output));
        let outputs: Value = serde_json::from_slice(&output.stdout).unwrap();
        let ran = completed.iter().filter(|step| outputs[**step]["result"].is_string()).count();
        assert_eq!(ran, completed.len(), "{name}: {outputs}");
    }
}

#[test]
fn a_question_is_answered_and_a_failure_takes_the_fallback() {
    let project = project();
    project.set_script("\n      - { match: 'Which workflow', json: { workflow: QUESTION } }\n");
    let run = |prefix: &str| {
        let output = project.done(&["-F", "resolve-issue", "-s", prefix, "-q", "-p", "Why?"]);
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    assert_eq!(steps(&run("a"), "completed_steps"), ["pick-workflow", "answer"]);
    // Remove the example's delay before a retry.
    let file = project.path().join(".agents/flows/resolve-issue.yaml");
    let text = fs::read_to_string(&file).unwrap().replace("delay: 30", "delay: 0");
    fs::write(&file, text).unwrap();
    project.set_script(
        "
      - { match: 'Which workflow', json: { workflow: CORRECTION } }
      - { match: 'Do what the plan says', error: { code: model_invalid_request } }
",
    );
    let printed = run("b");
    assert_eq!(steps(&printed, "failed_steps"), ["implement"]);
    assert_eq!(steps(&printed, "completed_steps"), ["pick-workflow", "analyse-issue", "hand-over"]);
}

#[test]
fn a_postponed_announcement_is_done_by_the_next_run() {
    let project = project();
    let notes = r#"{ summary: New things, points: [one] }"#;
    project.set_script(&format!("\n      - {{ match: 'Write release notes', json: {notes} }}\n"));
    let run = || {
        let arguments = ["-F", "release-notes", "-s", "p", "-q", "-p", "Things", "-A", "version=2.0.0"];
        let output = project.done(&arguments);
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let first = run();
    assert_eq!(steps(&first, "completed_steps"), ["write-notes", "proofread"]);
    assert_eq!(steps(&first, "postponed_steps"), ["announce"]);
    let second = run();
    assert_eq!(steps(&second, "postponed_steps"), Vec::<String>::new());
    assert_eq!(steps(&second, "completed_steps"), ["write-notes", "proofread", "announce"]);
}

#[test]
fn a_text_is_improved_until_it_may_be_printed() {
    let project = project();
    let turns = |last: &str| {
        format!(
            "
      - {{ match: 'This is draft {last}', json: {{ verdict: PRINT, notes: good }} }}
      - {{ match: 'good enough', json: {{ verdict: CHANGE, notes: too long }} }}
"
        )
    };
    let run = |prefix: &str| {
        let output = project.done(&["-F", "improve-text", "-s", prefix, "-q", "-p", "Rain"]);
        assert!(output.status.success(), "{}", stderr(&output));
        let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
        let events = project.events(&format!("{prefix}-improve-text-write:1"));
        let begun =
            |step: &str| events.iter().filter(|event| event["type"] == "task:start" && event["nodeId"] == step).count();
        (begun("write"), steps(&printed, "completed_steps"), steps(&printed, "failed_steps"))
    };
    project.set_script(&turns("3"));
    let completed = ["write", "criticise", "print"].map(str::to_owned).to_vec();
    assert_eq!(run("a"), (3, completed, Vec::new()));
    project.set_script(&turns("9"));
    let completed = ["criticise", "hand-over"].map(str::to_owned).to_vec();
    assert_eq!(run("b"), (5, completed, vec!["write".to_owned()]));
}
