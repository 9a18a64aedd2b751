//! Tools: concurrent calls, the order of results, and failures.

use flowcell_sdk::{Failure, testing::Script};
use serde_json::{Value, json};

use super::*;

fn two_tools() -> Script {
    Script::new()
        .tool("text.upper", |input| Ok(input["text"].as_str().unwrap_or_default().to_uppercase().into()))
        .tool("math.double", |input| Ok(json!({ "n": input["n"].as_i64().map(|n| n * 2) })))
        .tool("math.fail", |_| Err(Failure::new("out_of_paper", "there is no paper")))
}

fn offered() -> Value {
    json!({ "tools": ["*"] })
}

/// The tool results in the last request.
fn results(played: &Played) -> Vec<Value> {
    let messages = requests(played).last().unwrap()["messages"].as_array().unwrap();
    messages.last().unwrap()["content"].as_array().unwrap().clone()
}

fn result(id: &str, content: &str) -> Value {
    json!({ "type": "tool_result", "toolUseId": id, "content": content })
}

fn error(id: &str, content: &str) -> Value {
    json!({ "type": "tool_result", "toolUseId": id, "content": content, "isError": true })
}

#[test]
fn calls_of_a_turn_run_concurrently_and_their_results_keep_the_order() {
    let uses = || [("t1", "text_upper", json!({ "text": "a" })), ("t2", "math_double", json!({ "n": 4 }))];
    let expected = [result("t1", "A"), result("t2", "{\"n\":8}")];
    for backwards in [false, true] {
        let script = || {
            let script = two_tools().calls(uses()).says("Done");
            if backwards { script.backwards() } else { script }
        };
        let played = play(script, &offered());
        assert_eq!(output(&played)["result"], "Done");
        assert_eq!(output(&played)["turns"], 1);
        assert_eq!(output(&played)["usage"]["input"], 20);
        assert_eq!(results(&played), expected);
        assert_eq!(last_messages(&played)[1], "assistant: tool_use | tool_use");
        let names: Vec<_> = played.calls.iter().map(|call| call.name.as_str()).collect();
        let calls = names.iter().position(|name| *name == "tools.start-call").unwrap();
        assert_eq!(
            names[calls..calls + 4],
            ["tools.start-call", "tools.start-call", "queue.next-event", "queue.next-event"]
        );
        let call = json!({
            "tool": "text.upper", "input": { "text": "a" }, "toolUseId": "t1", "agentRunId": "agent-run-1",
        });
        assert_eq!(played.of("tools.start-call")[0], &call);
    }
}

#[test]
fn the_model_receives_the_errors_of_tools() {
    let rows = [
        (("t1", "math_fail", json!({})), error("t1", "out_of_paper: there is no paper"), 1),
        (("t1", "nothing", json!({})), error("t1", "tool_not_found: unknown tool `nothing`"), 0),
        (("t1", "", json!({})), error("t1", "tool_not_found: unknown tool ``"), 0),
        (("t1", "unnamed_tool", json!({})), error("t1", "tool_not_found: unknown tool `unnamed_tool`"), 0),
        (("t1", "math_double", json!([1])), error("t1", "invalid_input: the arguments must be a JSON object"), 0),
        (("t1", "math_double", json!("{")), error("t1", "invalid_input: the arguments must be a JSON object"), 0),
        (("t1", "math_double", Value::Null), error("t1", "invalid_input: the arguments must be a JSON object"), 0),
    ];
    for (wanted, expected, calls) in rows {
        let script = || two_tools().calls([wanted.clone(), ("t2", "math_double", json!({ "n": 1 }))]).says("Done");
        let played = play(script, &offered());
        assert_eq!(output(&played)["stopReason"], "end", "{wanted:?}");
        assert_eq!(results(&played), [expected, result("t2", "{\"n\":2}")], "{wanted:?}");
        assert_eq!(played.of("tools.start-call").len(), calls + 1, "{wanted:?}");
    }
}

#[test]
fn calls_beyond_the_limit_are_not_made() {
    let uses = || [("t1", "math_double", json!({ "n": 1 })), ("t2", "math_double", json!({ "n": 2 }))];
    let played = play(|| two_tools().calls(uses()).says("Done"), &json!({ "tools": ["*"], "maxToolCalls": 1 }));
    assert_eq!(played.of("tools.start-call").len(), 1);
    let told = error("t2", "max_tool_calls: the limit of tool calls is reached; answer without tools");
    assert_eq!(results(&played), [result("t1", "{\"n\":2}"), told]);
    assert_eq!(requests(&played)[0].get("toolChoice"), None);
    assert_eq!(requests(&played)[1]["toolChoice"], "none");
}

#[test]
fn tool_uses_of_a_truncated_reply_are_not_called() {
    let cut = || {
        let wish = json!({ "type": "tool_use", "id": "t1", "name": "math_double", "input": {} });
        let content = [json!({ "type": "text", "text": "Well" }), wish];
        two_tools().reply(flowcell_sdk::testing::reply(&content, "max_tokens"))
    };
    let played = play(cut, &offered());
    assert_eq!(output(&played)["stopReason"], "max_tokens");
    assert_eq!(output(&played)["result"], "Well");
    assert!(played.of("tools.start-call").is_empty());
    // The tool use would get no result, so it is not part of the conversation.
    let again = play(
        || cut().message("m1", "Go on").says("Done").silence(),
        &json!({
            "tools": ["*"], "inbox": { "idleCloseMs": 5 },
        }),
    );
    assert_eq!(last_messages(&again), ["user: Go", "assistant: Well", "user: Go on"]);
}

#[test]
fn large_results_are_cut() {
    let script = || Script::new().tool("big", |_| Ok("ä".repeat(100_000).into())).calls([("t1", "big", json!({}))]);
    let played = play(|| script().says("Done"), &offered());
    let content = results(&played)[0]["content"].as_str().unwrap().to_owned();
    assert!(content.ends_with("\n[cut: 131072 of 200000 bytes]"), "{}", content.len());
}

#[test]
fn a_preset_works_without_granted_tools() {
    let input = || json!({ "prompt": "Go" });
    let coder = play_type("agent.coder", || two_tools().says("Done"), input(), &json!({}));
    assert_eq!(coder.of("tools.find"), [&json!({ "patterns": ["*"] })]);
    let planner = play_type("agent.plan", || two_tools().says("{\"plan\":[]}"), input(), &json!({}));
    assert!(planner.of("tools.find").is_empty());
    let denied = || Script::new().deny("tools.find").says("Done");
    assert_eq!(output(&play_type("agent.coder", denied, input(), &json!({})))["result"], "Done");
    assert_eq!(code(&play_type("agent.coder", denied, input(), &offered())), "denied");
}
