//! The examples of the manifest, and the nodes after a pause.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use flowcell_contract::Manifest;
use flowcell_sdk::{
    Given,
    testing::{self, Outcome},
};
use serde_json::{Value, json};

/// Every example of the manifest gives the documented result.
#[test]
fn examples_of_the_manifest_give_the_documented_results() {
    let manifest = Manifest::parse(crate::MANIFEST).unwrap();
    for node in &manifest.nodes {
        assert!(!node.examples.is_empty(), "{} has no examples", node.name);
        for example in &node.examples {
            let place = format!("{}: {}", node.name, example.title);
            let pauses_for = |wake: &str| example.pause.iter().flatten().any(|name| name == wake);
            // A type that needs a body has one, except in the example of a missing body.
            let needed = node.body.as_ref().is_some_and(|body| body.required);
            let missing = example.failure.as_deref() == Some("missing_body");
            let has_body = needed && !missing || pauses_for("body") || pauses_for("each");
            let input = example.input.clone();
            let given = Given { input, task: task(json!({ "hasBody": has_body })), ..Given::default() };
            match testing::run(crate::run_node, &node.name, given) {
                Outcome::Output(output) => assert_eq!(Some(&output), example.output.as_ref(), "{place}"),
                Outcome::Pause(wakes, _) => {
                    let wanted: Vec<&str> = example.pause.iter().flatten().map(String::as_str).collect();
                    assert_eq!(wakes, wanted, "{place}");
                }
                Outcome::Failure(failure) => {
                    assert_eq!(Some(&*failure.code), example.failure.as_deref(), "{place}: {failure}");
                    let documented = node.errors.iter().any(|error| error.code == failure.code);
                    assert!(documented, "{place}: the failure {} is not documented", failure.code);
                }
            }
        }
    }
}

/// The failure of `control.fail` is the one that the flow describes. A wait makes it retryable.
#[test]
fn a_failure_has_the_code_and_the_details_of_the_flow() {
    let fail = |input: Value| match testing::run(crate::run_node, "control.fail", Given { input, ..Given::default() }) {
        Outcome::Failure(failure) => failure,
        other => panic!("no failure: {other:?}"),
    };
    let failure = fail(json!({ "message": "sold out", "code": "no_stock", "details": [1], "retryAfterMs": 5 }));
    assert_eq!((&*failure.code, &*failure.message), ("no_stock", "sold out"));
    assert_eq!((failure.details, failure.retryable, failure.retry_after_ms), (Some(json!([1])), true, Some(5)));
    let plain = fail(json!({ "message": "sold out" }));
    assert_eq!((&*plain.code, plain.details, plain.retryable), ("failed", None, false));
}

/// Batches that have no room in the answer of the node are refused before they are made, with what to change.
#[test]
fn batches_that_are_too_large_are_refused() {
    let run = |input: Value| match testing::run(crate::run_node, "control.foreach", Given { input, ..Given::default() })
    {
        Outcome::Failure(failure) => Some((failure.code.to_string(), failure.message.to_string())),
        _ => None,
    };
    let texts = |count: usize, bytes: usize| vec!["x".repeat(bytes); count];
    let numbers = |count: usize| vec![1; count];
    assert_eq!(run(json!({ "list": texts(40, 100_000), "batchSize": 10 })), None);
    assert_eq!(run(json!({ "list": numbers(100_000), "batchSize": 50_000 })), None);
    for (input, parts) in [
        (
            json!({ "list": texts(50, 100_000), "batchSize": 10 }),
            ["the 5 batches of the 50 items", "batch a list of ids"],
        ),
        // 50 million items.
        (
            json!({ "list": numbers(10_000), "batchSize": 9_000, "batchStep": 1 }),
            ["the 1001 batches of the 10000 items", "larger `batchStep`"],
        ),
        (
            json!({ "list": vec![json!([]); 150_000], "batchSize": 2, "batchStep": 1 }),
            ["values (at most 999000, of which a list or an object is 6)", "larger `batchStep`"],
        ),
    ] {
        let (code, message) = run(input).unwrap_or_default();
        assert_eq!(code, "output_too_large");
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    }
}

