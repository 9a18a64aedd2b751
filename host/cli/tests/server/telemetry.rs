//! Tests a server's telemetry and log: traces of runs, without the content of the runs.

mod collector;

use std::{net::SocketAddr, path::Path};

use serde_json::{Value, json};

use self::collector::{Collector, Span};
use crate::{
    client::{Answer, ask},
    kit::{flowcell, output_of, stderr},
    samples::asks,
    server::process::{serve, serve_with_output, stop},
};

/// A text in the input, the output and a secret, which must not appear in any telemetry.
const CANARY: &str = "canary-7f3a91c2";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// Returns a flow with an agent that calls tools, and a request with a secret.
fn traced_flow(origin: &str) -> Value {
    json!({
        "flow": { "name": "traced", "input": { "about": "" } },
        "nodes": [
            {
                "id": "count",
                "type": "agent.run",
                "input": { "prompt": "Count the parcels. {{ flow.input.about }}", "tools": ["data.set", "data.merge"] },
                "config": { "permissions": { "default": "allow" } },
                "grants": { "model": ["*"], "tools": ["data.*"] },
            },
            {
                "id": "fetch",
                "type": "http.request",
                "input": { "url": format!("{origin}/{CANARY}?q={CANARY}") },
                "grants": { "http": [origin], "secrets": [{ "name": "api-token" }] },
            },
            { "id": "say", "type": "data.template", "input": { "template": "{{ flow.input.about }}!" } },
            { "id": "fail", "type": "control.fail", "input": { "message": CANARY } },
        ],
        "edges": [{ "from": "count", "to": "fetch" }, { "from": "fetch", "to": "say" }, { "from": "say", "to": "fail" }],
    })
}

fn keep_secret(folder: &Path, origin: &str) {
    let set = ["secret", "set", "api-token", "--for", origin, "--from-env", "CANARY"];
    let output = flowcell(folder).args(set).env("CANARY", CANARY).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
}

fn start(address: SocketAddr, flow: Value, run: &str) -> Answer {
    let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let headers = [("traceparent", parent.as_str()), ("X-Request-Id", "req-1")];
    let body = json!({ "flow": flow, "runId": run, "input": { "about": CANARY } }).to_string();
    ask(address, "POST", "/v1/runs?wait=true", &headers, &body)
}

/// Returns a line of the log. With the format JSON, every line on standard error is one object.
fn json_line(line: &str) -> Value {
    let found: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    assert!(["ts", "level", "target", "message"].iter().all(|name| found[name].is_string()), "{line}");
    found
}

fn one<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("no span `{name}`: {spans:#?}"))
}

