//! Tests which flows a run calls after it was parked, killed or repeated. The run then continues in another folder,
//! whose flows have the same names as those of the first folder.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Output,
};

use serde_json::{Value, json};

use crate::faults::process::{Project, stderr};

/// The flows that call another one: the name of the caller, the name that it calls, and the text expected after the
/// file of the called flow has changed.
const CALLERS: [(&str, &str, &str); 3] = [
    // A literal name is pinned when the run is accepted.
    ("literal", "kid", "pinned"),
    // A computed name is resolved in the run's home folder at the time of the call.
    ("computed", "{{ flow.input.n }}", "changed"),
    // The flow is pinned when the child run is created.
    ("made", "{{ flow.input.n }}", "pinned"),
];

/// A folder of flows, and another one with flows of the same names.
struct Homes {
    project: Project,
    other: tempfile::TempDir,
}

impl Homes {
    fn new() -> Homes {
        let homes = Homes { project: Project::new(0, 0), other: tempfile::tempdir().unwrap() };
        write_kid(homes.project.folder(), "pinned");
        write_kid(homes.other.path(), "foreign");
        for (name, called, _) in CALLERS {
            homes.write(name, &caller(name, called));
        }
        homes
    }

    fn write(&self, name: &str, flow: &Value) {
        fs::write(self.flow(name), flow.to_string()).unwrap();
    }

    /// Writes the settings of a model that calls the flow `kid` as a tool.
    fn write_models(&self) -> PathBuf {
        let script = json!([{ "match": "", "toolCalls": [{ "name": "flow_kid", "input": {} }] }, { "match": "", "text": "done" }]);
        let profile = json!({ "dialect": "simulated", "model": "one", "script": script });
        let file = self.project.folder().join("models.yaml");
        fs::write(&file, json!({ "default": "scripted", "profiles": { "scripted": profile } }).to_string()).unwrap();
        file
    }

    fn flow(&self, name: &str) -> PathBuf {
        self.project.folder().join(format!("{name}.json"))
    }

    /// Runs a command in the other folder with the store of the first one.
    fn elsewhere(&self, arguments: &[&str]) -> Output {
        let store = self.project.store();
        let mut command = self.project.flowcell(arguments);
        command.args(["--state", store.to_str().unwrap()]).current_dir(self.other.path()).output().unwrap()
    }

    #[track_caller]
    fn said(&self, output: &Output) -> String {
        assert!(output.status.success(), "{}", stderr(output));
        let outputs: Value = serde_json::from_slice(&output.stdout).unwrap();
        outputs["said"].as_str().unwrap_or_default().to_owned()
    }
}

/// Returns a flow that asks a question and then calls a flow. The flow with the name `made` calls first and asks then.
fn caller(name: &str, called: &str) -> Value {
    let call = |id: &str| json!({ "id": id, "type": "control.subflow", "input": { "name": called, "input": {} } });
    let ask = json!({ "id": "ask", "type": "control.gate", "input": { "prompt": "Now?", "choices": ["yes"] } });
    let (nodes, edge) = match name {
        "made" => (json!([call("call"), ask]), json!({ "from": "call", "to": "ask" })),
        _ => (json!([ask, call("call")]), json!({ "from": "ask", "to": "call" })),
    };
    let flow = json!({ "name": name, "input": { "n": "kid" }, "outputs": { "said": "{{ call.outputs.said }}" } });
    json!({ "flow": flow, "nodes": nodes, "edges": [edge] })
}

/// Writes the called flow, which calls another one that reads a file.
fn write_kid(folder: &Path, says: &str) {
    let kid = json!({
        "flow": { "name": "kid", "outputs": { "said": "{{ sub.outputs.said }}" } },
        "nodes": [{ "id": "sub", "type": "control.subflow", "input": { "name": "grand", "input": {} } }],
        "edges": [],
    });
    fs::write(folder.join("kid.json"), kid.to_string()).unwrap();
    fs::write(folder.join("grand.json"), grand("grand", says).to_string()).unwrap();
}

