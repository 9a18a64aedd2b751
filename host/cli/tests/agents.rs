//! Tests agents in the real program: people allow tools and write to agents while the process is killed at any point.
//! Each call with a recorded answer is made once, and each message is delivered once.

#![cfg(unix)]

use std::path::Path;

use serde_json::{Value, json};

use crate::kit::{self, flowcell, output_of, root, stderr};

fn flow(name: &str) -> String {
    root().join("flows/agents").join(name).display().to_string()
}

fn events(folder: &Path) -> Vec<Value> {
    kit::events(folder, "a")
}

fn kinds(events: &[Value], prefix: &str) -> Vec<String> {
    let kinds = events.iter().map(|event| event["type"].as_str().unwrap());
    kinds.filter(|kind| kind.starts_with(prefix)).map(str::to_owned).collect()
}

/// Drives the run `a` of the assistant, and kills the process after `count` events. Returns the number of events.
fn killed_after(folder: &Path, count: usize) -> usize {
    let mut command = flowcell(folder);
    command.env("FLOWCELL_TEST_HOLD_BACK", "1");
    command.args(["run", "--run-id", "a", "--quiet", "--events", "-", &flow("assistant.yaml")]);
    kit::killed_after(&mut command, count).len()
}

/// Resumes the run until it ends or parks. Returns its outputs if it has ended.
fn go_on(folder: &Path) -> Option<Value> {
    let output = output_of(folder, &["run", "--run-id", "a", "--quiet", &flow("assistant.yaml")]);
    match output.status.code() {
        Some(0) => Some(serde_json::from_slice(&output.stdout).unwrap()),
        Some(3) => None,
        other => panic!("{other:?}: {}", stderr(&output)),
    }
}

/// The actions of people, in order. An action is repeated if its success is uncertain.
const ACTIONS: [&[&str]; 4] = [
    &["answer", "a", "assistant#3", "allow"],
    &["send", "a", "--to", "assistant", "--id", "m1", "and how many letters?"],
    &["send", "a", "--to", "assistant", "--id", "m2", "and how many boxes?"],
    &["send", "a", "--to", "assistant", "--close"],
];

#[test]
fn a_run_is_shown_with_the_open_question_of_its_agent() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    assert_eq!(go_on(folder), None);
    let shown = || kit::stdout(&output_of(folder, &["runs", "show", "a"]));
    let asks =
        "asks `assistant#3`: May `assistant` call `data.set` with {\"object\":{},\"path\":\"parcels\",\"value\":3}?";
    let before = shown();
    assert_eq!((before.matches(asks).count(), before.matches("asks `").count()), (1, 1), "{before}");
    let answered = output_of(folder, &["answer", "a", "assistant#3", "allow"]);
    assert!(answered.status.success(), "{}", stderr(&answered));
    let after = shown();
    assert!(!after.contains("asks `"), "{after}");
}

fn check(folder: &Path, outputs: &Value) {
    assert_eq!(*outputs, json!({ "answer": "There is 1 box.", "turns": 3 }));
    let events = events(folder);
    let agent = kinds(&events, "agent:");
    let count = |kind: &str| agent.iter().filter(|other| *other == kind).count();
    assert_eq!(agent.first().map(String::as_str), Some("agent:start"));
    assert_eq!(agent.last().map(String::as_str), Some("agent:complete"));
    assert_eq!((count("agent:start"), count("agent:complete"), count("agent:error")), (1, 1, 0), "{agent:?}");
    assert_eq!((count("agent:message"), count("agent:usage")), (6, 6), "each turn is told once: {agent:?}");
    assert_eq!((count("agent:tool:start"), count("agent:tool:result")), (4, 4), "{agent:?}");
    assert_eq!((count("agent:tool:permission"), count("agent:tool:decision")), (1, 1), "{agent:?}");
    let inbox =
        |state: &str| events.iter().filter(|event| event["type"] == "agent:inbox" && event["state"] == state).count();
    assert_eq!((inbox("accepted"), inbox("applied"), inbox("closing"), inbox("closed")), (2, 2, 1, 1));
    let ends = kinds(&events, "call:result").len();
    assert_eq!(ends, 11, "six turns, four tools and the list of tools: no call has two answers");
}

#[test]
fn a_person_allows_a_tool_writes_to_an_agent_and_closes_it() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(go_on(folder.path()), None);
    for (index, deed) in ACTIONS.iter().enumerate() {
        let output = output_of(folder.path(), deed);
        assert!(output.status.success(), "{}", stderr(&output));
        let outputs = go_on(folder.path());
        assert_eq!(outputs.is_some(), index == 3);
        if let Some(outputs) = outputs {
            check(folder.path(), &outputs);
        }
    }
    let late = output_of(folder.path(), &["send", "a", "--to", "assistant", "too late"]);
    assert!(!late.status.success() && stderr(&late).contains("run_not_active"), "{}", stderr(&late));
}