#[test]
fn a_run_is_one_trace_without_its_content() {
    let (folder, collector) = (tempfile::tempdir().unwrap(), Collector::start());
    let origin = collector.origin();
    keep_secret(folder.path(), &origin);
    let allowed = collector.address.to_string();
    let arguments = ["--otlp", origin.as_str(), "--log-format", "json", "--allow-private", allowed.as_str()];
    let (child, address, log) = serve_with_output(folder.path(), &arguments);
    let answer = start(address, traced_flow(&origin), "t");
    assert_eq!((answer.status, answer.json()["status"].as_str()), (201, Some("failed")), "{answer:?}");
    let events = ask(address, "GET", "/v1/runs/t/events?limit=1000", &[], "").body;
    assert!(events.contains(CANARY), "the canary sings nowhere: {events}");
    let metrics = ask(address, "GET", "/metrics", &[], "").body;
    assert_eq!(stop(child), Some(0));
    let log = log.join().unwrap();
    let spans = collector.spans();

    let run = one(&spans, "run traced");
    assert!(run.parent.is_empty() && run.links == [TRACE], "{run:?}");
    assert!(spans.iter().all(|span| span.trace == run.trace), "{spans:#?}");
    let attempt = one(&spans, "agent.run");
    assert_eq!((&attempt.parent, attempt.attribute("flowcell.task")), (&run.id, "count"));
    let agent = one(&spans, "invoke_agent");
    assert_eq!((&agent.parent, agent.attribute("gen_ai.operation.name")), (&attempt.id, "invoke_agent"));
    let turn = one(&spans, "chat one");
    assert_eq!(turn.parent, agent.id);
    let named = ["gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "gen_ai.response.model"];
    assert_eq!(named.map(|name| turn.attribute(name)), ["chat", "scripted", "one", "one"]);
    assert!(turn.attribute("gen_ai.usage.input_tokens").parse::<u64>().unwrap() > 0, "{turn:?}");
    let tool = one(&spans, "execute_tool data.set");
    assert_eq!((&tool.parent, tool.attribute("gen_ai.tool.name")), (&agent.id, "data.set"));
    assert_eq!(one(&spans, "http.send").parent, one(&spans, "http.request").id);
    let failed = one(&spans, "control.fail");
    assert_eq!(failed.attribute("flowcell.outcome"), "failed");
    assert!(!failed.attribute("error.type").is_empty());

    let lines: Vec<Value> = log.iter().map(|line| json_line(line)).collect();
    let said = |message: &str, member: &str| {
        let line = lines.iter().find(|line| line["message"] == message && line[member].is_string());
        line.unwrap_or_else(|| panic!("no `{message}`: {log:#?}"))[member].clone()
    };
    assert_eq!((said("run ended", "run"), said("run ended", "outcome")), (json!("t"), json!("failed")));
    assert_eq!((said("run started", "tenant"), said("attempt failed", "task")), (json!("local"), json!("fail")));
    assert_eq!((said("answered", "request"), said("answered", "route")), (json!("req-1"), json!("/v1/runs")));
    assert!(
        metrics.contains(r#"flowcell_model_tokens_total{provider="scripted",model="one",kind="input"}"#),
        "{metrics}"
    );
    assert!(collector.has_posted("/v1/metrics", b"gen_ai.client.token.usage"), "no numbers were sent");

    assert!(!log.concat().contains(CANARY), "{log:#?}");
    assert!(!metrics.contains(CANARY), "{metrics}");
    assert!(!collector.has_posted("/v1/", CANARY.as_bytes()), "{spans:#?}");
}

#[test]
fn a_run_resumed_by_another_process_continues_its_trace() {
    let (folder, collector) = (tempfile::tempdir().unwrap(), Collector::start());
    let origin = collector.origin();
    let (child, address, _) = serve_with_output(folder.path(), &["--otlp", &origin]);
    assert_eq!(start(address, asks(), "g").json()["status"], "parked");
    assert_eq!(start(address, json!({ "flow": { "name": "other" }, "nodes": [] }), "o").status, 201);
    assert_eq!(stop(child), Some(0));
    let before = collector.spans();
    let (child, address, _) = serve_with_output(folder.path(), &["--otlp", &origin]);
    let reply = ask(address, "POST", "/v1/runs/g/gates/ok/reply", &[], r#"{"answer":"yes"}"#);
    assert_eq!(reply.status, 200, "{reply:?}");
    let body = json!({ "flow": asks(), "runId": "g", "input": { "about": CANARY } }).to_string();
    let ended = ask(address, "POST", "/v1/runs?wait=true", &[], &body);
    assert_eq!(ended.json()["status"], "succeeded", "{ended:?}");
    assert_eq!(stop(child), Some(0));
    let spans = collector.spans();
    let run = one(&spans, "run asks");
    let attempt = spans.iter().find(|span| span.attribute("flowcell.task") == "ok").unwrap();
    assert_eq!((&attempt.trace, &attempt.parent), (&run.trace, &run.id));
    assert!(before.iter().all(|span| span.trace != run.trace || span.parent == run.id), "{before:#?}");
    assert_ne!(one(&before, "run other").trace, run.trace);
}

#[test]
fn an_unreachable_collector_causes_a_warning() {
    let (folder, collector) = (tempfile::tempdir().unwrap(), Collector::start());
    let origin = collector.origin();
    // The collector is gone.
    drop(collector);
    let (child, address, log) = serve_with_output(folder.path(), &["--otlp", &origin, "--log-format", "text"]);
    for run in 0..20 {
        let flow = json!({ "flow": { "name": "empty" }, "nodes": [] });
        assert_eq!(start(address, flow, &format!("r{run}")).json()["status"], "succeeded");
    }
    assert_eq!(stop(child), Some(0));
    let log = log.join().unwrap();
    assert_eq!(log.iter().filter(|line| line.contains("misses telemetry")).count(), 1, "{log:#?}");
}

#[test]
fn drive_exports_the_same_telemetry() {
    let (folder, collector) = (tempfile::tempdir().unwrap(), Collector::start());
    let (child, address) = serve(folder.path(), &[]);
    assert_eq!(start(address, asks(), "g").json()["status"], "parked");
    assert_eq!(stop(child), Some(0));
    let answered = output_of(folder.path(), &["answer", "g", "ok", "yes"]);
    assert!(answered.status.success(), "{}", stderr(&answered));
    let arguments = ["drive", "--once", "--otlp", &collector.origin(), "--log-format", "json"];
    let driven = output_of(folder.path(), &arguments);
    assert!(driven.status.success(), "{}", stderr(&driven));
    let spans = collector.spans();
    let run = one(&spans, "run asks");
    assert_eq!((run.attribute("flowcell.run.id"), run.attribute("flowcell.outcome")), ("g", "succeeded"));
    let log = stderr(&driven);
    assert!(log.lines().map(json_line).any(|line| line["message"] == "run ended" && line["run"] == "g"), "{log}");
    let wrong = output_of(folder.path(), &["drive", "--once", "--otlp", "nowhere", "--log-format", "json"]);
    let line = json_line(stderr(&wrong).trim_end());
    assert_eq!((&line["level"], &line["target"]), (&json!("error"), &json!("flowcell")), "{line}");
    let wrong = output_of(folder.path(), &["drive", "--once", "--otlp", "nowhere"]);
    assert!(
        wrong.status.code() == Some(2) && stderr(&wrong).contains("`nowhere` is not the address of a collector"),
        "{}",
        stderr(&wrong)
    );
}
