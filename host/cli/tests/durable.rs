//! Kills the real program at any time: no reported event is lost, and the same command completes the run.

#![cfg(unix)]

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
};

use serde_json::Value;

use crate::kit::{self, flowcell, numbered, output_of, scale, stderr, stdout};

/// Interval in events between two kill points. `FLOWCELL_TEST_SCALE` divides it.
const STEP: usize = 5;

/// Returns whether a file holds test cases.
fn is_test(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.ends_with(".test.yaml"))
}

fn flows() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../flows/graph").canonicalize().unwrap();
    let mut flows: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    flows.retain(|path| path.extension().is_some_and(|extension| extension == "yaml") && !is_test(path));
    flows.sort();
    flows
}

/// Returns the command that runs an example under a fixed id.
fn example(folder: &Path, flow: &Path) -> Command {
    let mut command = flowcell(folder);
    let arguments = fs::read_to_string(flow.with_extension("args")).unwrap_or_default();
    let arguments = arguments.replace("{folder}", flow.parent().unwrap().to_str().unwrap());
    command.args(["run", "--run-id", "r", "--quiet"]).arg(flow).args(arguments.split_whitespace());
    command
}

/// Runs an example, and kills the process after `events` events. Returns the events, and whether the process reached
/// that number.
fn killed_after(folder: &Path, flow: &Path, events: usize) -> (Vec<Value>, bool) {
    let mut command = example(folder, flow);
    if (events / STEP).is_multiple_of(2) {
        // Simulate the slowest disk: all writes that the process does not wait for are lost.
        command.env("FLOWCELL_TEST_HOLD_BACK", "1");
    }
    let seen = kit::killed_after(command.args(["--events", "-"]), events);
    let came_so_far = seen.len() == events;
    (seen, came_so_far)
}

/// Checks that the inputs of the run's tasks can be rendered again, whichever process has rendered them first.
fn check_inputs(folder: &Path) {
    let document = output_of(folder, &["runs", "export", "r"]);
    let document: Value = serde_json::from_slice(&document.stdout).unwrap();
    let inputs = document["inputs"].as_array().unwrap();
    assert!(!inputs.is_empty());
    for input in inputs {
        assert_eq!(input["inputDigest"], "matches", "{input}");
    }
}

/// Returns outputs with the cached value of `state.yaml` if a kill dropped it: the cache of a local store is in memory.
fn with_cached(mut outputs: Value) -> Value {
    if let Some(dropped @ Value::Null) = outputs.get_mut("cached") {
        *dropped = serde_json::json!({ "rows": 3 });
    }
    outputs
}

