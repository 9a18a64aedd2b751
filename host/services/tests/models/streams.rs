//! Streams that arrive in odd pieces, break off, or report errors.

use std::sync::Arc;

use flowcell_services::model::Wait;
use serde_json::{Value, json};

use crate::models::kit::{DIALECTS, Kit, detail, playing};

/// Returns a reply with every kind of content.
fn rich() -> Value {
    json!({ "thinking": "hmm ü", "text": "grüße 🦀 und\nmehr", "toolCalls": [{ "name": "get", "arguments": { "k": "ß" } }] })
}

#[tokio::test]
async fn pieces_and_line_ends_make_no_difference() {
    for dialect in DIALECTS {
        let mut replies = Vec::new();
        for (chunking, line_end) in
            [(Value::Null, "\n"), (json!(1), "\n"), (json!(1), "\r\n"), (json!(7), "\r"), (json!(100_000), "\r\n")]
        {
            let turn = json!({ "reply": rich(), "chunking": chunking, "lineEnd": line_end });
            let fake = playing(json!([turn])).await;
            let kit = Kit::with_fake(&fake, dialect, json!({}));
            let reply = kit.ask("hi").await.unwrap();
            assert_eq!(
                kit.text_of_events("agent:text") + &kit.text_of_events("agent:thinking"),
                "grüße 🦀 und\nmehrhmm ü",
                "{dialect}"
            );
            replies.push(reply);
        }
        assert!(replies.windows(2).all(|pair| pair[0] == pair[1]), "{dialect} {replies:?}");
    }
}

#[tokio::test]
async fn unknown_events_are_skipped() {
    for dialect in DIALECTS {
        let fake = playing(json!([{ "reply": rich(), "fault": "unknownEvents" }])).await;
        let reply = Kit::with_fake(&fake, dialect, json!({})).ask("hi").await.unwrap();
        assert_eq!(reply["stop"], "tool_calls", "{dialect}");
    }
}

#[tokio::test]
async fn w11_arguments_of_a_tool_are_bounded_like_a_text() {
    const MIB: usize = 1024 * 1024;
    for dialect in DIALECTS {
        for (size, is_taken) in [(2 * MIB, true), (17 * MIB, false)] {
            let call = json!({ "name": "get", "arguments": { "k": "x".repeat(size) } });
            let fake = playing(json!([{ "reply": { "toolCalls": [call] } }])).await;
            let replied = Kit::with_fake(&fake, dialect, json!({ "maxRetries": 0 })).ask("hi").await;
            match replied {
                Ok(reply) => {
                    assert!(is_taken, "{dialect} took {size} bytes");
                    assert_eq!(reply["content"][0]["input"]["k"].as_str().unwrap().len(), size, "{dialect}");
                }
                Err(failure) => {
                    assert!(
                        !is_taken && failure.message.contains("the reply is larger than 16777216 bytes"),
                        "{failure}"
                    );
                    assert_eq!(failure.code, "model_bad_response", "{dialect}");
                }
            }
        }
    }
}

#[tokio::test]
async fn r20_a_stream_that_ends_early_is_never_a_reply() {
    for dialect in DIALECTS {
        let whole = playing(json!([{ "reply": rich() }])).await;
        Kit::with_fake(&whole, dialect, json!({})).ask("hi").await.unwrap();
        for events in 0..40 {
            let turn = json!({ "reply": rich(), "fault": { "endAfter": events } });
            let fake = playing(json!([turn, { "reply": { "text": "again" } }])).await;
            let kit = Kit::with_fake(&fake, dialect, json!({}));
            let reply = kit.ask("hi").await.unwrap();
            if fake.requests().len() == 1 {
                // The reply was complete. A Chat reply counts as complete once it has a stop reason.
                assert_eq!(reply["stop"], "tool_calls", "{dialect} after {events}");
                assert!(events > 10);
                continue;
            }
            assert_eq!(reply["content"][0]["text"], "again", "{dialect} after {events}");
            assert_eq!(kit.events("agent:retry")[0]["reason"], "model_stream_truncated");
            assert_eq!(reply["content"].as_array().unwrap().len(), 1, "nothing of the broken attempt is left");
        }
    }
}