/// A parked run prints a command. This command answers the agent's question. Every other answer is refused or reported.
#[test]
fn every_answer_is_applied_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    assert_eq!(go_on(folder), None);
    let resume = |answers: &[&str]| {
        let given = answers.iter().flat_map(|answer| ["--answer", answer]);
        output_of(folder, &["runs", "resume", "a"].into_iter().chain(given).collect::<Vec<_>>())
    };
    let refused = [
        ("asistant#3=allow", "the flow has no gate `asistant#3`"),
        ("assistant#x=allow", "`assistant#x` does not name a call"),
        ("assistant#03=allow", "does not name a call\nhelp: did you mean `assistant#3`?"),
        ("assistant#3=perhaps", "`assistant#3` refused the answer `perhaps`"),
    ];
    for (answer, why) in refused {
        let output = resume(&[answer]);
        assert_eq!(output.status.code(), Some(2), "{answer}: {}", stderr(&output));
        assert!(stderr(&output).contains(why), "{answer}: {}", stderr(&output));
    }
    let unused = resume(&["assistant#99=deny"]);
    assert_eq!(unused.status.code(), Some(3), "{}", stderr(&unused));
    assert!(stderr(&unused).contains("`assistant#99` did not ask"), "{}", stderr(&unused));
    let applied = resume(&["assistant#3=allow"]);
    assert!(stderr(&applied).contains("answered `assistant#3`"), "{}", stderr(&applied));
    assert!(kinds(&events(folder), "agent:tool:").contains(&"agent:tool:decision".to_owned()));
    let mut outputs = None;
    for deed in &ACTIONS[1..] {
        assert!(output_of(folder, deed).status.success());
        outputs = go_on(folder);
    }
    check(folder, &outputs.unwrap());
    let late = resume(&["assistant#3=allow"]);
    assert_eq!(late.status.code(), Some(2), "{}", stderr(&late));
    assert!(stderr(&late).contains("the run has ended"), "{}", stderr(&late));
}

/// A run whose agent asks or listens prints what it waits for and parks, with or without an owner of the store.
#[test]
fn a_waiting_agent_is_reported_with_and_without_an_owner() {
    for beside in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let _owner = beside.then(|| kit::Owner::start(folder, &["drive"], "driving the runs"));
        let run = || output_of(folder, &["run", "--run-id", "a", &flow("assistant.yaml")]);
        let asks = run();
        assert_eq!(asks.status.code(), Some(3), "{}", stderr(&asks));
        let hint = "flowcell runs resume a --answer";
        assert!(
            stderr(&asks).contains("`assistant#3` asks: May `assistant` call") && stderr(&asks).contains(hint),
            "{}",
            stderr(&asks)
        );
        assert!(!stderr(&asks).contains("`assistant` asks"), "{}", stderr(&asks));
        assert!(output_of(folder, ACTIONS[0]).status.success());
        let listens = run();
        assert_eq!(listens.status.code(), Some(3), "{}", stderr(&listens));
        assert!(stderr(&listens).contains("`assistant` waits for messages to `agent-"), "{}", stderr(&listens));
    }
}

/// The answers given with a run are stored with it, so they survive the end of its process.
#[test]
fn answers_given_with_a_run_survive_its_process() {
    let call = |folder: &Path, answer: &str| {
        let mut command = flowcell(folder);
        command.args(["run", "--run-id", "a", "--quiet", "--events", "-", &flow("assistant.yaml"), "--answer", answer]);
        command
    };
    for count in (1..30).step_by((6 / kit::scale()).max(1)) {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        kit::killed_after(&mut call(folder, "assistant#3=allow"), count);
        // Resume without any answers.
        assert_eq!(go_on(folder), None, "after {count} events");
        let agent = kinds(&events(folder), "agent:tool:");
        assert!(agent.contains(&"agent:tool:decision".to_owned()), "after {count} events: {agent:?}");
        let mut outputs = None;
        for deed in &ACTIONS[1..] {
            assert!(output_of(folder, deed).status.success());
            outputs = go_on(folder);
        }
        check(folder, &outputs.unwrap());
    }
}

#[test]
fn a_denied_tool_is_an_error_that_the_model_reads() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(go_on(folder.path()), None);
    assert!(output_of(folder.path(), &["answer", "a", "assistant#3", "deny"]).status.success());
    assert_eq!(go_on(folder.path()), None);
    let agent = kinds(&events(folder.path()), "agent:tool:");
    assert!(agent.contains(&"agent:tool:error".to_owned()), "{agent:?}");
    let wrong = output_of(folder.path(), &["answer", "a", "assistant#3", "allow"]);
    assert!(stderr(&wrong).contains("gate_closed"), "{}", stderr(&wrong));
}

/// R21: kills the process of an agent after some number of events, and again after each action of a person. No call is
/// made twice.
#[test]
fn r21_an_agent_killed_at_any_point_makes_no_call_twice() {
    let step = (10 / kit::scale()).max(1);
    let mut kills = 0;
    for count in (1..90).step_by(step) {
        let folder = tempfile::tempdir().unwrap();
        kills += usize::from(killed_after(folder.path(), count) == count);
        let mut outputs = go_on(folder.path());
        for deed in ACTIONS {
            assert!(output_of(folder.path(), deed).status.success());
            kills += usize::from(killed_after(folder.path(), count.div_ceil(2)) > 0);
            outputs = go_on(folder.path());
        }
        check(folder.path(), &outputs.unwrap());
    }
    assert!(kills > 10, "only {kills} processes were killed");
}

#[test]
fn an_agent_without_a_key_runs_on_the_simulated_model() {
    let folder = tempfile::tempdir().unwrap();
    let flow = flow("research.yaml");
    let output = flowcell(folder.path())
        .env_remove("FLOWCELL_PROVIDERS")
        .env("XDG_CONFIG_HOME", folder.path())
        .args(["run", &flow, "--simulate", "model", "--quiet"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let outputs: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(outputs["answer"], "simulated reply to: How many parcels are there?");
    assert_eq!(outputs["verdict"]["verdict"], "approve");
}