fn grand(name: &str, says: &str) -> Value {
    json!({
        "flow": { "name": name, "outputs": { "said": "{{ say.text }}" } },
        "nodes": [{ "id": "say", "type": "data.template", "input": { "template": says } }],
        "edges": [],
    })
}

#[test]
fn y16_a_parked_run_calls_the_flows_that_it_was_accepted_with() {
    for (name, _, expected) in CALLERS {
        // Resume in the same command, or drive in another process.
        for drives in [false, true] {
            let homes = Homes::new();
            let flow = homes.flow(name);
            let parked = homes.project.done(&["run", flow.to_str().unwrap(), "--run-id", "r", "--quiet"]);
            assert_eq!(parked.status.code(), Some(3), "{name}: {}", stderr(&parked));
            write_kid(homes.project.folder(), "changed");
            if drives {
                assert!(homes.elsewhere(&["answer", "r", "ask", "yes"]).status.success());
                assert!(homes.elsewhere(&["drive", "--once"]).status.success());
            }
            let ended = match drives {
                true => homes.elsewhere(&["runs", "resume", "r", "--quiet"]),
                false => homes.elsewhere(&["runs", "resume", "r", "--quiet", "--answer", "ask=yes"]),
            };
            assert_eq!(homes.said(&ended), expected, "{name}, driven: {drives}");
        }
    }
}

#[test]
fn y16_a_retried_run_calls_the_flows_that_it_called_before() {
    for (name, ..) in CALLERS {
        let homes = Homes::new();
        let flow = homes.flow(name);
        let run =
            homes.project.done(&["run", flow.to_str().unwrap(), "--run-id", "r", "--quiet", "--answer", "ask=yes"]);
        assert_eq!(homes.said(&run), "pinned", "{name}");
        write_kid(homes.project.folder(), "changed");
        let retry = |of: &str, new: &str| {
            homes.elsewhere(&["runs", "retry", of, "--run-id", new, "--quiet", "--answer", "ask=yes"])
        };
        assert_eq!(homes.said(&retry("r", "again")), "pinned", "{name}");
        assert_eq!(homes.said(&retry("again", "once-more")), "pinned", "{name}");
        let from = ["runs", "retry", "r", "--from", "call", "--run-id", "part", "--quiet", "--answer", "ask=yes"];
        assert_eq!(homes.said(&homes.elsewhere(&from)), "pinned", "{name}");
    }
}