#[tokio::test]
async fn r20_a_connection_that_breaks_is_a_broken_stream() {
    for dialect in DIALECTS {
        for bytes in [0, 1, 100, 700] {
            let fake = playing(json!([{ "reply": rich(), "fault": { "cutAfter": bytes }, "repeat": true }])).await;
            let kit = Kit::with_fake(&fake, dialect, json!({}));
            let failure = kit.ask("hi").await.unwrap_err();
            assert_eq!(failure.code, "model_stream_truncated", "{dialect} {bytes} {failure}");
            assert!(failure.retryable && fake.requests().len() == 3);
            assert_eq!(fake.billing().turns, 3, "as often as it was tried, and no more");
        }
    }
}

#[tokio::test]
async fn errors_after_the_status_have_the_same_names() {
    let table = [
        ("messages", "overloaded_error", "model_overloaded", 3),
        ("messages", "rate_limit_error", "model_rate_limited", 3),
        ("messages", "api_error", "model_overloaded", 3),
        ("messages", "invalid_request_error", "model_invalid_request", 1),
        ("messages", "billing_error", "model_quota", 1),
        ("chat", "server_error", "model_overloaded", 3),
        ("chat", "insufficient_quota", "model_quota", 1),
        ("chat", "something_new", "model_overloaded", 3),
        ("responses", "rate_limit_exceeded", "model_rate_limited", 3),
        ("responses", "invalid_prompt", "model_invalid_request", 1),
    ];
    for (dialect, kind, code, attempts) in table {
        for events in [0, 3] {
            let turn = json!({ "reply": rich(), "fault": { "errorAfter": { "events": events, "type": kind } }, "repeat": true });
            let fake = playing(json!([turn])).await;
            let failure = Kit::with_fake(&fake, dialect, json!({})).ask("hi").await.unwrap_err();
            assert_eq!((failure.code.as_str(), fake.requests().len()), (code, attempts), "{dialect} {kind} {failure}");
            assert!(failure.message.contains("in the middle"), "{failure}");
            assert_eq!(detail(&failure, "providerCode"), kind);
        }
    }
    let fake = playing(json!([{ "reply": { "text": "x", "stop": "failed" }, "repeat": true }])).await;
    let failure = Kit::with_fake(&fake, "responses", json!({})).ask("hi").await.unwrap_err();
    assert_eq!((failure.code.as_str(), detail(&failure, "providerCode")), ("model_overloaded", json!("server_error")));
}

#[tokio::test]
async fn r20_a_silent_stream_times_out() {
    for dialect in DIALECTS {
        // The text is not at its end after eight events of any dialect.
        let reply = json!({ "text": "some text that goes on and on and on" });
        let fake = playing(json!([{ "reply": reply, "fault": { "stallAfter": 8 }, "repeat": true }])).await;
        let mut kit = Kit::with_fake(&fake, dialect, json!({ "idleMs": 1234 }));
        let clock = kit.clock.clone();
        kit.on_tell = Arc::new(move |kind| {
            if kind == "agent:text" {
                clock.fire(Wait::Idle);
            }
        });
        let failure = kit.ask("hi").await.unwrap_err();
        assert_eq!((failure.code.as_str(), failure.retryable), ("model_timeout", true), "{dialect}");
        assert!(failure.message.contains("1234 ms"), "{failure}");
        assert_eq!(fake.requests().len(), 3);
        assert!(kit.clock.slept(Wait::Idle).iter().all(|time| *time == 1234));
    }
}

#[tokio::test]
async fn a_turn_ends_at_its_time_limit() {
    for (turn, once) in [(json!({ "fault": "noHead" }), false), (json!({ "fault": "noHead" }), true)] {
        let fake = playing(json!([turn])).await;
        let kit = Kit::with_fake(&fake, "chat", json!({ "timeoutMs": 5000 }));
        let kit = if once { kit.once() } else { kit };
        let fired = async {
            while fake.requests().is_empty() {
                tokio::task::yield_now().await;
            }
            kit.clock.fire(Wait::Total);
        };
        let (ended, ()) = futures_util::future::join(kit.ask("hi"), fired).await;
        let failure = ended.unwrap_err();
        assert_eq!(failure.code, if once { "ambiguous" } else { "model_timeout" });
        assert!(failure.message.contains("5000 ms"), "{failure}");
        assert_eq!(kit.clock.slept(Wait::Total), [5000]);
        // The provider may have billed the attempt, so it is counted.
        assert_eq!(detail(&failure, "usage")["estimated"], true);
        assert!(detail(&failure, "usage")["input"].as_u64().unwrap() > 0);
    }
}

