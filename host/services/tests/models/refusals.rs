//! Requests that never leave the host, and provider errors with their codes.

use flowcell_contract::{Effect, Json};
use serde_json::json;

use crate::models::kit::{DIALECTS, Kit, detail, playing};

#[tokio::test]
async fn a_request_has_known_members_only() {
    let kit = Kit::configured(&json!({ "default": "simulated" }));
    let user = json!([{ "role": "user", "content": "hi" }]);
    let of = |block: serde_json::Value| json!({ "messages": [{ "role": "user", "content": [block] }] });
    let table = [
        (json!([]), "a request must be an object, not a list"),
        (json!({ "messages": user, "maxTokenz": 1 }), "did you mean `maxTokens`?"),
        (json!({ "messages": user, "zzzzzzzzzz": 1 }), "expected one of `provider`, `model`"),
        (json!({}), "`messages` of a request must be a list with at least one message; it is missing"),
        (json!({ "messages": [{ "role": "system", "content": "x" }] }), "`role` of messages[0]"),
        (
            json!({ "messages": [{ "role": "user", "contents": "x" }] }),
            "messages[0] has the unknown member `contents`; did you mean `content`?",
        ),
        (
            of(json!({ "type": "txet", "text": "x" })),
            "messages[0].content[0] has the unknown type `txet`; did you mean `text`?",
        ),
        (of(json!({ "type": "text", "text": 1 })), "`text` of messages[0].content[0] must be a text; it is a number"),
        (of(json!({ "type": "tool_use", "id": "a", "name": "b" })), "this role cannot have a block of type `tool_use`"),
        (of(json!({ "type": "image", "mime": "image/png" })), "either a `fileId` or a `url`"),
        (of(json!({ "type": "image", "mime": "image/png", "url": "file:///etc/passwd" })), "begins with `https://`"),
        (of(json!({ "type": "image", "mime": "text/html", "fileId": "a" })), "`image/png`"),
        (json!({ "messages": user, "tools": [{ "name": "a b", "inputSchema": {} }] }), "up to 64 letters"),
        (json!({ "messages": user, "tools": [{ "name": "a" }] }), "must be a JSON Schema; it is missing"),
        (
            json!({ "messages": user, "tools": [{ "name": "a", "inputSchema": {} }, { "name": "a", "inputSchema": {} }] }),
            "two tools",
        ),
        (json!({ "messages": user, "toolChoice": "any" }), "the request has no tools"),
        (
            json!({ "messages": user, "tools": [{ "name": "get", "inputSchema": {} }], "toolChoice": { "tool": "gte" } }),
            "did you mean `get`?",
        ),
        (json!({ "messages": user, "temperature": 3 }), "a number from 0 to 2"),
        (json!({ "messages": user, "maxTokens": 0 }), "a whole number of at least 1"),
        (json!({ "messages": user, "stop": [""] }), "non-empty texts"),
        (json!({ "messages": user, "provider": "simulatd" }), "did you mean `simulated`?"),
        (json!({ "messages": user, "provider": "openai" }), "`model` is missing"),
        (json!({ "messages": user, "params": { "top_k": 1 } }), "allows no params"),
        (
            json!({ "messages": user, "provider": "openai-responses", "model": "m", "stop": ["x"] }),
            "do not support `stop`",
        ),
    ];
    for (request, sentence) in table {
        let failure = kit.admit(&request).unwrap_err();
        assert_eq!((failure.code.as_str(), failure.retryable), ("invalid_input", false), "{request}");
        assert!(failure.message.contains(sentence), "{request}: {failure}");
    }
}

#[tokio::test]
async fn a_denial_names_the_grant_to_add() {
    let table = [
        (json!(["simulated/*"]), true),
        (json!("simulated/simulated"), true),
        (json!(["openai/*", "*/sim*"]), true),
        (json!([]), false),
        (json!(["openai/*"]), false),
        (json!(["simulated"]), false),
        (json!([1]), false),
        (json!({}), false),
    ];
    for (patterns, granted) in table {
        let kit = Kit::configured(&json!({ "default": "simulated" })).with_grants(patterns.clone());
        let outcome = kit.ask("hi").await;
        assert_eq!(outcome.is_ok(), granted, "{patterns}");
        if let Err(failure) = outcome {
            assert_eq!(failure.code, "denied");
        }
    }
    let mut kit = Kit::configured(&json!({ "default": "simulated" }));
    kit.caller.grants = std::sync::Arc::default();
    let failure = kit.ask("hi").await.unwrap_err();
    assert!(failure.message.contains("`grants: { model: [\"simulated/simulated\"] }`"), "{failure}");
}

#[tokio::test]
async fn an_admission_describes_the_turn() {
    let mut kit = Kit::configured(&json!({ "default": "simulated" }));
    let request = json!({ "messages": [{ "role": "user", "content": "secret" }], "model": "m",
        "tools": [{ "name": "get", "inputSchema": {} }] });
    let about = json!({ "provider": "simulated", "model": "m", "messages": 1, "tools": 1 });
    for (declared, effect) in
        [(Effect::Inert, Effect::AtLeastOnce), (Effect::AtLeastOnce, Effect::AtLeastOnce), (Effect::Once, Effect::Once)]
    {
        kit.caller.effect = declared;
        let admission = kit.admit(&request).unwrap();
        assert_eq!((admission.effect, admission.about, admission.ask), (effect, Json::from(about.clone()), None));
        let preview = json!({ "messages": [{ "role": "user", "content": "secret" }] });
        assert_eq!(admission.preview, Json::from(preview));
    }
}