/// A run is killed at any time before, while and after it calls a flow: by its name, by a computed name, or as the tool
/// of an agent.
#[test]
fn y16_a_killed_run_calls_the_flows_that_it_was_accepted_with() {
    let call = |name: &str| json!({ "id": "call", "type": "control.subflow", "input": { "name": name, "input": {} } });
    let by_agent = json!({ "id": "call", "type": "agent.run", "input": { "prompt": "Call it.", "tools": ["flow:kid"] },
        "config": { "permissions": { "default": "allow" } }, "grants": { "model": ["*"], "tools": ["flow:kid"] } });
    let said = "{{ call.outputs.said }}";
    // A computed name is looked up at the time of the call, which may be before or after the files change.
    let table: [(&str, Value, &str, &[&str]); 3] = [
        ("literal", call("kid"), said, &["pinned"]),
        ("computed", call("{{ flow.input.n }}"), said, &["pinned", "changed"]),
        ("agent", by_agent, "{{ call.result }}", &["done"]),
    ];
    for (name, node, said, expected) in table {
        let mut kills = 0;
        for events in (1..).step_by(3) {
            let homes = Homes::new();
            let models = homes.write_models();
            homes.write(
                "straight",
                &json!({
                    "flow": { "name": "straight", "input": { "n": "kid" }, "outputs": { "said": said } },
                    "nodes": [{ "id": "first", "type": "control.noop", "input": {} }, node],
                    "edges": [{ "from": "first", "to": "call" }],
                }),
            );
            let straight = homes.flow("straight");
            let providers = ["--providers", models.to_str().unwrap()];
            let begin = ["run", straight.to_str().unwrap(), "--run-id", "r", "--quiet", "--events", "-"];
            let life = homes.project.start(&[&begin, &providers[..]].concat());
            let reached = life.await_lines(events, std::time::Duration::from_secs(60));
            life.send_sigkill();
            let (_, lines, _) = life.end();
            let ended = lines.iter().any(|line| line.contains("harness:complete") && line.contains("\"runId\":\"r\""));
            write_kid(homes.project.folder(), "changed");
            if name != "computed" {
                fs::remove_file(homes.project.folder().join("grand.json")).unwrap();
            }
            let output = homes.elsewhere(&[&["runs", "resume", "r", "--quiet"], &providers[..]].concat());
            let outcome = homes.said(&output);
            assert!(expected.contains(&outcome.as_str()), "{name}, after {events} events: {outcome}");
            let export = String::from_utf8(homes.elsewhere(&["runs", "export", "r"]).stdout).unwrap();
            assert!(!export.contains("foreign"), "{name}, after {events} events: {export}");
            assert!(name == "computed" || !export.contains("changed"), "{name}, after {events} events: {export}");
            kills += usize::from(!ended);
            if !reached {
                break;
            }
        }
        assert!(kills > 0, "{name}: no process was killed before its run had ended");
    }
}

/// An agent calls a flow, which is granted by its name or by a pattern, after a person has allowed the call. The agent
/// is in the flow of the run, or in a flow that this flow calls by a computed name.
#[test]
fn y16_a_parked_agent_calls_the_flow_that_was_approved() {
    for (granted, below) in [("flow:kid", false), ("flow:k*", false), ("flow:kid", true), ("flow:k*", true)] {
        let homes = Homes::new();
        let models_file = homes.write_models();
        homes.write(
            "errand",
            &json!({
                "flow": { "name": "errand", "outputs": { "said": "{{ agent.result }}" } },
                "nodes": [{ "id": "agent", "type": "agent.run", "input": { "prompt": "Call it.", "tools": [granted] },
                    "grants": { "model": ["*"], "tools": [granted] } }],
                "edges": [],
            }),
        );
        let (flow, gate) = match below {
            true => (homes.flow("computed"), "call/agent#3"),
            false => (homes.flow("errand"), "agent#3"),
        };
        let models = ["--providers", models_file.to_str().unwrap()];
        let input: &[&str] = if below { &["--input", "n=errand", "--answer", "ask=yes"] } else { &[] };
        let begin = ["run", flow.to_str().unwrap(), "--run-id", "r", "--quiet"];
        let parked = homes.project.done(&[&begin, input, &models[..]].concat());
        assert_eq!(parked.status.code(), Some(3), "{granted}: {}", stderr(&parked));
        write_kid(homes.project.folder(), "changed");
        let answered = homes.elsewhere(&["answer", "r", gate, "allow"]);
        assert!(answered.status.success(), "{granted}: {}", stderr(&answered));
        let ended = homes.elsewhere(&[&["runs", "resume", "r", "--quiet"], &models[..]].concat());
        assert_eq!(homes.said(&ended), "done", "{granted}");
        let export = homes.elsewhere(&["runs", "export", "r"]);
        let export = String::from_utf8_lossy(&export.stdout).into_owned();
        assert!(export.contains("grand") && !export.contains("changed"), "{granted}: {export}");
        // A retry asks again, and calls the same flow.
        let answers: &[&str] = if below { &["--answer", "ask=yes"] } else { &[] };
        let allow = format!("{gate}=allow");
        let retry = ["runs", "retry", "r", "--run-id", "again", "--quiet", "--answer", &allow];
        let retried = homes.elsewhere(&[&retry, answers, &models[..]].concat());
        assert_eq!(homes.said(&retried), "done", "{granted}");
        let export = homes.elsewhere(&["runs", "export", "again"]);
        let export = String::from_utf8_lossy(&export.stdout).into_owned();
        assert!(export.contains("grand") && !export.contains("changed"), "{granted}: {export}");
    }
}

