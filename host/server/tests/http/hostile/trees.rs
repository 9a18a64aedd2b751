//! Runs that call runs that call runs. The tree stays within its tenant's limits, and other tenants continue to work.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use flowcell_platform::{Providers, policy::Policy, tenants::Tenants};
use serde_json::{Value, json};

use crate::{
    client::{Answer, Served},
    samples::{asks, hello},
    tenants::{call, served, served_with},
};

/// The longest acceptable time for a small run, also while another tenant's tree of runs grows. It is long, because
/// test machines are slow.
const MAX_WAIT: Duration = Duration::from_secs(45);

/// Returns a flow that calls another flow for each of `width` items.
fn calling_flow(name: &str, width: u32, called: &str) -> Value {
    let list: Vec<_> = (0..width).collect();
    json!({
        "flow": { "name": name, "input": { "n": name }, "outputs": { "count": "{{ each.count }}" } },
        "nodes": [
            { "id": "each", "type": "control.foreach", "input": { "list": list }, "body": ["call"] },
            { "id": "call", "type": "control.subflow", "input": { "name": called } },
        ],
    })
}

fn leaf() -> Value {
    json!({ "flow": { "name": "leaf" }, "nodes": [{ "id": "a", "type": "control.noop", "input": { "value": 1 } }] })
}

fn post_flow(served: &Served, token: &str, flow: &Value) {
    let kept = call(served, token, "POST", "/v1/flows", &json!({ "flow": flow }));
    assert_eq!(kept.status, 201, "{kept:?}");
}

fn run(served: &Served, token: &str, flow: &str) -> Value {
    call(served, token, "POST", "/v1/runs?wait=true", &json!({ "flow": flow })).json()
}

/// Runs a flow with one node as the tenant that has no tree of runs. Checks that the run succeeds within [`MAX_WAIT`].
fn canary(served: &Served, token: &str) {
    let began = Instant::now();
    let ended = call(served, token, "POST", "/v1/runs?wait=true", &json!({ "flow": hello() })).json();
    assert_eq!(ended["status"], "succeeded", "{ended}");
    assert!(began.elapsed() < MAX_WAIT, "{:?}", began.elapsed());
}

fn at_most(runs: u32) -> Policy {
    Policy { max_live_runs: Some(runs), ..Policy::default() }
}

/// Stores sixteen flows. Each calls the next one four times, so without limits they would start 4^15 runs.
fn post_flow_chain(served: &Served, token: &str) {
    post_flow(served, token, &leaf());
    for index in (0..15).rev() {
        let called = if index == 14 { "leaf".to_owned() } else { format!("f{}", index + 1) };
        post_flow(served, token, &calling_flow(&format!("f{index}"), 4, &called));
    }
}

#[test]
fn t1_a_run_tree_stops_at_the_run_limit_of_its_tenant() {
    let (served, [a, b]) = served(&at_most(3));
    post_flow_chain(&served, &a);
    post_flow(&served, &a, &calling_flow("itself", 4, "{{ flow.input.n }}"));
    for flow in ["f0", "itself"] {
        let ended = run(&served, &a, flow);
        assert_eq!(
            (&ended["status"], &ended["error"]["code"]),
            (&json!("failed"), &json!("quota_exceeded")),
            "{ended}"
        );
        assert!(ended["error"]["message"].as_str().unwrap().contains("maxLiveRuns"), "{ended}");
        canary(&served, &b);
    }
    let events = call(&served, &a, "GET", "/v1/usage", &Value::Null).json()["events"].as_u64().unwrap();
    assert!(events < 2_000, "{events} events are hundreds of runs");
}

#[test]
fn t1_a_run_tree_within_the_limit_completes() {
    let (served, [a, b]) = served(&at_most(3));
    post_flow(&served, &a, &leaf());
    post_flow(&served, &a, &calling_flow("inner", 4, "leaf"));
    post_flow(&served, &a, &calling_flow("outer", 4, "inner"));
    let trees = || {
        let ended = run(&served, &a, "outer");
        assert_eq!((&ended["status"], &ended["outputs"]["count"]), (&json!("succeeded"), &json!(4)), "{ended}");
    };
    thread::scope(|scope| {
        scope.spawn(trees);
        canary(&served, &b);
    });
}

