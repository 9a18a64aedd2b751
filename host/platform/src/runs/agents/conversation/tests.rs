//! Tests pages of conversations, from the events of an agent run.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use serde_json::json;

use super::*;
use crate::runs::agents::tests::event;

const LAST: EntryWindow = EntryWindow { from: None, before: Some(u64::MAX), limit: 50, preview: None };

/// Reads the conversation of the agent run `a`.
fn read(events: &[(&'static str, Value)], window: EntryWindow) -> Conversation {
    let mut reading = Reading::new("a", window);
    (0..).zip(events).for_each(|(seq, (kind, data))| reading.add(&event(seq, kind, data.clone())));
    reading.end().unwrap()
}

fn own(mut data: Value) -> Value {
    data["agentRunId"] = "a".into();
    data
}

#[test]
fn an_answer_has_its_calls_with_their_decisions_outputs_and_errors() {
    let content = json!([
        { "type": "text", "text": "I look." },
        { "type": "raw" },
        { "type": "tool_use", "id": "u1", "name": "data_set", "input": { "x": 1 } },
        { "type": "tool_use", "id": "u2", "name": "data_get", "input": {} },
        { "type": "tool_use", "id": "u3", "name": "too_many", "input": {} },
    ]);
    let start = |call: u64, interface: &str| {
        ("call:start", json!({ "call": call, "interface": interface, "key": format!("k{call}") }))
    };
    let tool = |kind, call: u64, more: Value| {
        let mut data =
            own(json!({ "call": call, "tool": format!("data.{call}"), "toolUseId": format!("u{}", call - 2) }));
        data.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        (kind, data)
    };
    let events = [
        start(2, "model"),
        ("agent:start", own(json!({}))),
        ("agent:inbox", own(json!({ "state": "accepted", "messageId": "m", "content": { "content": "Begin" } }))),
        ("agent:message", json!({ "agentRunId": "other", "content": "not this one" })),
        start(2, "model"),
        ("agent:message", own(json!({ "call": 2, "content": content, "model": "one", "stop": "tool_calls" }))),
        ("agent:usage", own(json!({ "usage": { "input": 5 } }))),
        start(3, "tools"),
        tool("agent:tool:start", 3, json!({})),
        tool("agent:tool:permission", 3, json!({ "address": "bot#3" })),
        start(4, "tools"),
        tool("agent:tool:start", 4, json!({})),
        ("agent:tool:decision", json!({ "call": 3, "decision": "allow", "expired": false })),
        ("agent:tool:decision", json!({ "call": 3, "decision": "deny", "nodeId": "other" })),
        tool("agent:tool:result", 3, json!({ "summary": "{}" })),
        tool("agent:tool:error", 4, json!({ "error": { "code": "bad" } })),
        ("agent:inbox", own(json!({ "state": "applied", "messageId": "m" }))),
        ("agent:error", own(json!({ "error": { "code": "timeout" } }))),
        ("agent:tool:decision", json!({ "call": 3, "decision": "deny", "expired": true })),
    ];
    let told = serde_json::to_value(read(&events, LAST)).unwrap();
    let tools = json!([
        { "call": 3, "tool": "data.3", "status": "succeeded", "input": "{\"x\":1}", "output": "{}", "gate": "bot#3",
            "decision": "allow", "tookMs": 2 },
        { "call": 4, "tool": "data.4", "status": "failed", "input": "{}", "error": { "code": "bad" }, "tookMs": 4 },
        { "tool": "too_many", "status": "pending", "input": "{}" },
    ]);
    let mut usage = told["entries"][1]["usage"].clone();
    assert_eq!(usage["input"].take(), 5);
    assert_eq!(
        told["entries"][0],
        json!({ "number": 0, "kind": "message", "seq": 2, "at": 1_002, "text": "Begin",
        "messageId": "m", "state": "applied" })
    );
    assert_eq!(told["entries"][1]["tools"], tools);
    let answer = &told["entries"][1];
    assert_eq!(
        (&answer["text"], &answer["others"], &answer["tookMs"]),
        (&json!("I look."), &json!(["raw"]), &json!(1))
    );
    assert_eq!((&answer["model"], &answer["stop"]), (&json!("one"), &json!("tool_calls")));
    assert_eq!((&told["agent"]["status"], &told["agent"]["entries"]), (&json!("failed"), &json!(2)));
    assert_eq!((told.get("previous"), told.get("next")), (None, None));
    let asked = serde_json::to_value(read(&events[..10], LAST)).unwrap();
    assert_eq!(asked["entries"][1]["tools"][0]["status"], "asking");
}

#[test]
fn pages_have_all_entries_without_gaps_in_both_directions() {
    let answers = (0..10).map(|at| ("agent:message", own(json!({ "call": at, "content": format!("text {at}") }))));
    let events: Vec<_> = [("agent:start", own(json!({})))].into_iter().chain(answers).collect();
    let numbers = |page: &Conversation| page.entries.iter().map(|entry| entry.number).collect::<Vec<_>>();
    let (mut from, mut forward) = (Some(0), Vec::new());
    while from.is_some() {
        let page = read(&events, EntryWindow { from, before: None, limit: 3, preview: None });
        forward.extend(numbers(&page));
        from = page.next;
    }
    let (mut before, mut backward) = (Some(u64::MAX), Vec::new());
    while before.is_some() {
        let page = read(&events, EntryWindow { before, limit: 3, ..LAST });
        backward.splice(0..0, numbers(&page));
        before = page.previous;
    }
    let all: Vec<_> = (0..10).collect();
    assert_eq!((&forward, &backward), (&all, &all));
    assert_eq!(numbers(&read(&events, EntryWindow { from: Some(4), before: Some(6), ..LAST })), [4, 5]);
    assert_eq!(numbers(&read(&events, EntryWindow { from: Some(99), ..LAST })), [0; 0]);
}

#[test]
fn large_texts_are_cut_at_characters_and_pages_are_bounded() {
    let large = "ä".repeat(1 << 20);
    let message =
        |at: u64| ("agent:message", own(json!({ "call": at, "content": [{ "type": "text", "text": large }] })));
    let events: Vec<_> = [("agent:start", own(json!({})))].into_iter().chain((0..12).map(message)).collect();
    let page = read(&events, LAST);
    let text = serde_json::to_string(&page).unwrap();
    assert!(text.len() as u64 <= PAGE_BYTES + PAGE_BYTES / 100, "{}", text.len());
    assert_eq!((page.entries.len(), page.previous, page.next), (7, Some(5), None));
    let first = read(&events, EntryWindow { from: Some(0), before: None, ..LAST });
    assert_eq!((first.entries.len(), first.previous, first.next), (7, None, Some(7)));
    let cut = read(&events, EntryWindow { preview: Some(3), ..LAST });
    assert_eq!((cut.entries[0].text.as_str(), cut.entries[0].text_bytes), ("ä", Some(2 << 20)));
    assert_eq!(cut.entries.len(), 12);
}

#[test]
fn the_text_of_a_message_is_what_the_agent_reads() {
    let table = [
        (json!("hello"), "hello"),
        (json!({ "content": "hello" }), "hello"),
        (
            json!({ "message": { "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }] } }),
            "a\n\nb",
        ),
        (json!({ "x": 1 }), r#"{"x":1}"#),
        (json!(null), "null"),
    ];
    for (message, text) in table {
        assert_eq!(read_message(&Json::from(message)).0, text);
    }
}
