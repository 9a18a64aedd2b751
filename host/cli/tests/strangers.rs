//! Tests untrusted packs: their effects on the program that runs them, and on other tasks.

use std::{
    fs,
    path::{Path, PathBuf},
};

use flowcell::{Host, Limits, RunOptions, RunResult, RunStatus, Source};
use serde_json::Value;

use crate::{
    engine_guests::{self, HOSTILE, with_manifest},
    kit::{events, output_of, stderr},
};

/// Returns a pack that no SDK has built. It is for tests of the steps of the host before the pack runs.
fn by_hand(name: &str, fields: &str) -> Vec<u8> {
    let manifest = format!("{{ name: {name}, version: 1.0.0, nodes: [{{ type: {name}.x, title: X }}] }}");
    with_manifest(engine_guests::by_hand(fields, ""), &manifest)
}

/// Returns a folder with packs and a flow.
fn place(packs: &[(&str, &[u8])], flow: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("packs")).unwrap();
    for (name, bytes) in packs {
        fs::write(folder.path().join("packs").join(name), bytes).unwrap();
    }
    fs::write(folder.path().join("flow.yaml"), flow).unwrap();
    folder
}

/// Runs the flow, which has to fail. Returns its events.
fn run_failing(folder: &Path) -> Vec<Value> {
    let output = output_of(folder, &["run", "--quiet", "--run-id", "r", "--packs", "packs", "flow.yaml"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    events(folder, "r")
}

fn about<'a>(events: &'a [Value], node: &str, kind: &str) -> &'a Value {
    let found = events.iter().find(|event| event["nodeId"] == node && event["type"] == kind);
    found.unwrap_or_else(|| panic!("no {kind} of {node}: {events:#?}"))
}

#[test]
fn n1_n2_n13_endless_nodes_end_at_their_time_limit() {
    let flow = "
flow: { name: endless, policy: { failFast: false } }
nodes:
  - { id: spins, type: hostile.spin, policy: { timeoutMs: 300 } }
  - { id: sleeps, type: hostile.sleep, policy: { timeoutMs: 300 } }
  - { id: starts, type: hand.x, policy: { timeoutMs: 300 } }
  - { id: canary, type: hostile.echo, input: { a: 1 } }
";
    let hand = by_hand("hand", "(func $f (loop (br 0))) (start $f)");
    let folder = place(&[("hostile.wasm", &HOSTILE), ("hand.wasm", &hand)], flow);
    let events = run_failing(folder.path());
    for node in ["spins", "sleeps", "starts"] {
        let error = &about(&events, node, "task:failed")["error"];
        assert_eq!(error["code"], "timeout", "{node}: {error}");
    }
    assert_eq!(about(&events, "canary", "task:complete")["result"], serde_json::json!({ "a": 1 }));
}

#[test]
fn n31_a_node_cannot_forge_events_of_the_host() {
    let flow = "
flow: { name: forged, policy: { failFast: false } }
nodes:
  - { id: forges, type: hostile.forge }
  - { id: canary, type: hostile.echo, input: { a: 1 } }
  - { id: fails, type: hostile.trap }
";
    let folder = place(&[("hostile.wasm", &HOSTILE)], flow);
    let events = run_failing(folder.path());
    let refused = &about(&events, "forges", "task:complete")["result"];
    assert_eq!(refused, &serde_json::json!(["invalid_input", "invalid_input", "invalid_input"]));
    let mut of_agents = Vec::new();
    for (seq, event) in events.iter().enumerate() {
        assert_eq!((&event["seq"], &event["runId"]), (&seq.into(), &"r".into()), "{event}");
        assert_eq!(event["tenant"], "local", "{event}");
        let kind = event["type"].as_str().unwrap();
        if kind.starts_with("agent:") {
            of_agents.push(kind);
            assert_eq!((&event["nodeId"], &event["taskId"]), (&"forges".into(), &"forges".into()), "{event}");
            assert!(event["agentRunId"] != "a0" && event["ts"] != 0, "{event}");
        }
    }
    assert_eq!(of_agents, ["agent:start", "agent:state", "agent:complete"], "{events:#?}");
    assert_eq!(about(&events, "canary", "task:complete")["result"], serde_json::json!({ "a": 1 }));
}

