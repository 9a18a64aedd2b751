//! The lifecycle of a run as it is told to subscribers: `tests/fixtures/flow/*/events.txt`. `BLESS=1` writes them anew.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::{fs, path::Path};

use flowcell::{Event, Host, Json, RunOptions};

/// What does not differ from run to run.
fn line(event: &Event) -> String {
    const TOLD: [&str; 10] =
        ["name", "taskId", "scope", "attempt", "from", "to", "reason", "result", "success", "status"];
    let mut line = event.kind.to_owned();
    for key in TOLD {
        if let Some(value) = event.data.get(key) {
            line.push_str(&format!(" {key}={value}"));
        }
    }
    if let Some(code) = event.data.get("error").and_then(|error| error.get("code")?.as_str()) {
        line.push_str(&format!(" error={code}"));
    }
    line
}

fn told(folder: &Path) -> String {
    let host = Host::builder().build().unwrap();
    let flow = host.load_flow(folder.join("flow.yaml")).unwrap();
    // One permit makes the order of independent nodes the order in which they were written.
    let mut options = RunOptions { session_id: Some("session-1".into()), ..RunOptions::default() };
    options.policy.max_concurrency = Some(1);
    let runner = host.runner(&flow, options).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let result = runtime.block_on(runner.run());
    for (seq, event) in result.events.iter().enumerate() {
        assert_eq!((event.seq, event.run_id.as_str()), (seq as u64, "session-1"));
    }
    let mut lines: Vec<_> = result.events.iter().map(line).collect();
    lines.push(format!(
        "=> {:?} {}",
        result.status,
        if result.outputs.is_null() { Json::Null } else { result.outputs }
    ));
    lines.join("\n") + "\n"
}

fn check(name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/flow").join(name);
    let golden = folder.join("events.txt");
    let told = told(&folder);
    if std::env::var_os("BLESS").is_some() {
        fs::write(&golden, &told).unwrap();
    }
    assert_eq!(told, fs::read_to_string(&golden).unwrap_or_default(), "{}", golden.display());
}

#[test]
fn run_lifecycle() {
    check("run-lifecycle");
}

#[test]
fn policy_timeout() {
    check("policy-timeout");
}

#[test]
fn policy_retry() {
    check("policy-retry");
}

#[test]
fn edge_when() {
    check("edge-when");
}
