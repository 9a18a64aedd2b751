//! The same conversations in every dialect, with a fake provider that checks each request strictly.

use serde_json::{Value, json};

use crate::models::kit::{DIALECTS, Kit, playing};

fn tools() -> Value {
    json!([{ "name": "get", "description": "Gets.", "inputSchema": { "type": "object" } },
        { "name": "put", "inputSchema": { "type": "object" } }])
}

#[tokio::test]
async fn a_text_is_the_same_reply_in_every_dialect() {
    for dialect in DIALECTS {
        let usage = json!({ "fresh": 90, "output": 7 });
        let fake = playing(json!([{ "reply": { "text": "grüß dich 🦀" }, "usage": usage }])).await;
        let kit = Kit::with_fake(&fake, dialect, json!({}));
        let reply = kit.ask("hello").await.unwrap();
        assert_eq!(reply["content"][0]["text"], "grüß dich 🦀", "{dialect}");
        assert_eq!(
            (&reply["stop"], &reply["provider"], &reply["model"]),
            (&json!("end"), &json!(dialect), &json!("fake-1"))
        );
        assert_eq!((&reply["usage"]["input"], &reply["usage"]["output"]), (&json!(90), &json!(7)));
        assert_eq!((&reply["usage"]["estimated"], &reply["requestId"]), (&json!(false), &json!("req_fake")));
        assert_eq!(kit.text_of_events("agent:text"), "grüß dich 🦀");
        assert_eq!((fake.failures(), fake.billing().turns), (vec![], 1));
    }
}

#[tokio::test]
async fn thoughts_and_tool_calls_are_sent_back_unchanged() {
    for dialect in DIALECTS {
        let calls = json!([{ "name": "get", "arguments": { "k": [1, "ü"] } }, { "name": "put" }]);
        let first = json!({ "reply": { "thinking": "let me see", "text": "I look.", "toolCalls": calls } });
        let fake = playing(json!([first, { "expect": { "lastText": "go" }, "reply": { "text": "done" } }])).await;
        let kit = Kit::with_fake(&fake, dialect, json!({}));
        let mut messages = vec![json!({ "role": "user", "content": "go" })];
        let reply = kit.generate(&json!({ "messages": messages, "tools": tools() })).await.unwrap();
        assert_eq!(reply["stop"], "tool_calls", "{dialect}");
        let content = reply["content"].as_array().unwrap().clone();
        let types: Vec<&str> = content.iter().map(|block| block["type"].as_str().unwrap()).collect();
        assert_eq!(types, ["raw", "text", "tool_use", "tool_use"], "{dialect}");
        assert_eq!((&content[2]["input"], &content[3]["input"]), (&json!({ "k": [1, "ü"] }), &json!({})));
        assert_eq!(kit.text_of_events("agent:thinking"), "let me see");
        messages.push(json!({ "role": "assistant", "content": content }));
        messages.push(json!({ "role": "user", "content": [
            { "type": "text", "text": "go" },
            { "type": "tool_result", "toolUseId": content[3]["id"], "content": "no", "isError": true },
            { "type": "tool_result", "toolUseId": content[2]["id"], "content": [{ "type": "text", "text": "42" }] },
        ]}));
        let reply = kit.generate(&json!({ "messages": messages, "tools": tools() })).await.unwrap();
        assert_eq!(reply["content"][0]["text"], "done", "{dialect}");
        assert_eq!(fake.failures(), Vec::<String>::new());
        // The thoughts of the other provider are left out, and the conversation still works.
        let other = if dialect == "chat" { "messages" } else { "chat" };
        let fake = playing(json!([{ "reply": { "text": "taken over" } }])).await;
        let kit = Kit::with_fake(&fake, other, json!({}));
        let reply = kit.generate(&json!({ "messages": messages, "tools": tools() })).await.unwrap();
        assert_eq!(reply["content"][0]["text"], "taken over", "{dialect} to {other}");
        assert!(!fake.requests()[0].body.to_string().contains("let me see"));
    }
}

