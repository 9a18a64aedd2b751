//! Limits that node types ask for in their manifests: what the operator grants, and where a refusal is told.

use std::{fs, path::Path};

use flowcell::{
    Host, LoadError, Source,
    contract::{GrantedLimits, Tenant},
    policy::Policy,
    tenants::Tenants,
};
use serde_json::{Value, json};

use crate::{
    engine_guests::HOSTILE,
    kit::{CACHE, events, flowcell, output_of, stderr, stdout},
};

const LARGE: &str = "flow: { name: large }
nodes:
  - { id: fills, type: hostile.large, input: { mib: 300 } }
  - { id: waits, type: hostile.patient }
";

/// The options that grant what the flow asks for.
const GRANTED: [&str; 4] = ["--max-node-memory", "320", "--max-node-timeout", "900000"];

/// Returns a folder with the hostile pack and a flow.
fn place(flow: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("packs")).unwrap();
    fs::write(folder.path().join("packs/hostile.wasm"), HOSTILE.as_slice()).unwrap();
    fs::write(folder.path().join("flow.yaml"), flow).unwrap();
    folder
}

/// Runs a command with the pack, the flow, and further options. Returns its status, its output and its messages.
fn told(folder: &Path, command: &[&str], options: &[&str]) -> (Option<i32>, String, String) {
    let output = output_of(folder, &[command, &["--packs", "packs"], options].concat());
    (output.status.code(), stdout(&output), stderr(&output))
}

#[test]
fn a_flow_whose_node_asks_for_more_than_is_granted_does_not_begin() {
    let folder = place(LARGE);
    let folder = folder.path();
    let memory = "`hostile.large` asks for 320 MiB of memory, and 64 are granted";
    let time = "`hostile.patient` asks for 900000 ms of running time, and 300000 are granted";
    let commands: [&[&str]; 4] = [
        &["validate", "flow.yaml"],
        &["run", "--quiet", "--run-id", "r", "flow.yaml"],
        &["run", "--dry-run", "flow.yaml"],
        &["run", "--dry-run", "--json", "flow.yaml"],
    ];
    for command in commands {
        let (code, out, messages) = told(folder, command, &[]);
        assert_eq!(code, Some(2), "{command:?}: {out}{messages}");
        for expected in [memory, time, "`--max-node-memory 320`", "`--max-node-timeout 900000`", "limit_not_granted"] {
            assert!(messages.contains(expected), "{command:?} without {expected}: {messages}");
        }
        // A part of the grants is not enough.
        let (code, _, messages) = told(folder, command, &GRANTED[..2]);
        assert!(code == Some(2) && !messages.contains(memory) && messages.contains(time), "{command:?}: {messages}");
        let (_, _, messages) = told(folder, command, &["--max-node-memory", "319", "--max-node-timeout", "900000"]);
        assert!(messages.contains("asks for 320 MiB of memory, and 319 are granted"), "{command:?}: {messages}");
    }
    assert_ne!(output_of(folder, &["runs", "show", "r"]).status.code(), Some(0), "no run began");

    let (code, out, messages) = told(folder, &["validate", "flow.yaml"], &GRANTED);
    assert_eq!(code, Some(0), "{messages}");
    assert!(out.contains("fills: gets 320 MiB of memory"), "{out}");
    let (_, out, _) = told(folder, &["validate", "--json", "flow.yaml"], &GRANTED);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report[0]["limits"][0], json!({ "id": "fills", "limits": { "memoryMib": 320 } }), "{report}");
    let (_, out, _) = told(folder, &["run", "--dry-run", "--json", "flow.yaml"], &GRANTED);
    let plan: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(plan["nodes"][0]["limits"], json!({ "memoryMib": 320 }), "{plan}");
    assert_eq!(plan["nodes"][1]["policy"]["timeoutMs"], 900_000, "{plan}");
    let (code, out, messages) = told(folder, &["run", "--quiet", "flow.yaml"], &GRANTED);
    assert_eq!(code, Some(0), "{messages}");
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["fills"], json!(300 << 20));
}