/// Kills the process of an example at all kill points. Returns the number of killed processes.
fn kill_anywhere(flow: &Path) -> usize {
    let expected = fs::read_to_string(flow.with_extension("expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&expected).unwrap();
    let mut kills = 0;
    for events in (1..).step_by((STEP / scale()).max(1)) {
        let folder = tempfile::tempdir().unwrap();
        let (mut seen, killed) = killed_after(folder.path(), flow, events);
        seen.extend(killed_after(folder.path(), flow, events.div_ceil(2)).0);
        let output = example(folder.path(), flow).output().unwrap();
        assert!(output.status.success(), "{} after {events} events: {}", flow.display(), stderr(&output));
        let given = with_cached(serde_json::from_slice(&output.stdout).unwrap());
        assert_eq!(given, expected, "{} after {events} events", flow.display());
        check_inputs(folder.path());
        let kept = numbered(folder.path(), "r");
        assert!(kept.keys().copied().eq(0..kept.len() as u64), "the numbers have gaps");
        for event in seen.iter().filter(|event| event["runId"] == "r") {
            let seq = event["seq"].as_u64().unwrap();
            assert_eq!(kept.get(&seq), Some(event), "{}: what was told is not what is kept", flow.display());
        }
        if !killed {
            break;
        }
        kills += 2;
    }
    kills
}

#[test]
fn every_example_survives_being_killed_anywhere() {
    let kills = AtomicUsize::new(0);
    kit::for_each_at_once(&flows(), |flow| _ = kills.fetch_add(kill_anywhere(flow), Ordering::Relaxed));
    let kills = kills.into_inner();
    assert!(kills > 40, "only {kills} processes were killed");
}

const ASKS: &str = "
flow: { name: asks }
nodes:
  - { id: ask, type: control.gate, input: { prompt: 'Well?', choices: ['yes', 'no'] } }
  - { id: after, type: control.noop, input: { value: '{{ ask.response.choice }}' } }
edges: [{ from: ask, to: after }]
";

#[test]
fn a_parked_run_is_answered_from_another_terminal_and_driven_on() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("asks.yaml"), ASKS).unwrap();
    let parked = output_of(folder, &["run", "asks.yaml", "--run-id", "r", "--quiet"]);
    assert_eq!(parked.status.code(), Some(3), "{}", stderr(&parked));
    // The run continues with the original flow.
    fs::write(folder.join("asks.yaml"), "flow: { name: other }\nnodes: []\n").unwrap();
    let refused = output_of(folder, &["answer", "r", "ask", "perhaps"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("the answer must be one of: yes, no"), "{}", stderr(&refused));
    assert!(output_of(folder, &["answer", "r", "ask", "yes"]).status.success());
    let again = output_of(folder, &["answer", "r", "ask", "no"]);
    assert!(stderr(&again).contains("gate_closed"), "{}", stderr(&again));
    let shown = output_of(folder, &["runs", "show", "r"]);
    assert!(stdout(&shown).contains("active: continue it with `flowcell drive`"), "{}", stdout(&shown));
    assert!(output_of(folder, &["drive", "--once"]).status.success());
    let ended = output_of(folder, &["runs", "resume", "r", "--quiet"]);
    assert!(ended.status.success(), "{}", stderr(&ended));
    let outputs: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(outputs["after"]["value"], "yes");
}

#[test]
fn a_detached_run_is_driven_by_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("asks.yaml"), ASKS).unwrap();
    let accepted = output_of(folder, &["run", "asks.yaml", "--run-id", "r", "--detach", "--quiet"]);
    assert_eq!(String::from_utf8_lossy(&accepted.stdout), "r\n", "{}", stderr(&accepted));
    let status = |wanted: &str| {
        let listed = output_of(folder, &["runs", "list", "--json"]);
        let rows: Value = serde_json::from_slice(&listed.stdout).unwrap();
        assert_eq!(rows[0]["status"], wanted, "{rows}");
    };
    status("active");
    assert!(output_of(folder, &["drive", "--once"]).status.success());
    status("parked");
    assert!(output_of(folder, &["runs", "cancel", "r"]).status.success());
    assert!(output_of(folder, &["drive", "--once"]).status.success());
    status("cancelled");
}

#[test]
fn a_second_process_cannot_drive_but_can_read() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let waits = "flow: { name: waits }\nnodes: [{ id: hold, type: control.wait, input: { ms: 600000 } }]\n";
    fs::write(folder.join("waits.yaml"), waits).unwrap();
    let mut owner = flowcell(folder);
    owner.args(["run", "waits.yaml", "--quiet", "--events", "-", "--run-id", "r"]).stdout(Stdio::piped());
    let mut owner = owner.stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("task:paused")), "the run did not come to its wait");
    let refused = output_of(folder, &["drive", "--once"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains(&format!("process {}", owner.id())), "{}", stderr(&refused));
    assert!(numbered(folder, "r").len() > 3);
    owner.kill().unwrap();
    owner.wait().unwrap();
}