/// A wait for a moment pauses before it, and not from the moment on.
#[test]
fn a_wait_ends_at_its_moment() {
    // The task's time is 1.5 s after the beginning of 1970.
    let wait = |at: Value| resumed("control.wait", json!({ "at": at }), Value::Null, Value::Null);
    for at in ["1970-01-01T00:00:01.5000001Z", "1970-01-01T01:00:02+01:00", "1971-01-01T00:00:01.5Z"] {
        assert!(matches!(wait(json!(at)), Outcome::Pause(wakes, _) if wakes == ["after"]), "{at}");
    }
    for at in [json!("1970-01-01T00:00:01.5Z"), json!(1), json!(0)] {
        assert!(matches!(wait(at.clone()), Outcome::Output(output) if output == json!({ "waitedMs": 0 })), "{at}");
    }
    for at in [
        json!("2026-11-26"),
        json!("2026-11-26T10:00"),
        json!("tomorrow"),
        // More than 365 days ahead.
        json!("1971-01-01T00:00:01.501Z"),
        json!(1.5),
        json!(-1),
        json!(null),
        json!([]),
    ] {
        assert!(matches!(wait(at.clone()), Outcome::Failure(failure) if failure.code == "invalid_input"), "{at}");
    }
}

fn task(more: Value) -> Value {
    let mut task = json!({ "nodeId": "poll", "nowMs": 1500, "hasBody": true });
    task.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    task
}

/// Performs a task of a node type after a pause with this state and this wake. If `woken` is null, the task has not
/// paused yet.
fn resumed(node_type: &str, input: Value, state: Value, woken: Value) -> Outcome {
    let woken = (!woken.is_null()).then_some(woken);
    let state = woken.is_some().then_some(state);
    testing::run(crate::run_node, node_type, Given { input, state, woken, task: task(json!({})), ..Given::default() })
}

#[test]
fn nodes_give_their_outputs_after_a_pause() {
    let event = json!({ "index": 0, "wake": "event", "value": { "name": "paid", "payload": { "sum": 3 } } });
    let after = json!({ "index": 1, "wake": "after", "value": { "elapsedMs": 500 } });
    let answer = json!({ "index": 0, "wake": "answer", "value": { "content": "yes", "choice": "yes" } });
    let each = json!({ "index": 0, "wake": "each", "value": ["x", null] });
    let body = json!({ "index": 0, "wake": "body", "value": ["x"] });
    let flow = json!({ "index": 0, "wake": "flow", "value": { "outputs": { "a": 1 } } });
    let began = json!({ "startedMs": 1000 });
    let rows = [
        (
            "control.wait",
            json!({ "until": "paid", "ms": 500 }),
            began.clone(),
            event,
            json!({ "waitedMs": 500, "event": { "name": "paid", "payload": { "sum": 3 } } }),
        ),
        ("control.wait", json!({ "until": "paid", "ms": 500 }), began, after, json!({ "waitedMs": 500 })),
        (
            "control.gate",
            json!({ "prompt": "?" }),
            Value::Null,
            answer,
            json!({ "response": { "content": "yes", "choice": "yes" } }),
        ),
        ("control.foreach", json!({ "list": [1, 2] }), Value::Null, each, json!({ "items": ["x", null], "count": 2 })),
        ("control.scope", json!({}), Value::Null, body, json!(["x"])),
        ("control.subflow", json!({ "name": "f" }), Value::Null, flow, json!({ "outputs": { "a": 1 } })),
    ];
    for (node_type, input, state, woken, output) in rows {
        assert_eq!(resumed(node_type, input, state, woken), Outcome::Output(output), "{node_type}");
    }
}