#[test]
fn a_flow_that_sets_the_time_of_a_node_needs_no_grant_for_it() {
    let own = "flow: { name: own }\nnodes:\n  - { id: a, type: hostile.patient, policy: { timeoutMs: 300001 } }\n";
    let defaults = "flow: { name: own, defaults: { policy: { timeoutMs: 300001 } } }\nnodes:\n  - { id: a, type: \
                    hostile.patient }\n";
    for flow in [own, defaults] {
        let folder = place(flow);
        let (code, out, messages) = told(folder.path(), &["run", "--dry-run", "--json", "flow.yaml"], &[]);
        assert_eq!(code, Some(0), "{messages}");
        let plan: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(plan["nodes"][0]["policy"]["timeoutMs"], 300_001, "{plan}");
    }
}

#[test]
fn the_limits_of_a_type_are_shown() {
    let folder = place(LARGE);
    let folder = folder.path();
    let shown = |command: &[&str]| {
        let output = output_of(folder, command);
        assert_eq!(output.status.code(), Some(0), "{command:?}: {}", stderr(&output));
        stdout(&output)
    };
    let commands: [&[&str]; 3] = [
        &["nodes", "hostile.large", "--packs", "packs"],
        &["node", "docs", "hostile.large", "--packs", "packs"],
        &["node", "inspect", "packs/hostile.wasm"],
    ];
    for command in commands {
        let text = shown(command);
        assert!(text.contains("320 MiB of memory"), "{command:?}: {text}");
    }
    let types: Value = serde_json::from_str(&shown(&["nodes", "hostile.wide", "--json", "--packs", "packs"])).unwrap();
    assert_eq!(types[0]["limits"], json!({ "outputKib": 8_192 }));
    let pack: Value = serde_json::from_str(&shown(&["node", "inspect", "packs/hostile.wasm", "--json"])).unwrap();
    let types = pack["nodes"].as_array().unwrap();
    let limited = types.iter().filter(|node| node.get("limits").is_some()).count();
    assert_eq!(limited, 4, "the others have none");
}