#[test]
fn a_driving_process_accepts_runs_and_answers_from_other_terminals() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("asks.yaml"), ASKS).unwrap();
    let mut owner = flowcell(folder).arg("drive").stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(owner.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(said.next().as_deref(), Some("driving the runs in .flowcell"));
    let accepted = output_of(folder, &["run", "asks.yaml", "--run-id", "r", "--detach", "--quiet"]);
    assert_eq!(String::from_utf8_lossy(&accepted.stdout), "r\n", "{}", stderr(&accepted));
    assert_eq!(said.next().as_deref(), Some("r  parked  asks"));
    let refused = output_of(folder, &["answer", "r", "nobody", "yes"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("gate_closed"), "{}", stderr(&refused));
    assert!(output_of(folder, &["answer", "r", "ask", "no"]).status.success());
    assert_eq!(said.next().as_deref(), Some("r  succeeded  asks"));
    let unknown = output_of(folder, &["send", "other", "hello"]);
    assert!(stderr(&unknown).contains("the store has no run `other`"), "{}", stderr(&unknown));
    let wrong = output_of(folder, &["run", "nowhere.yaml", "--detach"]);
    assert!(stderr(&wrong).contains("cannot read"), "{}", stderr(&wrong));
    owner.kill().unwrap();
    owner.wait().unwrap();
    let shown = output_of(folder, &["runs", "show", "r"]);
    let tree = String::from_utf8(shown.stdout).unwrap();
    let lines: Vec<_> = tree.lines().map(|line| line.split("  ").find(|part| !part.is_empty()).unwrap()).collect();
    assert_eq!(lines[..3], ["r", "ask succeeded", "after succeeded"], "{tree}");
    let shown: serde_json::Value =
        serde_json::from_str(&kit::stdout(&output_of(folder, &["runs", "show", "r", "--json"]))).unwrap();
    assert_eq!((&shown["runId"], &shown["flow"], &shown["status"]), (&"r".into(), &"asks".into(), &"succeeded".into()));
    let tasks: Vec<_> = shown["tasks"].as_array().unwrap().iter().map(|task| (&task["id"], &task["status"])).collect();
    assert_eq!(tasks, [(&"ask".into(), &"succeeded".into()), (&"after".into(), &"succeeded".into())], "{shown}");
}

#[test]
fn a_run_is_retried_and_ended_runs_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("asks.yaml"), ASKS).unwrap();
    for run in ["a", "b"] {
        assert!(
            output_of(folder, &["run", "asks.yaml", "--run-id", run, "--answer", "ask=yes", "--quiet"])
                .status
                .success()
        );
    }
    fs::remove_file(folder.join("asks.yaml")).unwrap();
    let again = output_of(folder, &["runs", "retry", "a", "--run-id", "c", "--answer", "ask=no", "--quiet"]);
    assert!(again.status.success(), "{}", stderr(&again));
    let parked = output_of(folder, &["runs", "retry", "a", "--run-id", "d", "--quiet"]);
    assert_eq!(parked.status.code(), Some(3), "{}", stderr(&parked));
    // An answer counts for one run. Another run reuses it only with `--keep-answers`.
    let spent = output_of(folder, &["runs", "retry", "a", "--run-id", "s", "--from", "after", "--quiet"]);
    assert_eq!(spent.status.code(), Some(3), "{}", stderr(&spent));
    let later =
        output_of(folder, &["runs", "retry", "a", "--run-id", "e", "--from", "after", "--keep-answers", "--quiet"]);
    assert!(later.status.success(), "{}", stderr(&later));
    let kept =
        output_of(folder, &["runs", "retry", "a", "--run-id", "g", "--from", "ask", "--keep-answers", "--quiet"]);
    assert_eq!(kept.status.code(), Some(2), "{}", stderr(&kept));
    assert!(stderr(&kept).contains("no answer can be kept from `ask` on"), "{}", stderr(&kept));
    let asked = output_of(folder, &["runs", "retry", "a", "--run-id", "f", "--from", "ask", "--quiet"]);
    assert_eq!(asked.status.code(), Some(3), "{}", stderr(&asked));
    let nowhere = output_of(folder, &["runs", "retry", "a", "--from", "nowhere", "--quiet"]);
    assert!(stderr(&nowhere).contains("the flow itself has no node `nowhere`"), "{}", stderr(&nowhere));
    let removed = output_of(folder, &["runs", "gc", "--keep", "2"]);
    assert_eq!(stdout(&removed), "b\n", "`f` repeats `a` and has not ended: {}", stderr(&removed));
    let listed = String::from_utf8(output_of(folder, &["runs", "list"]).stdout).unwrap();
    let left: Vec<_> = listed.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(left, ["f", "e", "s", "d", "c", "a"]);
    let gone = output_of(folder, &["runs", "events", "b"]);
    assert!(stderr(&gone).contains("the run `b` was removed, and its id cannot be used again"), "{}", stderr(&gone));
}

