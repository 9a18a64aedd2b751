//! The provider `simulated`, without a network.

use flowcell_services::model::{Entry, Providers, Wait};
use serde_json::{Value, json};

use crate::models::kit::{Kit, call};

fn scripted(script: Value) -> Kit {
    Kit::configured(&json!({ "default": "simulated", "profiles": { "simulated": { "script": script } } }))
}

#[tokio::test]
async fn without_a_script_every_prompt_is_answered_the_same_way() {
    let kit = scripted(json!([]));
    for _ in 0..2 {
        let reply = kit.ask("what is up?").await.unwrap();
        assert_eq!(reply["content"], json!([{ "type": "text", "text": "simulated reply to: what is up?" }]));
        assert_eq!(
            (&reply["stop"], &reply["model"], &reply["usage"]["estimated"]),
            (&json!("end"), &json!("simulated"), &json!(true))
        );
    }
    assert_eq!(kit.text_of_events("agent:text"), "simulated reply to: what is up?".repeat(2));
    let schema =
        json!({ "type": "object", "required": ["route"], "properties": { "route": { "enum": ["bug", "ask"] } } });
    let request = json!({ "messages": [{ "role": "user", "content": "x" }], "outputSchema": schema,
        "tools": [{ "name": "get", "inputSchema": {} }], "toolChoice": "any" });
    let reply = kit.generate(&request).await.unwrap();
    assert_eq!(reply["content"], json!([{ "type": "text", "text": "{\"route\":\"bug\"}" }]));
}

/// The arguments of the performed call are invalid on purpose. The turn must come from the admitted call, which was
/// read before.
#[tokio::test]
async fn a_request_is_read_once() {
    let kit = scripted(json!([]));
    let admission = kit.admit(&json!({ "messages": [{ "role": "user", "content": "hi" }] })).unwrap();
    let reply = kit.perform(call(&json!({ "messages": 1 })), admission).await.unwrap();
    assert_eq!(reply["content"], json!([{ "type": "text", "text": "simulated reply to: hi" }]));
}

#[tokio::test]
async fn entries_that_match_come_first_and_follow_the_conversation() {
    let kit = scripted(json!([
        { "text": "first" },
        { "match": "weather", "toolCalls": [{ "name": "get", "input": { "city": "Graz" } }] },
        { "match": "weather", "text": "sunny" },
        { "json": { "n": 1 }, "thinking": "hm" },
    ]));
    let user = |text: &str| json!({ "role": "user", "content": text });
    let assistant = json!({ "role": "assistant", "content": "x" });
    let call =
        json!({ "role": "assistant", "content": [{ "type": "tool_use", "id": "c", "name": "get", "input": {} }] });
    let result = json!({ "role": "user", "content": [{ "type": "tool_result", "toolUseId": "c", "content": "21" }] });
    let get = json!([{ "type": "tool_use", "id": "call_k3yabc_0", "name": "get", "input": { "city": "Graz" } }]);
    let text = |text: &str| json!([{ "type": "text", "text": text }]);
    let table = [
        (json!([user("hello")]), text("first")),
        (json!([user("the weather?")]), get),
        (json!([user("the weather?"), call, result]), text("sunny")),
        (json!([user("the weather?"), call, result, call, result]), text("simulated reply to: the weather?")),
        (
            json!([user("a"), assistant, user("b")]),
            json!([
            { "type": "raw", "provider": "simulated", "value": { "type": "thinking", "thinking": "hm" } },
            { "type": "text", "text": "{\"n\":1}" }]),
        ),
        (json!([user("a"), assistant, user("b"), assistant, user("c")]), text("simulated reply to: c")),
    ];
    for (messages, expected) in table {
        let reply = kit.generate(&json!({ "messages": messages })).await.unwrap();
        let content: Vec<Value> = reply["content"]
            .as_array()
            .unwrap()
            .iter()
            .map(|block| {
                let mut block = block.clone();
                if block["type"] == "tool_use" {
                    block["id"] = json!("call_k3yabc_0");
                }
                block
            })
            .collect();
        assert_eq!(json!(content), expected, "{messages}");
    }
}

#[tokio::test]
async fn faults_delays_and_pieces_are_simulated() {
    let kit =
        scripted(json!([{ "error": { "code": "model_overloaded", "times": 2, "retryAfterMs": 5 }, "text": "abcdef",
        "delayMs": 20, "chunk": 2, "chunkDelayMs": 3, "stop": "max_tokens", "usage": { "input": 4, "output": 2 } }]));
    kit.clock.fire(Wait::Coalesce);
    let reply = kit.ask("x").await.unwrap();
    assert_eq!(
        (&reply["stop"], &reply["usage"]["input"], &reply["usage"]["estimated"]),
        (&json!("max_tokens"), &json!(4), &json!(false))
    );
    assert_eq!(kit.clock.slept(Wait::Simulated), [20, 20, 20, 3, 3]);
    assert_eq!(kit.clock.slept(Wait::Backoff), [5, 5]);
    // A piece is reported when its time comes, and not at the end.
    assert_eq!(kit.events("agent:text"), ["ab", "cd", "ef"].map(|delta| json!({ "delta": delta })));
    let kit = scripted(json!([{ "error": { "code": "model_quota", "message": "no money" } }]));
    let failure = kit.ask("x").await.unwrap_err();
    assert_eq!((failure.code.as_str(), failure.retryable), ("model_quota", false));
    assert!(failure.message.contains("no money"));
}

#[tokio::test]
async fn simulation_replaces_every_provider() {
    let script: Vec<Entry> = serde_json::from_value(json!([{ "match": "ping", "text": "pong" }])).unwrap();
    let prices = json!([{ "model": "*", "input": 1_000_000, "output": 0 }]);
    let text = json!({ "profiles": { "anthropic": { "model": "m", "prices": prices } } }).to_string();
    let providers = Providers::parse(&text, std::path::Path::new("")).unwrap();
    let kit = Kit::of(providers.simulated(script).unwrap());
    for (provider, model) in [("anthropic", json!(null)), ("openai", json!("x")), ("ollama", json!("y"))] {
        let request =
            json!({ "provider": provider, "model": model, "messages": [{ "role": "user", "content": "ping" }] });
        let reply = kit.generate(&request).await.unwrap();
        assert_eq!((&reply["content"][0]["text"], &reply["provider"]), (&json!("pong"), &json!(provider)));
        assert_eq!(reply["usage"]["costUsd"], if provider == "anthropic" { json!(1.0) } else { json!(null) });
    }
}

#[test]
fn scripts_are_checked() {
    let table = [
        ("[{ text: a, json: 1 }]", "script[0]: use either `text` or `json`, not both"),
        ("[{}, { chunk: 0 }]", "script[1]: `chunk` must be at least 1"),
        ("[{ error: { code: overloaded } }]", "model_overloaded"),
        ("[{ stop: finished }]", "end, tool_calls"),
        ("[{ txt: a }]", "unknown field `txt`"),
    ];
    for (script, sentence) in table {
        let text = format!("profiles: {{ simulated: {{ script: {script} }} }}");
        let failure = Providers::parse(&text, std::path::Path::new("")).unwrap_err();
        assert!(failure.message.contains(sentence), "{script}: {failure}");
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("script.yaml"), "- text: from a file\n").unwrap();
    let text = "profiles: { simulated: { scriptFile: script.yaml } }";
    assert!(Providers::parse(text, folder.path()).is_ok());
    assert!(Providers::parse(text, std::path::Path::new("/nowhere")).unwrap_err().message.contains("scriptFile"));
}
