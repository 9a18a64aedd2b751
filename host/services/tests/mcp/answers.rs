//! Answers of tools, over each transport and in each version of the protocol.

use std::time::Duration;

use flowcell_mcpfake::Plan;
use serde_json::{Value, json};

use crate::mcp::kit::{Kit, everywhere, fake};

/// Time to wait for an answer that never arrives.
const SHORT: Duration = Duration::from_millis(30);

#[tokio::test]
async fn answers_become_outputs() {
    for (place, kit, fake) in everywhere(Plan::default()).await {
        let text = kit.call("fake", "echo", json!({ "text": "hallo ü" })).await.unwrap();
        assert_eq!(text, json!("hallo ü"), "{place}");
        let structured = kit.call("fake", "structured", json!({})).await.unwrap();
        assert_eq!(structured, json!({ "sum": 5, "parts": [2, 3] }), "{place}");
        mixed(&kit.call("fake", "mixed", json!({})).await.unwrap(), &kit);
        assert!(fake.is_none_or(|fake| fake.refused().is_empty()), "{place}");
    }
}

fn mixed(blocks: &Value, kit: &Kit) {
    let kinds: Vec<&str> = blocks.as_array().unwrap().iter().map(|block| block["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["text", "image", "audio", "resource", "resource", "resource_link"]);
    let files = [(1, "image/png"), (2, "application/octet-stream"), (4, "application/octet-stream")];
    for (place, expected) in files {
        let (bytes, mime) = kit.file(&blocks[place]["file"]);
        assert_eq!((&*bytes, mime.as_str()), (&b"bytes"[..], expected), "{place}");
    }
    assert_eq!(blocks[3], json!({ "type": "resource", "uri": "file:///a.txt", "mimeType": "text/plain", "text": "a" }));
    assert_eq!((&blocks[5]["uri"], &blocks[5]["name"]), (&json!("file:///c"), &json!("c")));
}

/// An answer can be a short text and yet take much memory, if it consists of many values.
#[tokio::test]
async fn h16_answers_of_too_many_values_are_refused() {
    for (place, kit, _fake) in everywhere(Plan::default()).await {
        let allowed = kit.call("fake", "values", json!({ "count": 160_000 })).await.unwrap();
        assert_eq!(allowed["lists"].as_array().unwrap().len(), 160_000, "{place}");
        let failure = kit.call("fake", "values", json!({ "count": 170_000 })).await.unwrap_err();
        assert_eq!(failure.code, "mcp_too_large", "{place}: {failure}");
    }
}

#[tokio::test]
async fn progress_is_reported_in_order() {
    for (place, kit, _fake) in everywhere(Plan::default()).await {
        kit.call("fake", "progress", json!({})).await.unwrap();
        let expected: Vec<Value> = (1..=3)
            .map(|step| {
                json!({ "tool": "mcp:fake/progress", "progress": f64::from(step), "total": 3.0,
                "message": format!("step {step}") })
            })
            .collect();
        assert_eq!(*kit.told.lock().unwrap(), expected, "{place}");
    }
}

#[tokio::test]
async fn failures_have_their_codes() {
    let table = [
        ("fail", json!({}), "tool_failed", false),
        ("refuse", json!({ "code": -32602 }), "invalid_input", false),
        ("refuse", json!({ "code": -32603 }), "mcp_error", false),
        ("no-such-tool", json!({}), "invalid_input", false),
        ("bad-file", json!({}), "mcp_protocol", false),
        ("input", json!({}), "mcp_error", false),
        ("task", json!({}), "mcp_error", false),
        ("a b", json!({}), "tool_not_found", false),
        ("echo", json!([1]), "invalid_input", false),
        ("garbage", json!({}), "mcp_protocol", false),
        ("crash", json!({}), "mcp_broken", true),
    ];
    for (place, kit, _fake) in everywhere(Plan::default()).await {
        for (tool, input, code, retryable) in &table {
            let failure = kit.call("fake", tool, input.clone()).await.unwrap_err();
            assert_eq!((failure.code.as_str(), failure.retryable), (*code, *retryable), "{place}, {tool}: {failure}");
        }
        let again = kit.call("fake", "echo", json!({ "text": "still here" })).await;
        assert_eq!(again.unwrap(), json!("still here"), "{place}");
    }
}

#[tokio::test]
async fn r22_h16_a_missing_answer_times_out() {
    for (place, kit, _fake) in everywhere(Plan::default()).await {
        kit.names("fake").await;
        for tool in ["slow", "wrong-id"] {
            let failure = kit.call_within("fake", tool, json!({}), SHORT).await.unwrap_err();
            assert_eq!((failure.code.as_str(), failure.retryable), ("mcp_timeout", true), "{place}, {tool}: {failure}");
        }
    }
}

#[tokio::test]
async fn a_dropped_call_sends_a_cancellation() {
    let kit = Kit::of(&json!({ "fake": fake(&Plan::default()) }));
    kit.names("fake").await;
    kit.call_within("fake", "slow", json!({}), SHORT).await.unwrap_err();
    // The cancellation arrives in the meantime.
    while kit.call("fake", "cancelled", json!({})).await.unwrap() == json!("[]") {}
}

#[tokio::test]
async fn r22_h16_answers_above_a_limit_are_refused() {
    let mebibytes = |size: usize| json!({ "size": size * 1024 * 1024 });
    for (place, kit, _fake) in everywhere(Plan::default()).await {
        let whole = place.ends_with("json: true");
        let allowed = kit.call("fake", "huge", mebibytes(if whole { 15 } else { 3 })).await;
        assert!(allowed.is_ok(), "{place}: {}", allowed.unwrap_err());
        let failure = kit.call("fake", "huge", mebibytes(if whole { 17 } else { 5 })).await.unwrap_err();
        assert_eq!((failure.code.as_str(), failure.retryable), ("mcp_too_large", false), "{place}: {failure}");
        let input = json!({ "text": "x".repeat(5 * 1024 * 1024) });
        let failure = kit.call("fake", "echo", input).await.unwrap_err();
        assert_eq!(failure.code, "invalid_input", "{place}: {failure}");
    }
}

#[tokio::test]
async fn h16_requests_of_servers_are_refused() {
    let kit = Kit::of(&json!({ "fake": fake(&Plan::default()) }));
    let text = kit.call("fake", "ask", json!({})).await.unwrap();
    let answers: Vec<Value> = serde_json::from_str(text.as_str().unwrap()).unwrap();
    let answer = |id: &str| answers.iter().find(|answer| answer["id"] == id).unwrap();
    assert_eq!(answer("q1")["error"]["code"], -32601);
    assert_eq!(answer("q2")["error"]["code"], -32601);
    assert_eq!(answer("q3")["result"], json!({ "action": "decline" }));
}

/// A server sends requests and does not read the answers. Each answer of the host waits in memory until the server
/// reads it.
#[tokio::test]
async fn h16_pending_requests_of_a_server_are_bounded() {
    for (place, kit, _fake) in everywhere(Plan::default()).await {
        // An answer in a single JSON text brings no requests.
        if place.ends_with("json: true") {
            continue;
        }
        let failure = kit.call("fake", "questions", json!({})).await.unwrap_err();
        assert_eq!(failure.code, "mcp_protocol", "{place}: {failure}");
        assert!(failure.message.contains("more than 100 questions at a time"), "{place}: {failure}");
        // A server with few pending requests gets all its answers, however many it requests in total.
        if place.starts_with("program, modern: false") {
            for _ in 0..50 {
                assert!(kit.call("fake", "ask", json!({})).await.is_ok(), "{place}");
            }
        }
    }
}