#[tokio::test]
async fn a_preview_has_the_messages_since_the_last_reply() {
    let kit = Kit::configured(&json!({ "default": "simulated" }));
    let (user, model) =
        (|text: &str| json!({ "role": "user", "content": text }), json!({ "role": "assistant", "content": "b" }));
    let long = "ü".repeat(5_000);
    let table = [
        (
            json!({ "system": "Be brief.", "messages": [user("a"), model, user("c")] }),
            json!({ "system": "Be brief.", "messages": [user("c")] }),
        ),
        (
            json!({ "messages": [user(&long)] }),
            json!({ "messages": [user(&format!("{}… ⟨cut: 10000 bytes⟩", "ü".repeat(4_000)))] }),
        ),
        (
            json!({ "messages": [{ "role": "user", "content": [{ "type": "text", "text": "a" }] }] }),
            json!({ "messages": [user(r#"[{"type":"text","text":"a"}]"#)] }),
        ),
    ];
    for (request, preview) in table {
        assert_eq!(kit.admit(&request).unwrap().preview, Json::from(preview));
    }
}

#[tokio::test]
async fn provider_errors_have_the_same_codes_in_all_dialects() {
    let status = |status: u16| json!({ "status": { "status": status } });
    let coded = |status: u16, code: &str| json!({ "status": { "status": status, "code": code } });
    let table = [
        ("messages", status(400), "model_invalid_request"),
        ("messages", status(401), "model_auth"),
        ("messages", status(402), "model_quota"),
        ("messages", status(403), "model_permission"),
        ("messages", status(404), "model_not_found"),
        ("messages", status(413), "model_too_large"),
        ("messages", coded(429, "enforced_spend_limit_reached"), "model_quota"),
        ("messages", coded(429, "contract_spend_limit_reached"), "model_quota"),
        ("chat", status(400), "model_invalid_request"),
        ("chat", coded(401, "invalid_api_key"), "model_auth"),
        ("chat", status(403), "model_permission"),
        ("chat", coded(404, "model_not_found"), "model_not_found"),
        ("chat", coded(400, "context_length_exceeded"), "model_context_exceeded"),
        ("chat", coded(429, "insufficient_quota"), "model_quota"),
        ("responses", coded(429, "insufficient_quota"), "model_quota"),
        ("responses", status(413), "model_too_large"),
    ];
    for (dialect, fault, code) in table {
        let fake = playing(json!([{ "fault": fault, "repeat": true }])).await;
        let failure = Kit::with_fake(&fake, dialect, json!({})).ask("hi").await.unwrap_err();
        assert_eq!((failure.code.as_str(), failure.retryable), (code, false), "{dialect} {fault}");
        assert_eq!((fake.requests().len(), fake.billing().turns), (1, 0), "{dialect} {fault}");
        assert_eq!((detail(&failure, "provider"), detail(&failure, "attempts")), (json!(dialect), json!(1)));
        assert_eq!((detail(&failure, "requestId"), detail(&failure, "usage")), (json!("req_fake"), json!(null)));
    }
}

#[tokio::test]
async fn an_answer_that_is_not_a_stream_is_a_bad_response() {
    let table = [
        json!("html"),
        json!({ "gzipBomb": 50_000_000 }),
        json!({ "contentType": "application/json" }),
        json!({ "redirect": "http://169.254.169.254/latest/meta-data" }),
        json!({ "hugeLine": 10 * 1024 * 1024 }),
        json!({ "status": { "status": 204 } }),
    ];
    for dialect in DIALECTS {
        for fault in &table {
            let fake = playing(json!([{ "reply": { "text": "x" }, "fault": fault, "repeat": true }])).await;
            let failure = Kit::with_fake(&fake, dialect, json!({})).ask("hi").await.unwrap_err();
            assert_eq!(
                (failure.code.as_str(), failure.retryable),
                ("model_bad_response", false),
                "{dialect} {fault} {failure}"
            );
            assert_eq!(fake.requests().len(), 1, "{dialect} {fault}");
            assert!(!failure.message.contains("169.254"), "{failure}");
        }
    }
}

#[tokio::test]
async fn private_addresses_need_permission_of_the_operator() {
    let fake = playing(json!([{ "reply": { "text": "x" } }])).await;
    let kit = Kit::with_fake(&fake, "chat", json!({ "allowPrivate": [] }));
    let failure = kit.ask("hi").await.unwrap_err();
    assert_eq!((failure.code.as_str(), fake.requests().len()), ("denied", 0));
    // Each provider may connect to different private addresses.
    let profile = |allowed: serde_json::Value| json!({ "dialect": "chat", "baseUrl": fake.url("/v1"), "auth": "none", "model": "m", "allowPrivate": allowed });
    let kit = Kit::configured(
        &json!({ "default": "b", "profiles": { "a": profile(json!(["127.0.0.1"])), "b": profile(json!([])) } }),
    );
    assert_eq!(kit.ask("hi").await.unwrap_err().code, "denied");
}
