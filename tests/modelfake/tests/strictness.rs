//! Tests the requests that the server accepts and refuses, over real HTTP.
#![allow(clippy::unwrap_used, reason = "tests")]

use bytes::Bytes;
use flowcell_modelfake::Fake;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};

/// Sends a body with the headers that the provider of this path requires. Without a body it sends a `GET`. Returns the
/// status and the text of the answer.
async fn send(fake: &Fake, path: &str, body: Option<&Value>) -> (u16, String) {
    let stream = tokio::net::TcpStream::connect(fake.address()).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let builder =
        Request::builder().uri(path).method(if body.is_some() { "POST" } else { "GET" }).header("host", "fake");
    let builder = builder.header("content-type", "application/json").header("anthropic-version", "2023-06-01");
    let builder = match path {
        "/v1/messages" => builder.header("x-api-key", "test-key"),
        _ => builder.header("authorization", "Bearer test-key"),
    };
    let bytes = Bytes::from(body.map(Value::to_string).unwrap_or_default());
    let answer = sender.send_request(builder.body(Full::new(bytes)).unwrap()).await.unwrap();
    let status = answer.status().as_u16();
    let text = String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap();
    (status, text)
}

/// Returns a valid body with these members changed.
fn with(path: &str, changes: &Value) -> Value {
    let user = json!([{ "role": "user", "content": "hi" }]);
    let mut body = match path {
        "/v1/messages" => json!({ "model": "m", "max_tokens": 9, "messages": user, "stream": true }),
        "/v1/chat/completions" => json!({ "model": "m", "messages": user, "stream": true }),
        _ => json!({ "model": "m", "input": user, "stream": true }),
    };
    body.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    body
}

const MESSAGES: &str = "/v1/messages";
const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";

async fn judged(table: &[(&str, Value, bool)]) {
    let fake = Fake::start(json!({ "turns": [{ "reply": { "text": "ok" }, "repeat": true }] })).await.unwrap();
    for (path, changes, good) in table {
        let (status, text) = send(&fake, path, Some(&with(path, changes))).await;
        assert_eq!(status, if *good { 200 } else { 400 }, "{path} {changes}: {text}");
        if !good {
            let error: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(error["error"]["type"], "invalid_request_error", "{text}");
        }
    }
    let good = table.iter().filter(|(_, _, good)| *good).count() as u64;
    assert_eq!((fake.billing().turns, fake.failures()), (good, vec![]));
}

#[tokio::test]
async fn members_are_checked() {
    judged(&[
        (MESSAGES, json!({}), true),
        (MESSAGES, json!({ "max_tokens": null }), false),
        (MESSAGES, json!({ "seed": 1 }), false),
        (MESSAGES, json!({ "temperature": 1.5 }), false),
        (MESSAGES, json!({ "messages": [] }), false),
        (MESSAGES, json!({ "model": "" }), false),
        (MESSAGES, json!({ "tools": [{ "name": "a b", "input_schema": {} }] }), false),
        (
            MESSAGES,
            json!({ "tools": [{ "name": "a", "input_schema": {} }], "tool_choice": { "type": "tool", "name": "a" } }),
            true,
        ),
        (MESSAGES, json!({ "tool_choice": { "type": "tool", "name": "a" } }), false),
        (
            MESSAGES,
            json!({ "output_config": { "format": { "type": "json_schema", "schema": { "type": "object" } } } }),
            false,
        ),
        (CHAT, json!({}), true),
        (CHAT, json!({ "system": "x" }), false),
        (CHAT, json!({ "max_tokens": 1, "max_completion_tokens": 1 }), false),
        (CHAT, json!({ "tool_choice": "auto" }), false),
        (CHAT, json!({ "tools": [{ "type": "function", "name": "flat", "parameters": {} }] }), false),
        (CHAT, json!({ "response_format": { "type": "json_schema", "json_schema": { "schema": {} } } }), false),
        (
            CHAT,
            json!({ "response_format": { "type": "json_schema", "json_schema": { "name": "a", "strict": true,
            "schema": { "type": "object", "properties": { "a": {} }, "additionalProperties": false } } } }),
            false,
        ),
        (RESPONSES, json!({}), true),
        (RESPONSES, json!({ "messages": [] }), false),
        (RESPONSES, json!({ "stop": ["x"] }), false),
        (RESPONSES, json!({ "tools": [{ "type": "function", "function": { "name": "nested" } }] }), false),
    ])
    .await;
}