#[tokio::test]
async fn w11_a_tool_call_without_a_name_gets_one() {
    for dialect in DIALECTS {
        let first = json!({ "reply": { "toolCalls": [{ "name": "", "arguments": { "a": 1 } }, { "name": "get" }] } });
        let fake = playing(json!([first, { "reply": { "text": "done" } }])).await;
        let kit = Kit::with_fake(&fake, dialect, json!({}));
        let asked = json!({ "role": "user", "content": "go" });
        let reply = kit.generate(&json!({ "messages": [asked], "tools": tools() })).await.unwrap();
        let calls: Vec<_> = reply["content"].as_array().unwrap().clone();
        let names: Vec<_> = calls.iter().map(|call| call["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["unnamed_tool", "get"], "{dialect}: {reply}");
        assert_eq!((&calls[0]["input"], calls[0].get("raw")), (&json!({ "a": 1 }), None), "{dialect}");
        let results = calls.iter().map(|call| {
            json!({ "type": "tool_result", "toolUseId": call["id"], "content": "there is none", "isError": true })
        });
        let messages = json!([asked, { "role": "assistant", "content": calls },
            { "role": "user", "content": results.collect::<Vec<_>>() }]);
        let reply = kit.generate(&json!({ "messages": messages, "tools": tools() })).await.unwrap();
        assert_eq!(reply["content"][0]["text"], "done", "{dialect}");
        assert_eq!(fake.failures(), Vec::<String>::new(), "{dialect}");
        let sent = fake.requests()[1].body.to_string();
        assert!(sent.contains("unnamed_tool") && !sent.contains(r#""name":"""#), "{dialect}: {sent}");
    }
}

#[tokio::test]
async fn every_setting_is_sent_in_the_form_of_the_dialect() {
    let schema =
        json!({ "type": "object", "properties": { "n": { "type": "integer", "minimum": 1 } }, "required": ["n"] });
    let request = |stop: Value| {
        json!({ "model": "m-2", "system": "Be short.", "messages": [{ "role": "user", "content": [
            { "type": "text", "text": "look" },
            { "type": "image", "mime": "image/png", "fileId": "picture" },
            { "type": "image", "mime": "image/png", "url": "https://example.com/a.png" }] }],
            "tools": tools(), "toolChoice": { "tool": "put" }, "outputSchema": schema, "maxTokens": 99, "temperature": 0.5,
            "topP": 0.9, "stop": stop, "seed": 7, "effort": "low", "params": { "metadata": { "a": "b" } },
            "agentRunId": "a1" })
    };
    let table = [
        (
            "messages",
            json!(["END"]),
            json!({ "model": "m-2", "system": "Be short.", "max_tokens": 99, "temperature": 0.5,
            "top_p": 0.9, "stop_sequences": ["END"], "tool_choice": { "type": "tool", "name": "put" },
            "tools": [{ "name": "get", "description": "Gets." }, { "name": "put", "input_schema": { "type": "object" } }],
            "output_config": { "effort": "low", "format": { "type": "json_schema", "schema": { "additionalProperties": false } } },
            "messages": [{ "role": "user", "content": [{ "text": "look" },
                { "source": { "type": "base64", "media_type": "image/png", "data": "cGl4ZWxz" } },
                { "source": { "type": "url", "url": "https://example.com/a.png" } }] }] }),
        ),
        (
            "chat",
            json!(["END"]),
            json!({ "model": "m-2", "max_completion_tokens": 99, "temperature": 0.5, "seed": 7,
            "top_p": 0.9, "stop": ["END"], "tool_choice": { "type": "function", "function": { "name": "put" } },
            "reasoning_effort": "low", "stream_options": { "include_usage": true },
            "response_format": { "type": "json_schema", "json_schema": { "strict": false, "schema": schema } },
            "messages": [{ "role": "system", "content": "Be short." }, { "role": "user", "content": [{ "text": "look" },
                { "image_url": { "url": "data:image/png;base64,cGl4ZWxz" } },
                { "image_url": { "url": "https://example.com/a.png" } }] }] }),
        ),
        (
            "responses",
            json!([]),
            json!({ "model": "m-2", "instructions": "Be short.", "max_output_tokens": 99,
            "temperature": 0.5, "top_p": 0.9, "tool_choice": { "type": "function", "name": "put" },
            "reasoning": { "effort": "low" }, "text": { "format": { "type": "json_schema", "strict": false, "schema": schema } },
            "store": false, "include": ["reasoning.encrypted_content"],
            "input": [{ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "look" },
                { "type": "input_image", "image_url": "data:image/png;base64,cGl4ZWxz" },
                { "image_url": "https://example.com/a.png" }] }] }),
        ),
    ];
    for (dialect, stop, expected) in table {
        let fake = playing(json!([{ "expect": { "body": expected }, "reply": { "text": "ok" } }])).await;
        let kit = Kit::with_fake(&fake, dialect, json!({ "params": ["meta*"], "headers": { "x-team": "blue" } }));
        let outcome = kit.generate(&request(stop)).await;
        assert!(outcome.is_ok(), "{dialect}: {outcome:?}\nsent {}", fake.requests()[0].body);
        let sent = &fake.requests()[0];
        assert_eq!(sent.body["metadata"], json!({ "a": "b" }));
        assert_eq!((sent.header("x-team"), sent.header("accept-encoding")), (Some("blue"), Some("identity")));
    }
}

#[tokio::test]
async fn members_of_a_profile_change_the_request() {
    let fake = playing(json!([{ "reply": { "text": "a" } }, { "reply": { "text": "b" } }])).await;
    let kit = Kit::with_fake(
        &fake,
        "chat",
        json!({ "legacyMaxTokens": true, "maxTokens": 50, "reportsUsage": false,
        "apiVersion": "2026-01 x" }),
    );
    kit.ask("hi").await.unwrap();
    let sent = &fake.requests()[0];
    assert_eq!((&sent.body["max_tokens"], sent.body.get("stream_options")), (&json!(50), None));
    assert_eq!(sent.path, "/v1/chat/completions?api-version=2026-01+x");
    // The server expects another header, so it answers 401.
    let kit = Kit::with_fake(&fake, "chat", json!({ "auth": { "header": "api-key" } }));
    assert_eq!(kit.ask("hi").await.unwrap_err().code, "model_auth");
    assert_eq!(fake.requests()[1].header("api-key"), Some("[redacted]"));
}

#[tokio::test]
async fn stop_reasons_have_the_same_names_in_all_dialects() {
    let table = [
        ("messages", json!({ "text": "x", "stop": "max_tokens" }), "max_tokens", "max_tokens"),
        ("messages", json!({ "text": "x", "stop": "stop_sequence" }), "stop_sequence", "stop_sequence"),
        ("messages", json!({ "text": "x", "stop": "pause_turn" }), "paused", "pause_turn"),
        ("messages", json!({ "refusal": "no" }), "refusal", "refusal"),
        (
            "messages",
            json!({ "text": "x", "stop": "model_context_window_exceeded" }),
            "context_exceeded",
            "model_context_window_exceeded",
        ),
        ("messages", json!({ "text": "x", "stop": "something_new" }), "end", "something_new"),
        ("chat", json!({ "text": "x", "stop": "length" }), "max_tokens", "length"),
        ("chat", json!({ "text": "x", "stop": "content_filter" }), "content_filter", "content_filter"),
        ("chat", json!({ "refusal": "no" }), "refusal", "stop"),
        ("chat", json!({ "toolCalls": [{ "name": "get" }], "stop": "stop" }), "tool_calls", "stop"),
        ("responses", json!({ "text": "x", "stop": "max_output_tokens" }), "max_tokens", "max_output_tokens"),
        ("responses", json!({ "text": "x", "stop": "content_filter" }), "content_filter", "content_filter"),
        ("responses", json!({ "text": "x", "stop": "steered" }), "paused", "steered"),
        ("responses", json!({ "refusal": "no" }), "refusal", "completed"),
    ];
    for (dialect, reply, stop, raw) in table {
        let fake = playing(json!([{ "reply": reply }])).await;
        let answer = Kit::with_fake(&fake, dialect, json!({})).ask("hi").await.unwrap();
        assert_eq!((&answer["stop"], &answer["rawStop"]), (&json!(stop), &json!(raw)), "{dialect} {reply}");
    }
}

#[tokio::test]
async fn ids_of_calls_are_unique_and_arguments_may_be_malformed() {
    for dialect in DIALECTS {
        let calls = json!([{ "id": "same", "name": "get", "arguments": { "a": 1 } }, { "id": "same", "name": "get", "arguments": { "a": 2 } },
            { "id": "", "name": "get", "rawArguments": "{not json" }, { "id": "", "name": "get", "rawArguments": "[1]" }]);
        let fake = playing(json!([{ "reply": { "toolCalls": calls } }, { "reply": { "text": "fine" } }])).await;
        let kit = Kit::with_fake(&fake, dialect, json!({}));
        let reply = kit
            .generate(&json!({ "messages": [{ "role": "user", "content": "go" }], "tools": tools() }))
            .await
            .unwrap();
        let content = reply["content"].as_array().unwrap();
        let ids: std::collections::HashSet<_> = content.iter().map(|call| call["id"].as_str().unwrap()).collect();
        assert_eq!(ids.len(), 4, "{dialect} {content:?}");
        assert!(ids.contains("same") && ids.iter().all(|id| !id.is_empty()));
        let inputs: Vec<&Value> = content.iter().map(|call| &call["input"]).collect();
        assert_eq!(inputs, [&json!({ "a": 1 }), &json!({ "a": 2 }), &json!("{not json"), &json!([1])], "{dialect}");
        let results: Vec<Value> = content
            .iter()
            .map(|call| json!({ "type": "tool_result", "toolUseId": call["id"], "content": "x" }))
            .collect();
        let messages = json!([{ "role": "user", "content": "go" }, { "role": "assistant", "content": content },
            { "role": "user", "content": results }]);
        let reply = kit.generate(&json!({ "messages": messages, "tools": tools() })).await;
        assert_eq!(reply.unwrap()["content"][0]["text"], "fine", "{dialect}");
    }
}
