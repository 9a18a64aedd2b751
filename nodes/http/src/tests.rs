//! Requests and responses, played by a script.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::time::{Duration, SystemTime};

use flowcell_contract::Manifest;
use flowcell_sdk::{
    Failure, Given,
    testing::{Outcome, Played, Script},
};
use serde_json::{Value, json};

fn play(input: Value, reply: Value) -> Played {
    Script::new().reply(reply).play(crate::run_node, "http.request", Given { input, ..Given::default() })
}

fn request_for(input: Value) -> Value {
    let played = play(input, json!({ "status": 204 }));
    assert!(matches!(played.outcome, Outcome::Output(_)), "{:?}", played.outcome);
    played.of("http.send")[0].clone()
}

fn outcome_of(reply: Value) -> Outcome {
    play(json!({ "url": "https://a.example" }), reply).outcome
}

fn failed(outcome: Outcome) -> Failure {
    match outcome {
        Outcome::Failure(failure) => failure,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_is_built_from_the_members_of_the_input() {
    let whole = json!({
        "method": "PUT", "url": "https://a.example/x?z=1#top", "headers": { "x-a": "b" }, "json": { "n": 1 },
        "query": { "q": "a b&c=ü", "n": [1, true], "none": null }, "timeoutMs": 5,
    });
    let expected = json!({
        "method": "PUT", "url": "https://a.example/x?z=1&q=a%20b%26c%3D%C3%BC&n=1&n=true#top",
        "headers": [["x-a", "b"], ["content-type", "application/json"]], "body": { "text": "{\"n\":1}" }, "timeoutMs": 5,
    });
    assert_eq!(request_for(whole), expected);
    let bare = request_for(json!({ "url": "https://a.example", "query": {} }));
    assert_eq!(
        bare,
        json!({ "method": "GET", "url": "https://a.example", "headers": [], "body": "empty", "timeoutMs": null })
    );
    assert_eq!(request_for(json!({ "method": "patch", "url": "u" }))["method"], "PATCH");
    let own = request_for(json!({ "url": "u", "json": null, "headers": { "Content-Type": "application/ld+json" } }));
    assert_eq!(own["headers"], json!([["Content-Type", "application/ld+json"]]));
    assert_eq!(own["body"], json!({ "text": "null" }));
    for (url, expected) in [("u", "u?a=1"), ("u?", "u?a=1"), ("u?b=2&", "u?b=2&a=1")] {
        assert_eq!(request_for(json!({ "url": url, "query": { "a": 1 } }))["url"], expected);
    }
}

#[test]
fn invalid_inputs_fail_before_a_request_is_sent() {
    let wrong = [
        (json!({ "url": "u", "query": { "a": { "b": 1 } } }), "input.query.a"),
        (json!({ "url": "u", "query": { "a": [[1]] } }), "input.query.a"),
        (json!({ "url": "u", "expect": ["2XX"] }), "\"2XX\""),
        (json!({ "url": "u", "expect": [99] }), "99"),
        (json!({ "url": "u", "expect": ["9xx"] }), "9xx"),
        (json!({ "url": "u", "json": 1, "file": {} }), "one body"),
        (json!({ "url": "u", "headers": { "a": 1 } }), "headers.a"),
    ];
    for (input, told) in wrong {
        let played = play(input, json!({ "status": 200 }));
        assert!(played.calls.is_empty(), "{told}");
        let failure = failed(played.outcome);
        assert_eq!(failure.code, "invalid_input", "{told}");
        assert!(failure.message.contains(told), "{}", failure.message);
    }
}

#[test]
fn a_file_value_is_not_sent_as_json() {
    let file = json!({ "kind": "file", "fileId": "abc" });
    for (body, named) in [(file.clone(), "`json`"), (json!({ "rows": [1, file] }), "`json.rows[1]`")] {
        let input = json!({ "method": "POST", "url": "https://api.test/", "json": body });
        let failure = failed(play(input, json!({ "status": 204 })).outcome);
        assert!(failure.message.contains(named) && failure.message.contains("file.content"), "{failure:?}");
    }
}

#[test]
fn a_body_is_parsed_by_its_content_type() {
    let of = |mime: &str, body: Value| json!({ "status": 200, "headers": [["content-type", mime]], "body": body });
    let file = json!({ "kind": "file", "fileId": "abc", "size": 9, "mime": "image/png" });
    let table = [
        (of("application/json", json!({ "text": "[1]" })), json!([1])),
        (of("application/problem+json; charset=utf-8", json!({ "text": "{}" })), json!({})),
        (of("text/plain", json!({ "text": "[1]" })), json!("[1]")),
        (of("application/json", json!("empty")), json!(null)),
        (of("image/png", json!({ "file": file })), file.clone()),
    ];
    for (reply, body) in table {
        match outcome_of(reply.clone()) {
            Outcome::Output(output) => assert_eq!(output["body"], body, "{reply}"),
            other => panic!("{reply}: {other:?}"),
        }
    }
    assert_eq!(failed(outcome_of(of("application/json", json!({ "text": "{" })))).code, "invalid_answer");
    let twice = json!({ "status": 200, "headers": [["a", "1"], ["b", "2"], ["a", "3"]] });
    let expected = json!({ "status": 200, "headers": { "a": "1, 3", "b": "2" }, "body": null });
    assert_eq!(outcome_of(twice), Outcome::Output(expected));
}

#[test]
fn an_unexpected_status_fails_the_node() {
    let table = [(301, false), (404, false), (408, true), (429, true), (500, true), (501, false), (503, true)];
    for (status, retryable) in table {
        let failure = failed(outcome_of(json!({ "status": status, "headers": [], "body": { "text": "why" } })));
        assert_eq!((&*failure.code, failure.retryable, failure.retry_after_ms), ("http_status", retryable, None));
        assert_eq!(failure.details, Some(json!({ "status": status, "body": "why" })));
        let input = json!({ "url": "u", "expect": [status] });
        assert!(matches!(play(input, json!({ "status": status })).outcome, Outcome::Output(_)), "{status}");
    }
    let long = failed(outcome_of(json!({ "status": 400, "body": { "text": "ü".repeat(5000) } })));
    let body = long.details.unwrap()["body"].as_str().unwrap().to_owned();
    assert!(body.ends_with('…') && body.len() < 4200, "{}", body.len());
}

#[test]
fn retry_after_sets_the_delay_of_the_retry() {
    let busy = |after: &str| json!({ "status": 429, "headers": [["retry-after", after]] });
    let after = |after: &str| failed(outcome_of(busy(after))).retry_after_ms;
    assert_eq!(after("7"), Some(7000));
    assert_eq!(after("99999999999"), Some(u32::MAX));
    assert_eq!(after("soon"), None);
    let refused = failed(outcome_of(json!({ "status": 403, "headers": [["retry-after", "7"]] })));
    assert_eq!((refused.retryable, refused.retry_after_ms), (false, None));
    // 1994-11-06 08:49:37 UTC.
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    assert_eq!(crate::answer::retry_after_ms("Sun, 06 Nov 1994 08:49:47 GMT", now), Some(10_000));
    assert_eq!(crate::answer::retry_after_ms("Sun, 06 Nov 1994 08:49:30 GMT", now), Some(0));
}

#[test]
fn a_failed_call_fails_the_node() {
    let script = Script::new().fail(Failure::new("denied", "not granted"));
    let input = json!({ "url": "https://a.example" });
    let played = script.play(crate::run_node, "http.request", Given { input, ..Given::default() });
    assert_eq!(failed(played.outcome).code, "denied");
}

#[test]
fn the_manifest_requests_the_capabilities_that_the_nodes_use() {
    let manifest = Manifest::parse(crate::MANIFEST).unwrap();
    let asked: Vec<_> = manifest.nodes[0].capabilities.iter().map(|asked| &*asked.name).collect();
    assert_eq!(asked, ["http"]);
}