#[test]
fn r10_an_attempt_that_cannot_allocate_fails_alone() {
    let flow = "
flow: { name: short, policy: { failFast: false } }
nodes:
  - { id: hogs, type: hostile.hog }
  - { id: grows, type: hand.x }
  - { id: canary, type: hostile.echo, input: { a: 1 } }
  - { id: again, type: hostile.hog, policy: { continueOnError: true } }
  - { id: after, type: hostile.echo, input: { code: '{{ again.error.code }}' } }
edges: [{ from: again, to: after }]
";
    let hand = by_hand("hand", "(memory 1) (func $f (loop (drop (memory.grow (i32.const 100))) (br 0))) (start $f)");
    let folder = place(&[("hostile.wasm", &HOSTILE), ("hand.wasm", &hand)], flow);
    let events = run_failing(folder.path());
    for node in ["hogs", "grows", "again"] {
        let error = &about(&events, node, "task:failed")["error"];
        assert_eq!(error["code"], "out_of_memory", "{node}: {error}");
    }
    assert_eq!(about(&events, "canary", "task:complete")["result"], serde_json::json!({ "a": 1 }));
    assert_eq!(about(&events, "after", "task:complete")["result"], serde_json::json!({ "code": "out_of_memory" }));
}

fn program() -> PathBuf {
    env!("CARGO_BIN_EXE_flowcell").into()
}

/// Runs a node of a pack with this compiler, and at the same time a node of the catalog. Returns both results.
fn run(pack: &Path, node_type: &str, compiler: PathBuf, limits: Limits) -> (RunResult, RunResult) {
    let host = Host::builder().without_cache().instances(32).packs(pack).compiler(compiler).limits(limits);
    let host = host.build().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let begun = |node_type: &str| {
        let text = format!("{{ flow: {{ name: one }}, nodes: [{{ id: a, type: {node_type} }}] }}");
        let flow = host.load_source(Source { name: "one.yaml".into(), text }).unwrap();
        host.runner(&flow, RunOptions::default()).unwrap().run()
    };
    let (one, canary) = (begun(node_type), begun("control.noop"));
    runtime.block_on(async { tokio::join!(one, canary) })
}

#[test]
fn untrusted_packs_are_compiled_in_another_process() {
    let folder = place(&[("hostile.wasm", &HOSTILE)], "");
    let pack = folder.path().join("packs/hostile.wasm");
    let (one, canary) = run(&pack, "hostile.echo", program(), Limits::default());
    assert_eq!((one.status, canary.status), (RunStatus::Succeeded, RunStatus::Succeeded), "{:?}", one.error);
    let nobody = folder.path().join("nobody");
    let (one, canary) = run(&pack, "hostile.echo", nobody, Limits::default());
    assert_eq!(canary.status, RunStatus::Succeeded, "the catalog needs no compiler");
    let error = one.error.unwrap().failure;
    assert_eq!((error.code.as_str(), error.retryable), ("host_shortage", true), "{error}");
}

#[test]
fn n26_a_compiler_bomb_is_bounded_by_the_compiler_limits() {
    let functions = "(func (param i32) (result i32) (i32.mul (local.get 0) (local.get 0)))".repeat(200_000);
    let folder = place(&[("bomb.wasm", &by_hand("bomb", &functions))], "");
    let pack = folder.path().join("packs/bomb.wasm");
    let cases = [
        (Limits { compile_seconds: 3, ..Limits::default() }, "compiling it takes more than 3 s of CPU time"),
        (Limits { compile_memory: 256 << 20, ..Limits::default() }, "compiling it takes more than 256 MiB of memory"),
    ];
    for (limits, expected) in cases {
        let (bomb, canary) = run(&pack, "bomb.x", program(), limits);
        let error = bomb.error.unwrap().failure;
        assert_eq!((error.code.as_str(), error.retryable), ("bad_pack", false), "{error}");
        assert!(error.message.contains(expected), "{error}");
        assert_eq!(canary.status, RunStatus::Succeeded);
    }
}

#[test]
fn only_the_program_itself_can_run_the_compiler() {
    let folder = tempfile::tempdir().unwrap();
    let output = output_of(folder.path(), &["compile"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("only flowcell itself may run this command"), "{}", stderr(&output));
}