#[test]
fn t1_a_run_tree_without_a_policy_leaves_capacity_and_is_cancelled_soon() {
    let (served, [a, b]) = served(&Policy::default());
    post_flow_chain(&served, &a);
    let started = call(&served, &a, "POST", "/v1/runs", &json!({ "flow": "f0", "runId": "tree" }));
    assert_eq!(started.status, 201, "{started:?}");
    // After these runs the tree has reached its limits.
    (0..5).for_each(|_| canary(&served, &b));
    let soon = |method: &str, path: &str| -> Answer {
        let began = Instant::now();
        let answer = call(&served, &a, method, path, &Value::Null);
        assert!(began.elapsed() < MAX_WAIT, "{method} {path}: {:?}", began.elapsed());
        answer
    };
    let operators = Tenants::of(&served.host()).create_token("", &["metrics:read".to_owned()], "", None).unwrap().token;
    let metrics = call(&served, &operators, "GET", "/metrics", &Value::Null).body;
    let children = metrics.lines().find_map(|line| line.strip_prefix("flowcell_runs_below ")).expect("no such metric");
    let children: f64 = children.parse().unwrap();
    assert!((1.0..=272.0).contains(&children), "{children} runs at a time");
    assert_eq!(soon("GET", "/v1/runs/tree").json()["status"], "running");
    assert_eq!(soon("GET", "/v1/runs/tree/events").status, 200);
    assert_eq!(soon("POST", "/v1/runs/tree/cancel").status, 200);
    let status = || soon("GET", "/v1/runs/tree").json()["status"].clone();
    let began = Instant::now();
    while status() == "running" {
        assert!(began.elapsed() < MAX_WAIT, "it is still running");
    }
    assert_eq!(status(), "cancelled");
}

#[test]
fn t1_a_tool_s_run_counts_as_a_run_of_the_tenant() {
    let script =
        json!([{ "match": "", "toolCalls": [{ "name": "flow_leaf", "input": {} }] }, { "match": "", "text": "done" }]);
    let models =
        json!({ "default": "one", "profiles": { "one": { "dialect": "simulated", "model": "m", "script": script } } });
    let agent = json!({
        "flow": { "name": "agent" },
        "nodes": [{ "id": "a", "type": "agent.run", "input": { "prompt": "go", "tools": ["flow:leaf"] },
            "config": { "permissions": { "default": "allow" } },
            "grants": { "model": ["*"], "tools": ["flow:leaf"] } }],
    });
    for (most, fails) in [(1, true), (2, false)] {
        let providers = Providers::parse(&models.to_string(), Path::new("")).unwrap();
        // A parent that waits for its tool does not hold a permit that the tool needs.
        let policy = Policy { max_concurrency: Some(1), ..at_most(most) };
        let (served, [a, _]) = served_with(&policy, |builder| builder.providers(providers));
        post_flow(&served, &a, &leaf());
        post_flow(&served, &a, &agent);
        let ended = run(&served, &a, "agent");
        assert_eq!(ended["status"], "succeeded", "{ended}");
        let path = format!("/v1/runs/{}/events", ended["runId"].as_str().unwrap());
        let events = call(&served, &a, "GET", &path, &Value::Null).body;
        assert_eq!(events.contains("quota_exceeded"), fails, "{most}: {events}");
    }
}

#[test]
fn t1_concurrent_starts_do_not_exceed_the_run_limit() {
    let (served, [a, b]) = served(&at_most(3));
    let start = || call(&served, &a, "POST", "/v1/runs", &json!({ "flow": asks() }));
    let answers: Vec<_> = thread::scope(|scope| {
        let asked: Vec<_> = (0..40).map(|_| scope.spawn(start)).collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    let begun = answers.iter().filter(|answer| answer.status == 201).count();
    assert_eq!(begun, 3, "{:?}", answers.iter().map(|answer| answer.status).collect::<Vec<_>>());
    for answer in answers.iter().filter(|answer| answer.status != 201) {
        assert_eq!((answer.fault(), answer.header("retry-after").is_some()), ((429, "quota_exceeded".into()), true));
    }
    canary(&served, &b);
}
