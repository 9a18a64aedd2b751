//! Expressions and explanations over HTTP: their answers, and what they refuse.

use flowcell_platform::policy::Policy;
use serde_json::{Value, json};

use crate::{
    client::Served,
    samples::{asks, hello},
    tenants::{call, served},
};

fn flow() -> Value {
    json!({
        "flow": { "name": "sums", "input": { "n": 2, "secret": null }, "outputs": { "sum": "{{ second.value }}" } },
        "nodes": [
            { "id": "first", "type": "control.noop", "input": { "value": "{{ flow.input.n * 10 }}" } },
            { "id": "second", "type": "control.noop", "when": "first.value > 5", "input": { "value": "{{ first.value + 1 }}" } },
            { "id": "third", "type": "control.noop", "when": "first.value > 500" },
        ],
        "edges": [{ "from": "first", "to": "second" }, { "from": "second", "to": "third" }],
    })
}

#[test]
fn an_expression_has_a_value_or_the_reason_why_not() {
    let served = Served::local();
    assert_eq!(served.post("/v1/runs?wait=true", &json!({ "flow": flow(), "runId": "r" })).status, 201);
    let eval = |body: Value| served.post("/v1/eval", &body);
    let cases = [
        (json!({ "expression": "{{ flow.input.a + 1 }}", "input": { "a": 41 } }), json!(42)),
        (json!({ "expression": "flow.input.n", "flow": flow() }), json!(2)),
        (json!({ "expression": "flow.input.n", "flow": flow(), "input": { "n": 3 } }), json!(3)),
        (json!({ "expression": "nothing {{ flow.name }}", "flow": flow() }), json!("nothing sums")),
        (json!({ "expression": "first.value", "runId": "r", "task": "second" }), json!(20)),
        (json!({ "expression": "first.value > 500", "runId": "r", "task": "third" }), json!(false)),
        (json!({ "expression": "{{ third.skipped }} {{ second.value }}", "runId": "r" }), json!("true 21")),
        (json!({ "expression": "flow.input.b", "input": {} }), Value::Null),
    ];
    for (body, value) in cases {
        let answer = eval(body.clone()).json();
        assert_eq!((&answer["value"], &answer["error"]), (&value, &Value::Null), "{body}: {answer}");
        assert!(answer["moment"]["at"].is_string(), "{answer}");
    }
    let errors = [
        (json!({ "expression": "second.value", "runId": "r", "task": "second" }), "self_reference"),
        (json!({ "expression": "secrets.token", "runId": "r", "task": "second" }), "unknown_name"),
        (json!({ "expression": "1 +" }), "bad_expression"),
        (json!({ "expression": "frist.value", "runId": "r", "task": "second" }), "unknown_name"),
    ];
    for (body, code) in errors {
        let answer = eval(body.clone()).json();
        assert_eq!(
            (&answer["diagnostics"][0]["code"], &answer["value"]),
            (&json!(code), &Value::Null),
            "{body}: {answer}"
        );
        assert!(answer["error"]["message"].is_string(), "{answer}");
    }
    let fixed = eval(json!({ "expression": "1 + frist.value", "runId": "r", "task": "second" })).json();
    assert_eq!(fixed["diagnostics"][0]["fix"], json!({ "line": 1, "column": 5, "len": 5, "text": "first" }), "{fixed}");
    let failed = eval(json!({ "expression": "flow.input.a + 1", "input": { "a": "text" } })).json();
    assert_eq!(failed["error"]["code"], "binding_error", "{failed}");
}

