//! The ends of agents: limits, refusals, and models that fail.

use flowcell_sdk::{
    Failure,
    testing::{Script, reply},
};
use serde_json::{Value, json};

use super::*;

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

#[test]
fn the_stop_reason_of_the_model_is_reported() {
    let rows = [
        ("end", "end"),
        ("stop_sequence", "stop_sequence"),
        ("max_tokens", "max_tokens"),
        ("refusal", "refusal"),
        ("content_filter", "content_filter"),
        ("context_exceeded", "context_exceeded"),
        ("tool_calls", "end"),
        ("something_new", "end"),
    ];
    for (stop, reason) in rows {
        let played = play(|| Script::new().reply(reply(&[text("Well")], stop)), &json!({}));
        assert_eq!((&output(&played)["result"], &output(&played)["stopReason"]), (&json!("Well"), &json!(reason)));
    }
    // A refusal does not have to fit a schema.
    let schema = json!({ "output": { "schema": { "type": "object" } }, "inbox": {} });
    let refused = play(|| Script::new().reply(reply(&[text("No")], "refusal")), &schema);
    assert_eq!(output(&refused)["stopReason"], "refusal");
    assert_eq!(output(&refused).get("structuredOutput"), None);
}

#[test]
fn a_paused_reply_is_continued() {
    let paused = || reply(&[text("Wait")], "paused");
    let played = play(|| Script::new().reply(paused()).reply(paused()).says("Done"), &json!({}));
    assert_eq!(output(&played)["result"], "Done");
    assert_eq!(last_messages(&played), ["user: Go", "assistant: Wait | Wait"]);
}

#[test]
fn requests_repeat_the_blocks_of_the_model_unchanged() {
    let thought = json!({ "type": "raw", "provider": "p", "value": { "signature": "s", "b": 1, "a": [] } });
    let wish = json!({ "type": "tool_use", "id": "t1", "name": "a_b", "input": { "z": 1, "a": 2 }, "raw": { "x": 1 } });
    let content = [thought, text("Well"), wish];
    let script = || Script::new().tool("a.b", |_| Ok("ok".into())).reply(reply(&content, "tool_calls")).says("Done");
    let played = play(script, &json!({ "tools": ["*"] }));
    assert_eq!(requests(&played)[1]["messages"][1]["content"].to_string(), json!(content).to_string());
}

#[test]
fn model_calls_are_limited() {
    let wish = || [("t1", "a_b", json!({}))];
    let script = || Script::new().tool("a.b", |_| Ok("ok".into())).calls(wish()).calls(wish());
    let played = play(script, &json!({ "tools": ["*"], "maxModelCalls": 2, "inbox": {} }));
    assert_eq!((&output(&played)["stopReason"], requests(&played).len()), (&json!("max_model_calls"), 2));
    let repairs = json!({ "maxModelCalls": 2, "output": { "schema": { "type": "object" }, "maxRepairs": 9 } });
    let played = play(|| Script::new().says("1").says("2"), &repairs);
    assert_eq!((&output(&played)["stopReason"], &output(&played)["result"]), (&json!("max_model_calls"), &json!("2")));
}

#[test]
fn a_spent_budget_prevents_the_next_call() {
    let costly = || {
        let mut costly = reply(&[json!({ "type": "tool_use", "id": "t1", "name": "a_b", "input": {} })], "tool_calls");
        costly["usage"]["costUsd"] = 0.5.into();
        costly["usage"]["costBasis"] = "list".into();
        costly
    };
    let script = || Script::new().tool("a.b", |_| Ok("ok".into())).reply(costly()).reply(costly());
    for budget in [json!({ "usd": 0.75 }), json!({ "tokens": 16 })] {
        let played = play(script, &json!({ "tools": ["*"], "budget": budget }));
        assert_eq!((&output(&played)["stopReason"], requests(&played).len()), (&json!("budget"), 2), "{budget}");
        let usage = &output(&played)["usage"];
        assert_eq!(
            (&usage["costUsd"], &usage["costBasis"], &usage["input"]),
            (&json!(1.0), &json!("list"), &json!(20))
        );
    }
    // The agent does not wait for messages that it could not answer.
    let waiting = play(|| Script::new().says("Done"), &json!({ "inbox": {}, "budget": { "tokens": 15 } }));
    assert_eq!(output(&waiting)["stopReason"], "budget");
}

#[test]
fn the_fallback_model_is_used_once() {
    let busy = || Failure::new("model_overloaded", "busy").retryable();
    let config = json!({ "model": "large", "fallbackModel": "small" });
    let played = play(|| Script::new().fail(busy()).says("Done"), &config);
    assert_eq!(output(&played)["result"], "Done");
    assert_eq!(requests(&played).iter().map(|request| &request["model"]).collect::<Vec<_>>(), ["large", "small"]);
    let told = played.of("agent.tell")[1].clone();
    assert_eq!(told["kind"], "model.fallback");
    assert_eq!(told["data"], json!({ "from": "large", "to": "small", "code": "model_overloaded" }));

    let wrong = || Failure::new("model_auth", "who are you");
    let rows: [(&dyn Fn() -> Script, &Value, &str); 4] = [
        (&|| Script::new().fail(busy()).fail(busy()), &config, "model_overloaded"),
        (&|| Script::new().fail(wrong()), &config, "model_auth"),
        (&|| Script::new().fail(busy()), &json!({ "model": "large" }), "model_overloaded"),
        (&|| Script::new().fail(busy()), &json!({ "fallbackModel": "small", "maxModelCalls": 1 }), "model_overloaded"),
    ];
    for (script, config, expected) in rows {
        let played = play(script, config);
        assert_eq!((code(&played), played.remaining_acts), (expected, 0));
        assert_eq!(closed(&played)["error"]["code"], expected);
    }
}

#[test]
fn a_large_result_is_cut_only_in_the_final_event() {
    let long = "ä".repeat(50_000);
    let played = play(|| Script::new().says(&long), &json!({}));
    assert_eq!(output(&played)["result"], long);
    let shown = closed(&played);
    assert_eq!((&shown["result"]["cut"], &shown["result"]["stopReason"]), (&json!(true), &json!("end")));
    assert!(shown.to_string().len() < 64 << 10);
}