#[test]
fn options_out_of_range_are_refused() {
    let folder = place(LARGE);
    for (option, value) in [
        ("--max-node-memory", "63"),
        ("--max-node-memory", "1025"),
        ("--max-node-memory", "-1"),
        ("--max-large-nodes", "0"),
        ("--max-large-nodes", "1001"),
        ("--max-node-output", "16385"),
        ("--max-node-timeout", "299999"),
        ("--max-node-timeout", "99999999999999999999"),
    ] {
        let (code, _, messages) = told(folder.path(), &["run", "flow.yaml"], &[&*format!("{option}={value}")]);
        assert_eq!(code, Some(2), "{option} {value}: {messages}");
    }
    let config = folder.path().join("serve.yaml");
    fs::write(&config, "maxNodeMemory: 512\nmaxLargeNodes: 2\n").unwrap();
    let output = flowcell(folder.path()).args(["serve", "--check", "--config"]).arg(&config).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let settings = stdout(&output);
    assert!(
        settings.contains(r#"maxNodeMemory: "512"  # "#) && settings.contains(r#"maxLargeNodes: "2"  # "#),
        "{settings}"
    );
}

/// The request is in the pinned pack. Each attempt is granted what the operator grants when it begins.
#[test]
fn a_run_that_goes_on_gets_what_is_granted_then() {
    let flow = "flow: { name: later }
nodes:
  - { id: ask, type: control.gate, input: { prompt: Go on?, choices: ['yes', 'no'] } }
  - { id: fills, type: hostile.large, input: { mib: 100 } }
edges: [{ from: ask, to: fills }]
";
    let folder = place(flow);
    let folder = folder.path();
    let run = &["run", "--quiet", "--run-id", "r", "flow.yaml"];
    let (code, _, messages) = told(folder, run, &["--max-node-memory", "320"]);
    assert_eq!(code, Some(3), "it waits: {messages}");
    let (code, _, messages) = told(folder, &["runs", "resume", "r", "--answer", "ask=yes"], &[]);
    assert_eq!(code, Some(1), "{messages}");
    let found = events(folder, "r");
    let failed = found.iter().find(|event| event["type"] == "task:failed" && event["nodeId"] == "fills").unwrap();
    assert_eq!(failed["error"]["code"], "limit_not_granted", "{failed}");
    let message = failed["error"]["message"].as_str().unwrap();
    assert!(message.contains("asks for 320 MiB of memory, and 64 are granted"), "{message}");
    assert!(message.contains("`--max-node-memory 320`"), "{message}");
    let (code, out, messages) = told(
        folder,
        &["runs", "retry", "r", "--from", "fills", "--keep-answers", "--quiet"],
        &["--max-node-memory", "320"],
    );
    assert_eq!(code, Some(0), "{out}{messages}");
}

#[test]
fn tenants_have_different_grants() {
    let folder = place(LARGE);
    let granted = GrantedLimits { memory_mib: 320, timeout_ms: 900_000, ..GrantedLimits::default() };
    let host = Host::builder().cache_dir(CACHE).instances(4).granted_limits(granted).packs(folder.path().join("packs"));
    let host = host.build().unwrap();
    let tenants = Tenants::of(&host);
    let refused = |tenant: &str| {
        let source = Source { name: "large.yaml".into(), text: LARGE.into() };
        match tenants.host(&Tenant::from(tenant)).unwrap().load_source(source) {
            Ok(_) => Vec::new(),
            Err(LoadError::Invalid(found)) => {
                assert!(found.iter().all(|found| found.code == "limit_not_granted"), "{found:?}");
                found.into_iter().map(|found| format!("{}; {}", found.message, found.help.unwrap())).collect()
            }
            Err(error) => panic!("{error}"),
        }
    };
    let cases: [(&str, &str, &[&str]); 4] = [
        ("free", "{}", &[]),
        (
            "small",
            r#"{ "nodeLimits": { "memoryMib": 100 } }"#,
            &["`hostile.large` asks for 320 MiB of memory, and 100 are granted; the operator grants it with \
               `nodeLimits: { memoryMib: 320 }` in the policy of the tenant, and no smaller `maxMemoryMib`"],
        ),
        (
            "bounded",
            r#"{ "maxMemoryMib": 200, "nodeLimits": { "memoryMib": 1024, "timeoutMs": 400000 } }"#,
            &[
                "`hostile.large` asks for 320 MiB of memory, and 200 are granted",
                "`hostile.patient` asks for 900000 ms of running time, and 400000 are granted; the operator grants it \
                 with `nodeLimits: { timeoutMs: 900000 }` in the policy of the tenant",
            ],
        ),
        ("wide", r#"{ "maxMemoryMib": 400, "nodeLimits": { "memoryMib": 1024 } }"#, &[]),
    ];
    for (tenant, policy, expected) in cases {
        tenants.create(tenant).unwrap();
        let policy: Policy = serde_json::from_str(policy).unwrap();
        tenants.set_policy(tenant, &policy).unwrap();
        let found: Vec<String> = refused(tenant);
        assert_eq!(found.len(), expected.len(), "{tenant}: {found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{tenant}: {found}");
        }
    }
    // A flow that was checked before is checked again with the new policy.
    tenants.set_policy("small", &Policy::default()).unwrap();
    assert!(refused("small").is_empty());
    for wrong in ["0", "-1", "1025", "1e9", "\"64\""] {
        let policy = format!(r#"{{ "nodeLimits": {{ "memoryMib": {wrong} }} }}"#);
        assert!(serde_json::from_str::<Policy>(&policy).is_err(), "{wrong}");
    }
}
