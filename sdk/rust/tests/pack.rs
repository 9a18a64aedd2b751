//! A pack with node types of every form, written as its author would, and performed without a host.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use flowcell_sdk::{
    prelude::*,
    testing::{self, Outcome},
};

flowcell_sdk::pack! {
    manifest: "tests/node.yaml",
    "test.sum" => sum,
    "test.greet" => greet,
    "test.nap" => nap,
    "test.count" => count,
}

#[derive(Deserialize)]
struct Sum {
    numbers: Vec<Number>,
}

#[derive(Deserialize)]
struct Number {
    n: i8,
}

#[derive(Serialize)]
struct Total {
    total: i8,
}

fn sum(input: Sum) -> Result<Total> {
    let add = |total: i8, number: &Number| total.checked_add(number.n);
    let total = input.numbers.iter().try_fold(0, add);
    Ok(Total { total: total.ok_or_else(|| Failure::new("overflow", "the sum is too large"))? })
}

#[derive(Deserialize)]
struct Greet {
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Style {
    loud: bool,
}

fn greet(input: Greet, style: Style) -> Result<Value> {
    let text = format!("Hello {}", input.name);
    Ok(json!({ "text": if style.loud { text.to_uppercase() } else { text } }))
}

fn nap(task: &Task) -> Result<Step> {
    let Some(woken) = task.woken()? else {
        let since = task.info()?.now_ms;
        return Ok(Pause::event("alarm").or_after_ms(1000).remember(since)?.into());
    };
    let slept = task.info()?.now_ms - task.state::<u64>()?.unwrap_or_default();
    let output = Output::object().with("wake", Source::value(woken.wake)?).with("slept", Source::value(slept)?);
    Ok(output.with("what", Source::woken("/value")).into())
}

#[derive(Deserialize)]
struct Count {
    text: String,
}

/// Uses `?` on an error of the standard library, and hands on a part of the input without reading it.
fn count(_task: &Task, input: Count) -> Result<Step> {
    let count: u32 = input.text.parse()?;
    Ok(Output::object().with("count", Source::value(count)?).with("text", Source::input("/text")).into())
}

fn run(node_type: &str, given: Given) -> Outcome {
    testing::run(run_node, node_type, given)
}

fn input(input: Value) -> Given {
    Given { input, ..Given::default() }
}

#[test]
fn every_form_of_function_runs_as_a_node() {
    let loud = Given { config: json!({ "loud": true }), ..input(json!({ "name": "Ada" })) };
    let rows = [
        ("test.sum", input(json!({ "numbers": [{ "n": 1 }, { "n": 2 }] })), json!({ "total": 3 })),
        ("test.greet", input(json!({ "name": "Ada" })), json!({ "text": "Hello Ada" })),
        ("test.greet", loud, json!({ "text": "HELLO ADA" })),
        ("test.count", input(json!({ "text": "7" })), json!({ "count": 7, "text": "7" })),
    ];
    for (node_type, given, output) in rows {
        assert_eq!(run(node_type, given), Outcome::Output(output), "{node_type}");
    }
}

#[test]
fn failures_name_their_cause_and_are_not_retried() {
    let config = Given { config: json!({ "lout": true }), ..input(json!({ "name": "Ada" })) };
    let rows = [
        ("test.sum", input(json!({})), "invalid_input", "input: missing field `numbers`"),
        ("test.sum", input(json!({ "numbers": [{ "n": 1 }, { "n": "x" }] })), "invalid_input", "input.numbers[1].n: "),
        ("test.sum", input(json!({ "numbers": [{ "n": 300 }] })), "invalid_input", "input.numbers[0].n: "),
        ("test.sum", input(json!({ "numbers": [{ "n": 100 }, { "n": 100 }] })), "overflow", "the sum is too large"),
        ("test.greet", config, "invalid_config", "config.lout: unknown field `lout`"),
        ("test.count", input(json!({ "text": "x" })), "node_failed", "invalid digit found in string"),
        ("test.other", input(json!({})), "unknown_node_type", "no code for `test.other`"),
    ];
    for (node_type, given, code, message) in rows {
        let Outcome::Failure(failure) = run(node_type, given) else { panic!("{node_type} did not fail") };
        assert_eq!(failure.code, code, "{failure}");
        assert!(failure.message.contains(message) && !failure.message.contains(" line "), "{failure}");
        assert!(!failure.retryable, "{failure}");
    }
}

#[test]
fn a_pause_stores_its_state_until_the_wake() {
    let task = |now: u64| json!({ "nowMs": now, "nodeId": "n" });
    let first = Given { task: task(500), ..Given::default() };
    assert_eq!(run("test.nap", first), Outcome::Pause(vec!["event", "after"], json!(500)));
    let woken = json!({ "index": 0, "wake": "event", "value": { "name": "alarm", "payload": null } });
    let again = Given { task: task(800), state: Some(json!(500)), woken: Some(woken), ..Given::default() };
    let output = json!({ "wake": "event", "slept": 300, "what": { "name": "alarm", "payload": null } });
    assert_eq!(run("test.nap", again), Outcome::Output(output));
}

#[test]
fn a_failed_body_fails_its_node() {
    let error = json!({ "code": "acme_quota", "message": "later", "retryable": true, "details": { "left": 0 } });
    let woken = json!({ "index": 0, "wake": "body", "error": error });
    let task = Task::given(Given { woken: Some(woken), ..Given::default() });
    for woken in [task.woken(), task.woken_by()] {
        let failure = woken.unwrap().unwrap().error.unwrap().into_failure();
        assert_eq!(failure, Failure::new("acme_quota", "later").retryable().details(json!({ "left": 0 })));
    }
}

#[test]
fn parts_are_read_by_pointer() {
    let task = Task::given(input(json!({ "a/b": [1, null], "t": "é", "null": null })));
    assert_eq!(task.input_at::<u8>("/a~1b/0").unwrap(), Some(1));
    assert_eq!(task.input_at::<u8>("/a~1b/7").unwrap(), None);
    assert_eq!(task.input_at::<u8>("/t").unwrap_err().code, "invalid_input");
    assert_eq!((task.input_len("/a~1b"), task.input_len("/t"), task.input_len("/null")), (Some(2), Some(2), None));
    assert_eq!((task.has_input("/null"), task.has_input("/nothing")), (true, false));
    assert_eq!((task.input_text("/t").as_deref(), task.input_text("/null")), (Some("é"), None));
}

#[test]
fn the_manifest_is_the_content_of_the_file() {
    assert_eq!(MANIFEST, include_str!("node.yaml"));
}