#[test]
fn requests_without_a_sense_are_refused() {
    let served = Served::local();
    served.post("/v1/runs?wait=true", &json!({ "flow": flow(), "runId": "r" }));
    served.post("/v1/runs?wait=true", &json!({ "flow": asks(), "runId": "p" }));
    let eval = |body: Value| served.post("/v1/eval", &body).fault();
    let typed = json!({ "flow": { "name": "t", "inputSchema": { "type": "object", "required": ["n"] } }, "nodes": [] });
    let cases = [
        (json!({}), 400, "bad_request"),
        (json!({ "expression": "1", "task": "first" }), 400, "bad_request"),
        (json!({ "expression": "1", "runId": "r", "input": {} }), 400, "bad_request"),
        (json!({ "expression": "1", "runId": "r", "flow": "hello" }), 400, "bad_request"),
        (json!({ "expression": "1", "colour": "red" }), 400, "bad_request"),
        (json!({ "expression": "first.value", "flow": flow() }), 400, "bad_request"),
        (json!({ "expression": "1", "flow": typed }), 422, "invalid_input"),
        (json!({ "expression": "1", "input": [1] }), 422, "invalid_input"),
        (json!({ "expression": "1", "flow": { "flow": { "name": "x" } } }), 422, "invalid_flow"),
        (json!({ "expression": "1", "flow": "none" }), 404, "flow_not_found"),
        (json!({ "expression": "1", "runId": "none" }), 404, "run_not_found"),
        (json!({ "expression": "1", "runId": "r", "task": "none" }), 404, "task_not_found"),
        (json!({ "expression": "1", "runId": "r", "task": "first/none" }), 404, "task_not_found"),
        (json!({ "expression": "1", "runId": "r", "task": "each[1].first" }), 404, "task_not_found"),
        (json!({ "expression": "1", "runId": "../r" }), 404, "run_not_found"),
        (json!({ "expression": "x".repeat(70_000) }), 400, "bad_request"),
    ];
    for (body, status, code) in cases {
        let shown = body.to_string();
        assert_eq!(eval(body), (status, code.to_owned()), "{}", &shown[..shown.len().min(200)]);
    }
    let explain = |body: Value| served.post("/v1/explain", &body);
    assert_eq!(explain(json!({ "flow": flow(), "node": "none" })).fault(), (404, "node_not_found".into()));
    let similar = explain(json!({ "flow": flow(), "node": "secnd" })).json();
    assert!(similar["error"]["message"].as_str().unwrap().contains("did you mean `second`?"), "{similar}");
    assert_eq!(explain(json!({ "flow": { "flow": { "name": "x" } } })).fault(), (422, "invalid_flow".into()));
    assert_eq!(explain(json!({ "flow": "none" })).fault(), (404, "flow_not_found".into()));
    let second = explain(json!({ "flow": flow(), "node": "second" })).json();
    assert_eq!(second["nodes"].as_array().unwrap().len(), 1, "{second}");
    assert_eq!(second["nodes"][0]["input"][0]["reads"][0]["from"], "the output of `first`", "{second}");
    assert!(second["text"].as_str().unwrap().contains("It starts after `first` succeeds."), "{second}");
    assert_eq!(explain(json!({ "flow": hello() })).json()["name"], "hello");
}

/// Endless, deep and huge expressions end soon, and the server answers others.
#[test]
fn hostile_expressions_are_answered_with_an_error() {
    let served = Served::local();
    let deep = format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000));
    let chain = (0..3_000).map(|_| "1").collect::<Vec<_>>().join(" + ");
    let often = "{{ flow.input.s | upper | lower }}".repeat(1_000);
    let doubled = "{{ [flow.input.s, flow.input.s] | join | list | sort | unique }}".repeat(60);
    let input = json!({ "s": "ab".repeat(400_000) });
    for expression in [deep, chain, often, doubled, "range(10000000000)".into(), "'a' * 9999999999".into()] {
        let answer = served.post("/v1/eval", &json!({ "expression": expression, "input": input }));
        let body = answer.json();
        assert_eq!((answer.status, &body["value"]), (200, &Value::Null), "{}", &expression[..50.min(expression.len())]);
        assert!(body["error"]["message"].is_string(), "{body}");
    }
    let large =
        served.post("/v1/eval", &json!({ "expression": "[flow.input.s, flow.input.s]", "input": input })).json();
    assert_eq!(large["error"]["code"], "output_too_large", "{large}");
    assert_eq!(served.post("/v1/eval", &json!({ "expression": "1 + 1" })).json()["value"], 2);
}

#[test]
fn an_expression_reads_only_runs_and_flows_of_its_tenant() {
    let (served, [a, b]) = served(&Policy::default());
    let post = |token: &str, path: &str, body: &Value| call(&served, token, "POST", path, body);
    assert_eq!(post(&a, "/v1/runs?wait=true", &json!({ "flow": flow(), "runId": "r" })).status, 201);
    assert_eq!(post(&a, "/v1/flows", &json!({ "flow": hello() })).status, 201);
    let of_run = json!({ "expression": "first.value", "runId": "r", "task": "second" });
    assert_eq!(post(&a, "/v1/eval", &of_run).json()["value"], 20);
    assert_eq!(post(&b, "/v1/eval", &of_run).fault(), (404, "run_not_found".into()));
    let of_flow = json!({ "expression": "flow.name", "flow": "hello" });
    assert_eq!(post(&a, "/v1/eval", &of_flow).json()["value"], "hello");
    assert_eq!(post(&b, "/v1/eval", &of_flow).fault(), (404, "flow_not_found".into()));
    assert_eq!(post(&b, "/v1/explain", &json!({ "flow": "hello" })).fault(), (404, "flow_not_found".into()));
    assert_eq!(post(&b, "/v1/eval", &json!({ "expression": "tenant" })).json()["value"], "b");
}