#[test]
fn a_move_that_drops_the_answers_of_the_start_takes_others() {
    let version = |value: u32| {
        format!(
            "
flow: {{ name: two, outputs: {{ said: '{{{{ late.response.content }}}}' }} }}
nodes:
  - {{ id: ask, type: control.gate, input: {{ prompt: Now? }} }}
  - {{ id: late, type: control.gate, input: {{ prompt: Later? }} }}
  - {{ id: pay, type: control.noop, input: {{ value: {value} }} }}
edges: [{{ from: ask, to: late }}, {{ from: late, to: pay }}]
"
        )
    };
    for has_owner in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        fs::write(folder.join("two.yaml"), version(1)).unwrap();
        let parked = output_of(folder, &["run", "two.yaml", "--run-id", "r", "--answer", "late=yes", "--quiet"]);
        assert_eq!(parked.status.code(), Some(3), "{}", stderr(&parked));
        fs::write(folder.join("two.yaml"), version(2)).unwrap();
        let _owner = has_owner.then(|| kit::Owner::start(folder, &["drive"], "driving the runs"));
        let answers = ["--answer", "ask=yes", "--answer", "late=no", "--quiet"];
        let migrate =
            |more: &[&str]| output_of(folder, &[&["runs", "migrate", "r", "--to", "latest"], more, &answers].concat());
        let kept = migrate(&["--keep-answers"]);
        assert!(stderr(&kept).contains("the run started with the answer `yes` for `late`"), "{}", stderr(&kept));
        let moved = migrate(&[]);
        // An owner takes answers only to open questions. It refuses the answer to `late` if that is not open yet.
        if has_owner && !moved.status.success() {
            assert!(stderr(&moved).contains("gate_closed"), "{}", stderr(&moved));
            assert!(stdout(&output_of(folder, &["runs", "events", "r"])).contains("harness:migrated"));
        } else {
            assert!(moved.status.success(), "{}", stderr(&moved));
            assert!(stdout(&moved).contains("\"no\""), "{}", stdout(&moved));
        }
    }
}

#[test]
fn a_move_keeps_the_ids_of_nodes_that_have_other_names() {
    let version = |get: &str, ask: &str, more: &str| {
        format!(
            "
flow: {{ name: two, outputs: {{ said: '{{{{ {ask}.response.content }}}}', got: '{{{{ {get}.value }}}}' }} }}
nodes:
  - {{ id: {get}, type: control.noop, input: {{ value: 7 }} }}
  - {{ id: {ask}, type: control.gate, input: {{ prompt: Now? }} }}
{more}edges: [{{ from: {get}, to: {ask} }}]
"
        )
    };
    for has_owner in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        fs::write(folder.join("two.yaml"), version("get", "ask", "")).unwrap();
        let parked = output_of(folder, &["run", "two.yaml", "--run-id", "r", "--quiet"]);
        assert_eq!(parked.status.code(), Some(3), "{}", stderr(&parked));
        let more = "  - { id: more, type: control.noop, input: { value: 1 } }\n";
        fs::write(folder.join("two.yaml"), version("fetch", "confirm", more)).unwrap();
        let _owner = has_owner.then(|| kit::Owner::start(folder, &["drive"], "driving the runs"));
        let migrate = |more: &[&str]| output_of(folder, &[&["runs", "migrate", "r", "--to", "latest"], more].concat());
        let proposed = migrate(&["--check"]);
        assert!(stdout(&proposed).contains("add `--rename ask=confirm`"), "{}", stdout(&proposed));
        let refused = migrate(&[]);
        assert!(stderr(&refused).contains("add `--rename ask=confirm`"), "{}", stderr(&refused));
        for (names, says) in [
            (&["--rename", "get"][..], "write `OLD=NEW`"),
            (&["--rename", "=get"], "write `OLD=NEW`"),
            (&["--rename", "get=fetch", "--rename", "get=more"], "gives `get` two names"),
            (&["--rename", "got=fetch"], "no node `got`"),
            (&["--rename", "get=fetched"], "no node `fetched`"),
        ] {
            let wrong = migrate(names);
            assert_eq!(wrong.status.code(), Some(2), "{names:?}: {}", stderr(&wrong));
            assert!(stderr(&wrong).contains(says), "{names:?}: {}", stderr(&wrong));
        }
        let names = ["--rename", "get=fetch", "--rename", "ask=confirm"];
        let plan = migrate(&[&names[..], &["--check"]].concat());
        let expected = "keep their outputs: get\ngo on: ask (waiting)\n\
                        have another name in the version: ask (confirm), get (fetch)\n\
                        start anew:\n  more: it is new\n";
        assert_eq!(stdout(&plan), expected, "{}", stderr(&plan));
        // The answer names the question as the run knows it.
        let moved = migrate(&[&names[..], &["--answer", "ask=yes", "--quiet"]].concat());
        assert!(moved.status.success(), "{}", stderr(&moved));
        assert!(stdout(&moved).contains("\"yes\"") && stdout(&moved).contains('7'), "{}", stdout(&moved));
        let shown = stdout(&output_of(folder, &["runs", "show", "r"]));
        assert!(shown.contains("`ask` is named `confirm` in the flow, `get` is named `fetch` in the flow"), "{shown}");
        let shown = stdout(&output_of(folder, &["runs", "show", "r", "--json"]));
        assert!(shown.contains("\"nodeNames\"") && shown.contains("\"fetch\""), "{shown}");
        let events = stdout(&output_of(folder, &["runs", "events", "r"]));
        assert!(events.contains("\"names\":{\"ask\":\"confirm\",\"get\":\"fetch\"}"), "{events}");
    }
}