#[test]
fn nodes_fail_after_a_failed_pause() {
    let broken = |wake: &str| json!({ "index": 0, "wake": wake, "error": { "code": "boom", "message": "m", "retryable": true } });
    let rows = [
        (
            "control.gate",
            json!({ "prompt": "?", "timeoutMs": 5 }),
            json!({ "index": 1, "wake": "after", "value": {} }),
            "gate_timeout",
        ),
        ("control.foreach", json!({ "list": [1] }), broken("each"), "boom"),
        ("control.scope", json!({}), broken("body"), "boom"),
        ("control.subflow", json!({ "name": "f" }), broken("flow"), "boom"),
        ("control.loop", json!({ "while": true }), broken("body"), "boom"),
    ];
    for (node_type, input, woken, code) in rows {
        match resumed(node_type, input, Value::Null, woken) {
            Outcome::Failure(failure) => assert_eq!(failure.code, code, "{node_type}"),
            other => panic!("{node_type}: {other:?}"),
        }
    }
}

#[test]
fn strict_conditions_fail_at_missing_values() {
    let strict = |raw: Value| json!({ "expr": raw, "vars": { "a.skipped": true, "b.c": null }, "strict": true });
    let rows = [
        ("control.if", json!({ "condition": strict(json!("a.b or true")) }), "`a.b` is missing: `a` was skipped"),
        (
            "control.switch",
            json!({ "cases": [
                { "route": "x", "when": strict(json!("b.c == 1")) },
                { "route": "y", "when": strict(json!({ "lt": { "var": "b.d", "value": 1 } })) },
            ] }),
            "cases[1].when: /lt/var: `b.d` is missing",
        ),
        ("control.loop", json!({ "while": strict(json!("poll.last.more")) }), "`poll.last.more` is missing"),
    ];
    for (node_type, input, message) in rows {
        let Outcome::Failure(failure) = resumed(node_type, input, Value::Null, Value::Null) else {
            panic!("{node_type} succeeds")
        };
        assert_eq!(failure.code, "missing_value", "{node_type}");
        assert!(failure.message.starts_with(message), "{node_type}: {}", failure.message);
    }
}

/// The condition of a loop reads the number of passes under the loop's own id, such as `poll.iteration`.
#[test]
fn a_loop_counts_its_passes_and_stops_at_its_maximum() {
    let input = json!({ "while": { "expr": "poll.iteration < flow.input.times", "vars": { "flow.input.times": 2 } } });
    let pass = |last: &str| json!({ "index": 0, "wake": "body", "value": last });
    let rows = [
        (input.clone(), Value::Null, Value::Null, Outcome::Pause(vec!["body"], json!({ "done": 0 }))),
        (input.clone(), json!({ "done": 0 }), pass("a"), Outcome::Pause(vec!["body"], json!({ "done": 1 }))),
        (input, json!({ "done": 1 }), pass("b"), Outcome::Output(json!({ "iteration": 2, "last": "b" }))),
        (json!({ "while": false }), Value::Null, Value::Null, Outcome::Output(json!({ "iteration": 0, "last": null }))),
        (
            json!({ "while": "poll.last != 'b'" }),
            json!({ "done": 4 }),
            pass("b"),
            Outcome::Output(json!({ "iteration": 5, "last": "b" })),
        ),
    ];
    for (input, state, woken, wanted) in rows {
        assert_eq!(resumed("control.loop", input, state, woken), wanted);
    }
    let capped = resumed("control.loop", json!({ "while": true, "maxIterations": 3 }), json!({ "done": 2 }), pass("a"));
    assert!(matches!(capped, Outcome::Failure(failure) if failure.code == "max_iterations"));
}

/// If the node has a body, it hands the list to the host without reading the items.
#[test]
fn foreach_hands_its_items_to_its_body() {
    let input = json!({ "list": [1, 2], "as": "order", "concurrency": 2, "onItemError": "collect" });
    assert_eq!(resumed("control.foreach", input, Value::Null, Value::Null), Outcome::Pause(vec!["each"], Value::Null));
}

#[test]
fn a_scope_runs_its_body_once() {
    let first = resumed("control.scope", json!({}), Value::Null, Value::Null);
    assert_eq!(first, Outcome::Pause(vec!["body"], Value::Null));
}