/// With a run an expression needs `run:read`, too.
#[test]
fn a_token_that_reads_flows_only_evaluates_no_values_of_runs() {
    let (served, [a, _]) = served(&Policy::default());
    call(&served, &a, "POST", "/v1/runs?wait=true", &json!({ "flow": flow(), "runId": "r" }));
    let host = served.host();
    let reader =
        flowcell_platform::tenants::Tenants::of(&host).create_token("a", &["flow:read".into()], "", None).unwrap();
    let eval = |body: &Value| call(&served, &reader.token, "POST", "/v1/eval", body);
    assert_eq!(eval(&json!({ "expression": "1 + 1" })).json()["value"], 2);
    let of_run = json!({ "expression": "first.value", "runId": "r", "task": "second" });
    assert_eq!(eval(&of_run).fault(), (403, "forbidden".into()));
    assert_eq!(eval(&of_run).json()["error"]["details"]["scope"], "run:read");
    assert_eq!(eval(&json!({ "expression": "1", "runId": "none" })).fault(), (403, "forbidden".into()), "no oracle");
}

/// An expression has the names of the version that its place had. Its errors in the other versions do not count.
#[test]
fn an_expression_in_a_moved_run_has_the_names_of_the_version_of_its_place() {
    let served = Served::local();
    let version = |more: Value, pay: &str, edges: Value| {
        json!({
            "flow": { "name": "moves", "input": { "n": 2 } },
            "nodes": [
                { "id": "ask", "type": "control.gate", "input": { "prompt": "Go on?", "choices": ["yes", "no"] } },
                { "id": "pay", "type": "control.noop", "input": { "value": pay } },
                more,
            ],
            "edges": edges,
        })
    };
    let node = |id: &str| json!({ "id": id, "type": "control.noop", "input": { "value": 3 } });
    let versions = [
        version(node("old"), "{{ flow.input.n }}", json!([{ "from": "ask", "to": "pay" }])),
        version(
            node("fee"),
            "{{ fee.value }}",
            json!([{ "from": "ask", "to": "fee" }, { "from": "fee", "to": "pay" }]),
        ),
    ];
    for flow in versions {
        assert_eq!(served.post("/v1/flows", &json!({ "flow": flow })).status, 201);
    }
    let begun = served.post("/v1/runs?wait=true", &json!({ "flow": "moves", "version": 1, "runId": "r" }));
    assert_eq!(begun.json()["status"], "parked", "{begun:?}");
    let moved = served.post("/v1/runs/r/migrate", &json!({ "to": 2 }));
    assert_eq!(moved.status, 200, "{moved:?}");
    assert_eq!(served.post("/v1/runs/r/gates/ask/reply", &json!({ "answer": "yes" })).status, 200);
    let status = || served.get("/v1/runs/r").json()["status"].clone();
    assert!(std::iter::repeat_with(status).take(10_000).any(|status| status == "succeeded"));
    for (expression, task, value, code) in [
        ("fee.value + 1", Some("pay"), json!(4), Value::Null),
        ("fee.value", None, json!(3), Value::Null),
        ("flow.input.n", Some("ask"), json!(2), Value::Null),
        ("{{ pay.value }}", None, json!(3), Value::Null),
        // The version before the move has this node, and the run has ended in the one after it.
        ("old.value", None, Value::Null, json!("unknown_name")),
        ("fei.value", Some("pay"), Value::Null, json!("unknown_name")),
    ] {
        let mut body = json!({ "expression": expression, "runId": "r" });
        if let Some(task) = task {
            body["task"] = task.into();
        }
        let answer = served.post("/v1/eval", &body).json();
        assert_eq!((&answer["value"], &answer["diagnostics"][0]["code"]), (&value, &code), "{expression}: {answer}");
    }
    let misspelt = served.post("/v1/eval", &json!({ "expression": "fei.value", "runId": "r", "task": "pay" })).json();
    let help = misspelt["diagnostics"][0]["help"].as_str().unwrap_or_default();
    assert!(help.contains("`fee`"), "the errors are those of the version that knows `fee`: {misspelt}");
    let missing = json!({ "expression": "1", "runId": "r", "task": "none" });
    assert_eq!(served.post("/v1/eval", &missing).fault(), (404, "task_not_found".into()));
}