/// A resumed run keeps the value of `strict` with which it started. This also holds for a component that runs only
/// after the resume, even if the file of the flow has changed.
#[test]
fn a_run_keeps_the_strictness_of_its_flow() {
    let folder = tempfile::tempdir().unwrap();
    let write = |strict: bool| {
        let text = format!(
            "flow: {{ name: f, strict: {strict} }}\n\
             nodes:\n\
             - {{ id: ask, type: control.gate, input: {{ prompt: Go on? }} }}\n\
             - {{ id: check, type: control.if, input: {{ condition: \"flow.input.a == 1\" }} }}\n\
             edges: [{{ from: ask, to: check }}]\n"
        );
        fs::write(folder.path().join("f.yaml"), text).unwrap();
    };
    for (id, strict) in [("strict", true), ("lenient", false)] {
        write(strict);
        let parked = output_of(folder.path(), &["run", "f.yaml", "--run-id", id, "--quiet"]);
        assert_eq!(parked.status.code(), Some(3), "{}", stderr(&parked));
        write(!strict);
        let ended = output_of(folder.path(), &["runs", "resume", id, "--answer", "ask=yes", "--quiet"]);
        assert_eq!(ended.status.code(), Some(i32::from(strict)), "{}", stderr(&ended));
        assert_eq!(stderr(&ended).contains("missing_value: `flow.input.a` is missing"), strict, "{}", stderr(&ended));
    }
}

#[test]
fn runs_are_listed_and_counted_by_label_error_and_time() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let text = "flow: { name: pay, labels: { team: billing } }\n\
                nodes: [{ id: bad, type: control.fail, when: flow.input.fails, input: { message: Card DECLINED } }]\n";
    fs::write(folder.join("pay.yaml"), text).unwrap();
    let run = |id: &str, more: &[&str]| {
        output_of(folder, &[&["run", "pay.yaml", "--quiet", "--run-id", id][..], more].concat())
    };
    assert!(!run("a", &["-i", "fails=true"]).status.success());
    assert!(run("b", &["-l", "team=sales", "-l", "tier=gold"]).status.success());
    let wrong = run("c", &["-l", "team"]);
    assert!(stderr(&wrong).contains("write a label as NAME=VALUE, such as team=billing"), "{}", stderr(&wrong));
    let list = |options: &[&str]| {
        let listed = output_of(folder, &[&["runs", "list"][..], options].concat());
        assert!(listed.status.success(), "{}", stderr(&listed));
        stdout(&listed)
    };
    let ids = |options: &[&str]| -> Vec<String> {
        list(options).lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    };
    for (options, expected) in [
        (&["--error", "failed", "--since", "1h"][..], &["a"][..]),
        (&["-l", "team=billing"], &["a"]),
        (&["-l", "tier=gold", "-l", "team=sales"], &["b"]),
        (&["--text", "declin", "--node", "bad"], &["a"]),
        (&["--status", "succeeded", "--flow", "pay"], &["b"]),
        (&["--text", "declined"], &["a"]),
        (&["--before", "1h"], &[]),
        (&["--min-duration", "1h"], &[]),
    ] {
        assert_eq!(ids(options), expected, "{options:?}");
    }
    assert_eq!(list(&["--count-by", "label:team"]), "     1  billing\n     1  sales\n");
    assert_eq!(list(&["--count-by", "error", "--limit", "1"]), "     1  -\n     1  failed\n");
    output_of(folder, &["runs", "retry", "a", "--run-id", "d", "--quiet"]);
    let shown = stdout(&output_of(folder, &["runs", "show", "d"]));
    assert!(shown.contains("team=billing, repeats a"), "{shown}");
    let shown = stdout(&output_of(folder, &["runs", "show", "a"]));
    assert!(shown.contains("repeated by d"), "{shown}");
}