/// A run that an older version accepted has no recorded home folder. It calls the flows as they were stored with the
/// run.
#[test]
fn y16_a_run_accepted_by_an_older_version_continues() {
    let homes = Homes::new();
    let flow = homes.flow("literal");
    let parked = homes.project.done(&["run", flow.to_str().unwrap(), "--run-id", "r", "--quiet"]);
    assert_eq!(parked.status.code(), Some(3), "{}", stderr(&parked));
    remove_newer_data(&homes.project.store());
    write_kid(homes.project.folder(), "changed");
    let ended = homes.elsewhere(&["runs", "resume", "r", "--quiet", "--answer", "ask=yes"]);
    assert_eq!(homes.said(&ended), "pinned");
}

/// Removes from a store the data that older versions did not pin.
fn remove_newer_data(store: &Path) {
    let database = rusqlite::Connection::open(store.join("flowcell.db")).unwrap();
    let (hash, bytes): (String, Vec<u8>) = database
        .query_row(
            "SELECT hash, bytes FROM blobs WHERE mime = 'application/json' AND instr(bytes, '\"called\"') > 0",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .unwrap();
    let mut content: Value = serde_json::from_slice(&bytes).unwrap();
    for member in ["home", "called"] {
        assert!(content.as_object_mut().unwrap().remove(member).is_some(), "{member}");
    }
    let changed = database
        .execute("UPDATE blobs SET bytes = ? WHERE hash = ?", rusqlite::params![content.to_string().into_bytes(), hash])
        .unwrap();
    assert_eq!(changed, 1);
}

/// The run calls a flow by a computed name. From then on, the flows that the called flow calls in turn are pinned,
/// although their files change: whether the run is resumed, driven or repeated.
#[test]
fn y16_a_flow_with_a_computed_name_calls_the_flows_that_it_was_accepted_with() {
    for goes_on in ["resumed", "driven", "repeated"] {
        let homes = Homes::new();
        for (name, shape, called) in [("kid", "literal", "middle"), ("middle", "made", "grand")] {
            let mut flow = caller(shape, called);
            flow["flow"]["name"] = json!(name);
            homes.write(name, &flow);
        }
        let flow = homes.flow("computed");
        let begin = ["run", flow.to_str().unwrap(), "--run-id", "r", "--quiet", "--answer", "ask=yes"];
        let parked = homes.project.done(&begin);
        assert_eq!(parked.status.code(), Some(3), "{}", stderr(&parked));
        for (name, says) in [("middle", "changed"), ("grand", "changed")] {
            homes.write(name, &grand(name, says));
        }
        let answers = ["--quiet", "--answer", "call/ask=yes", "--answer", "call/call/ask=yes"];
        let ended = match goes_on {
            "resumed" => homes.elsewhere(&[&["runs", "resume", "r"], &answers[..]].concat()),
            "driven" => {
                for gate in ["call/ask", "call/call/ask"] {
                    let answered = homes.elsewhere(&["answer", "r", gate, "yes"]);
                    assert!(answered.status.success(), "{}", stderr(&answered));
                    assert!(homes.elsewhere(&["drive", "--once"]).status.success());
                }
                homes.elsewhere(&["runs", "resume", "r", "--quiet"])
            }
            _ => {
                assert!(homes.elsewhere(&["runs", "cancel", "r"]).status.success());
                let retry = ["runs", "retry", "r", "--run-id", "again", "--answer", "ask=yes"];
                homes.elsewhere(&[&retry[..], &answers[..]].concat())
            }
        };
        assert_eq!(homes.said(&ended), "pinned", "{goes_on}");
    }
}
