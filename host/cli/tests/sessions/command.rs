//! Tests the command line: the search for flows, the precedence of folders, and refused arguments.

use serde_json::{Value, json};

use super::project::{Project, stderr};

const ONE: &str = "flow: { steps: [{ id: only, prompt: 'First: end ${args}' }] }\n";

fn args_of(project: &Project, step: &str) -> Value {
    let found = project.query(&format!("SELECT args FROM flow_states WHERE step_id = '{step}'"));
    serde_json::from_str(&found[0]).unwrap()
}

#[test]
fn later_sources_of_arguments_win() {
    let project = Project::new();
    project.write("more.json", r#"{ "b": "file", "c": [1] }"#);
    let more = ["-A", "a=1", "-A", "b=text", "-A", "prompt=end", "-A", "note=12", "--args-file", "more.json"];
    let (exit, printed) = project.run("go", &more);
    assert_eq!(exit, 0, "{printed}");
    let expected = json!({ "prompt": "end", "a": 1, "b": "file", "note": "12", "c": [1] });
    assert_eq!(args_of(&project, "first"), expected, "`note` is declared as a text");
    let line = &printed["completed_steps"][0];
    assert_eq!(
        *line,
        json!({
            "step_id": "first", "session_id": "p-matrix-first", "status": "completed", "output": "{\"route\":\"end\"}",
            "is_struct_output": true,
        })
    );
    let keys: Vec<_> = printed.as_object().unwrap().keys().map(String::as_str).collect();
    let order = ["flow_id", "root_session_id", "running_steps", "completed_steps", "failed_steps", "postponed_steps"];
    assert_eq!(keys, order);
}

#[test]
fn flows_are_found_in_the_folders_of_the_project_and_then_of_the_user() {
    let folders = [
        "home/.agents/flows",
        "home/.config/opencode/flows",
        "home/.config/flowcell/flows",
        ".agents/flows",
        ".opencode/flows",
        ".flowcell/flows",
    ];
    let project = Project::new();
    // A flow in a later folder replaces those in earlier ones.
    for (index, folder) in folders.iter().enumerate() {
        let named = ONE.replace("only", &format!("only-{index}"));
        project.write(&format!("{folder}/found.yaml"), &named);
        let output = project.done(&["-F", "found", "-s", &format!("p{index}"), "-q", "-p", "x"]);
        assert!(output.status.success(), "{folder}: {}", stderr(&output));
        let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(printed["completed_steps"][0]["step_id"], format!("only-{index}"), "{folder}");
    }
}

#[test]
fn errors_are_reported_before_anything_runs() {
    let project = Project::new();
    project.write(".flowcell/flows/off.yaml", &format!("disabled: true\n{ONE}"));
    project.write(".flowcell/flows/plain.yaml", "flow: { name: plain }\nnodes: [{ id: a, type: control.noop }]\n");
    project.write(".flowcell/flows/No_Name.yaml", ONE);
    let cases: [(&[&str], &[&str]); 10] = [
        (&["-F", "off", "-p", "x"], &["`off` is disabled"]),
        (&["run", ".flowcell/flows/off.yaml", "-i", "prompt=x"], &["`off` is disabled"]),
        (
            &["-F", "matrx", "-p", "x"],
            &[
                "unknown flow `matrx`",
                "did you mean `matrix`?",
                "looked in .flowcell/flows",
                "~/.agents/flows",
                "No_Name",
            ],
        ),
        (&["-F", "team/matrix", "-p", "x"], &["unknown flow `team/matrix`", "write `-F matrix`"]),
        (&["-F", "nothing-like-it", "-p", "x"], &["the known flows are matrix, off, plain"]),
        (&["-F", "plain", "-p", "x"], &["is not an agentic flow", "flowcell run .flowcell/flows/plain.yaml"]),
        (&["-F", "matrix", "-p", "x", "-s", "a b"], &["`a b` is not a prefix"]),
        (&["-F", "matrix"], &["the argument `prompt` is missing", "-p TEXT"]),
        (
            &["-F", "matrix", "-p", "x", "-A", "note=[", "--args-file", "bad.json"],
            &["the arguments do not fit", "`note`"],
        ),
        (&["-p", "x"], &["--flow <FLOW>"]),
    ];
    project.write("bad.json", r#"{ "note": 7 }"#);
    for (arguments, expected) in cases {
        let output = project.done(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{arguments:?}");
        for part in expected {
            assert!(stderr(&output).contains(part), "{arguments:?} lacks `{part}`: {}", stderr(&output));
        }
    }
}

/// `-p` gives every flow of agents a prompt, so a closed `args` schema need not declare it. Other unknown arguments are
/// refused.
#[test]
fn a_closed_args_schema_accepts_the_prompt() {
    let closed =
        "{ type: object, additionalProperties: false, required: [issue], properties: { issue: { type: integer } } }";
    let schemas = [
        closed.to_owned(),
        format!("{{ allOf: [{closed}] }}"),
        format!("{{ $ref: '#/$defs/a~1b', $defs: {{ a/b: {{ $ref: '#/$defs/c' }}, c: {closed} }} }}"),
        format!("{{ $ref: '#args', maxProperties: 1, $defs: {{ args: {{ $anchor: args, allOf: [{closed}] }} }} }}"),
    ];
    for schema in schemas {
        let project = Project::new();
        let flow =
            format!("flow: {{ args: {schema}, steps: [{{ id: only, prompt: 'First: end ${{args.issue}}' }}] }}\n");
        project.write(".flowcell/flows/closed.yaml", &flow);
        let output = project.done(&["-F", "closed", "-s", "p", "-q", "-p", "fix it", "-A", "issue=5"]);
        assert!(output.status.success(), "{schema}: {}", stderr(&output));
        assert_eq!(args_of(&project, "only"), json!({ "prompt": "fix it", "issue": 5 }));
        let output = project.done(&["-F", "closed", "-s", "q", "-q", "-p", "fix it", "-A", "issue=5", "-A", "other=1"]);
        assert_eq!(output.status.code(), Some(2), "{schema}: {}", stderr(&output));
        assert!(stderr(&output).contains("other"), "{schema}: {}", stderr(&output));
    }
}

#[test]
fn events_of_agents_name_their_step() {
    let project = Project::new();
    let output = project.done(&["-F", "matrix", "-s", "p", "-q", "-p", "go", "--events", "-"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let agents: Vec<_> = events.iter().filter(|event| event["type"].as_str().unwrap().starts_with("agent:")).collect();
    assert!(agents.iter().any(|event| event["type"] == "agent:complete"));
    assert!(agents.iter().all(|event| event["flowStepId"].is_string() && event["flowStepId"] == event["nodeId"]));
}

#[test]
fn without_a_person_calls_are_made_unasked_and_denied_ones_are_not() {
    let project = Project::new();
    let agent = "---\ntools: [data.set, data.merge]\npermissions: { '*': ask, data.merge: deny, data.set: { '*secret*': deny } }\n---\nYou count.\n";
    project.write(".flowcell/agents/counter.md", agent);
    project.write(".flowcell/flows/count.yaml", "flow: { steps: [{ id: count, agent: counter, prompt: Count }] }\n");
    project.set_script(
        "
      - match: Count
        toolCalls:
          - { name: data_set, input: { object: {}, path: parcels, value: 3 } }
          - { name: data_set, input: { object: {}, path: secret, value: 3 } }
          - { name: data_merge, input: { objects: [{ a: 1 }, { b: 2 }] } }
      - { match: Count, text: There are 3 parcels. }
",
    );
    let output = project.done(&["-F", "count", "-s", "p", "-q", "-p", "x"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let events = project.events("p-count-count:1");
    let tool = |kind: &str| -> Vec<&str> {
        let found = events.iter().filter(|event| event["type"] == kind);
        found.map(|event| event["tool"].as_str().unwrap()).collect()
    };
    assert_eq!(tool("agent:tool:result"), ["data.set"]);
    let said = project.query("SELECT value FROM state WHERE key = 'session/count/count/p'").remove(0);
    assert!(said.contains("tool_denied: the permissions of this node deny `data.set` with this input"), "{said}");
    assert!(said.contains("tool_not_found: unknown tool `data_merge`"), "{said}");
    let begun = events.iter().find(|event| event["type"] == "agent:start").unwrap();
    assert_eq!(begun["tools"], json!(["data_set"]), "what is never allowed is not even offered");
    assert!(tool("agent:tool:permission").is_empty());
}