#[tokio::test]
async fn r20_malformed_streams_are_bad_responses() {
    let table = [
        ("messages", "data: {\n\n"),
        ("messages", "data: {\"type\":\"content_block_delta\",\"index\":3,\"delta\":{}}\n\n"),
        ("messages", "data: {\"type\":\"content_block_start\",\"index\":0}\n\n"),
        ("chat", "data: nonsense\n\n"),
        ("responses", "data: {\"type\":\"response.completed\"}\n\n"),
    ];
    for (dialect, raw) in table {
        let fake = playing(json!([{ "reply": { "rawSse": raw }, "repeat": true }])).await;
        let failure = Kit::with_fake(&fake, dialect, json!({})).ask("hi").await.unwrap_err();
        assert_eq!((failure.code.as_str(), failure.retryable), ("model_bad_response", false), "{raw} {failure}");
    }
}

#[tokio::test]
async fn differences_between_chat_servers_are_tolerated() {
    let chunk = |delta: &str, finish: &str| {
        format!("data: {{\"choices\":[{{\"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\n")
    };
    let table = [
        ("no usage, no id, no [DONE]", chunk(r#"{"content":"a"}"#, "\"stop\""), json!([{ "type": "text", "text": "a" }])),
        ("null content, comments", format!(": PROCESSING\n\n{}{}data: [DONE]\n\n", chunk(r#"{"content":null}"#, "null"), chunk(r#"{"content":"a"}"#, "null")),
            json!([{ "type": "text", "text": "a" }])),
        ("a whole call in one event", format!("{}data: [DONE]\n\n", chunk(r#"{"tool_calls":[{"id":"x","function":{"name":"get","arguments":"{}"}}]}"#, "\"stop\"")),
            json!([{ "type": "tool_use", "id": "x", "name": "get", "input": {} }])),
        ("no ids at all", format!("{}data: [DONE]\n\n", chunk(r#"{"tool_calls":[{"function":{"name":"get","arguments":""}}]}"#, "\"tool_calls\"")),
            json!([{ "type": "tool_use", "id": "call_k3yabc_0", "name": "get", "input": {} }])),
        ("thoughts by another name", format!("{}data: [DONE]\n\n", chunk(r#"{"reasoning":"t","content":"a"}"#, "\"stop\"")),
            json!([{ "type": "raw", "provider": "chat", "value": { "reasoning": "t" } }, { "type": "text", "text": "a" }])),
        ("several choices", "data: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\"b\"}},{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\n".into(),
            json!([{ "type": "text", "text": "a" }])),
    ];
    for (what, raw, content) in table {
        let fake = playing(json!([{ "reply": { "rawSse": raw } }])).await;
        let reply = Kit::with_fake(&fake, "chat", json!({})).ask("hi").await.unwrap();
        assert_eq!((&reply["content"], &reply["usage"]["estimated"]), (&content, &json!(true)), "{what}");
        assert_eq!(reply["stop"], if content[0]["type"] == "tool_use" { "tool_calls" } else { "end" }, "{what}");
    }
}

#[tokio::test]
async fn members_that_a_provider_adds_to_a_block_are_sent_back() {
    let event = |data: Value| format!("event: x\ndata: {data}\n\n");
    let raw = [
        json!({ "type": "message_start", "message": { "id": "m", "model": "fake-1", "usage": { "input_tokens": 1, "output_tokens": 1 } } }),
        json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "redacted_thinking", "data": "xyz" } }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "content_block_start", "index": 1, "content_block": { "type": "text", "text": "" } }),
        json!({ "type": "content_block_delta", "index": 1, "delta": { "type": "text_delta", "text": "cited" } }),
        json!({ "type": "content_block_delta", "index": 1, "delta": { "type": "citations_delta", "citation": { "url": "u" } } }),
        json!({ "type": "content_block_stop", "index": 1 }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": { "output_tokens": 9 } }),
        json!({ "type": "message_stop" }),
    ];
    let raw: String = raw.into_iter().map(event).collect();
    let fake = playing(json!([{ "reply": { "rawSse": raw } }, { "reply": { "text": "ok" } }])).await;
    let kit = Kit::with_fake(&fake, "messages", json!({}));
    let reply = kit.ask("hi").await.unwrap();
    let messages = json!([{ "role": "user", "content": "hi" }, { "role": "assistant", "content": reply["content"] },
        { "role": "user", "content": "more" }]);
    kit.generate(&json!({ "messages": messages })).await.unwrap();
    let sent = &fake.requests()[1].body["messages"][1]["content"];
    assert_eq!(
        sent,
        &json!([{ "type": "redacted_thinking", "data": "xyz" },
        { "type": "text", "text": "cited", "citations": [{ "url": "u" }] }])
    );
}