#[tokio::test]
async fn conversations_are_checked() {
    let user = json!({ "role": "user", "content": "hi" });
    let call = json!({ "role": "assistant", "content": [{ "type": "tool_use", "id": "a", "name": "f", "input": {} }] });
    let result =
        |id: &str| json!({ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": id, "content": "x" }] });
    let asks = json!({ "role": "assistant", "content": null, "tool_calls": [{ "id": "a", "type": "function",
        "function": { "name": "f", "arguments": "{}" } }] });
    let answers = |id: &str| json!({ "role": "tool", "tool_call_id": id, "content": "x" });
    let item = json!({ "type": "function_call", "call_id": "a", "name": "f", "arguments": "{}" });
    let output = |id: &str| json!({ "type": "function_call_output", "call_id": id, "output": "x" });
    let thought = |signature: &str| {
        json!({ "role": "assistant", "content": [
        { "type": "thinking", "thinking": "hm", "signature": signature }, { "type": "text", "text": "x" }] })
    };
    judged(&[
        (MESSAGES, json!({ "messages": [user, call, result("a")] }), true),
        (MESSAGES, json!({ "messages": [user, call, result("b")] }), false),
        (MESSAGES, json!({ "messages": [user, call, user] }), false),
        (MESSAGES, json!({ "messages": [user, call, result("a"), call, result("a")] }), false),
        (MESSAGES, json!({ "messages": [call, result("a")] }), false),
        (MESSAGES, json!({ "messages": [user, { "role": "assistant", "content": "pre" }] }), false),
        (MESSAGES, json!({ "messages": [{ "role": "user", "content": "" }] }), false),
        (MESSAGES, json!({ "messages": [user, thought("forged"), user] }), false),
        (CHAT, json!({ "messages": [user, asks, answers("a")] }), true),
        (CHAT, json!({ "messages": [user, asks, answers("b")] }), false),
        (CHAT, json!({ "messages": [user, asks, user] }), false),
        (CHAT, json!({ "messages": [user, asks] }), false),
        (CHAT, json!({ "messages": [user, answers("a")] }), false),
        (CHAT, json!({ "messages": [user, { "role": "assistant", "content": null }] }), false),
        (RESPONSES, json!({ "input": [user, item, output("a")] }), true),
        (RESPONSES, json!({ "input": [user, item, output("b")] }), false),
        (RESPONSES, json!({ "input": [user, item] }), false),
        (
            RESPONSES,
            json!({ "input": [{ "role": "user", "content": [{ "type": "output_text", "text": "x" }] }] }),
            false,
        ),
    ])
    .await;
}

#[tokio::test]
async fn turns_are_played_once_and_requests_are_recorded() {
    let turns = json!([{ "expect": { "lastText": "two" }, "reply": { "text": "2" } }, { "reply": { "text": "1" } }]);
    let fake = Fake::start(json!({ "turns": turns })).await.unwrap();
    let ask = |text: &str| with(CHAT, &json!({ "messages": [{ "role": "user", "content": text }] }));
    for (text, expected) in [("one", "\"content\":\"1\""), ("two", "\"content\":\"2\"")] {
        let (status, stream) = send(&fake, CHAT, Some(&ask(text))).await;
        assert!(status == 200 && stream.contains(expected), "{stream}");
        assert!(stream.ends_with("data: [DONE]\n\n"));
    }
    assert_eq!(send(&fake, CHAT, Some(&ask("three"))).await.0, 500);
    assert_eq!(fake.failures().len(), 1);
    let (_, shown) = send(&fake, "/__fake/requests", None).await;
    assert!(!shown.contains("test-key"));
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["billing"], json!({ "turns": 2, "input": 20, "output": 10 }));
    assert_eq!(shown["requests"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn the_events_of_responses_are_numbered_without_a_gap() {
    let reply = json!({ "thinking": "t", "text": "text", "toolCalls": [{ "name": "f" }] });
    let fake = Fake::start(json!({ "turns": [{ "reply": reply }] })).await.unwrap();
    let (_, stream) = send(&fake, RESPONSES, Some(&with(RESPONSES, &json!({})))).await;
    let data = stream.lines().filter_map(|line| line.strip_prefix("data: "));
    let numbers: Vec<u64> =
        data.map(|data| serde_json::from_str::<Value>(data).unwrap()["sequence_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
}
