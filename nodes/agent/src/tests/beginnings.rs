//! The first messages of an agent: input, config, preset, session.

use flowcell_sdk::testing::Script;
use serde_json::{Value, json};

use super::*;

#[test]
fn an_agent_answers_in_one_turn() {
    let played = play(|| Script::new().says("Done"), &json!({}));
    let usage = json!({
        "input": 10, "output": 5, "cacheRead": 0, "cacheWrite": 0, "reasoning": 0, "estimated": false,
    });
    let expected = json!({ "result": "Done", "usage": usage, "turns": 1, "stopReason": "end" });
    assert_eq!(output(&played), &expected);
    assert_eq!(closed(&played), json!({ "agentRunId": "agent-run-1", "result": expected }));
    let names: Vec<_> = played.calls.iter().map(|call| call.name.as_str()).collect();
    assert_eq!(names, ["agent.open", "agent.tell", "model.start-generate", "queue.next-event", "agent.close"]);
    assert_eq!(states(&played), ["running"]);
    let expected = json!({ "messages": [{ "role": "user", "content": "Go" }], "agentRunId": "agent-run-1" });
    assert_eq!(requests(&played), [&expected]);
}

#[test]
fn every_kind_of_input_becomes_messages() {
    let sdk = json!({
        "type": "user", "session_id": "s", "parent_tool_use_id": null, "message": { "role": "user", "content": "Go" },
    });
    let blocks = json!([{ "type": "text", "text": "Go" }, { "type": "image", "mime": "image/png", "url": "u" }]);
    let rows: [(Value, &[&str]); 9] = [
        (json!({ "input": "Go" }), &["user: Go"]),
        (json!({ "input": { "a": [1] } }), &["user: {\"a\":[1]}"]),
        (json!({ "input": null }), &["user: null"]),
        (json!({ "messages": [{ "role": "user", "content": "Go" }] }), &["user: Go"]),
        (json!({ "messages": [{ "content": blocks }] }), &["user: Go | image"]),
        (json!({ "messages": [sdk] }), &["user: Go"]),
        (
            json!({ "messages": [{ "content": "A" }, { "role": "assistant", "content": "B" }, { "content": "C" }] }),
            &["user: A", "assistant: B", "user: C"],
        ),
        (json!({ "messages": [{ "content": "A" }, { "content": "B" }] }), &["user: A | B"]),
        (
            json!({ "prompt": "Go", "previous": "It rains", "from": "look" }),
            &["user: The step before, `look`, gave:\n\nIt rains | Go"],
        ),
    ];
    for (input, expected) in rows {
        let played = play_type("agent.run", || Script::new().says("Done"), input.clone(), &json!({}));
        assert_eq!(last_messages(&played), expected, "{input}");
    }
}

#[test]
fn invalid_inputs_fail_before_the_agent_run_opens() {
    let inputs = [
        json!({}),
        json!({ "prompt": "Go", "input": null }),
        json!({ "prompt": "" }),
        json!({ "messages": [] }),
        json!({ "messages": [{ "role": "assistant", "content": "Hello" }] }),
        json!({ "messages": [{ "role": "system", "content": "Hello" }] }),
        json!({ "messages": [{ "role": "user" }] }),
        json!({ "messages": [{ "content": [{ "text": "no type" }] }] }),
        json!({ "prompt": 5 }),
    ];
    for input in inputs {
        let played = play_type("agent.run", Script::new, input.clone(), &json!({}));
        assert_eq!(code(&played), "invalid_input", "{input}");
        assert!(played.calls.is_empty(), "{input}");
    }
    let schema = play(Script::new, &json!({ "output": { "schema": { "type": 5 } } }));
    assert_eq!(code(&schema), "invalid_schema");
    let outside = play(Script::new, &json!({ "output": { "schema": { "$ref": "https://example.com" } } }));
    assert_eq!(code(&outside), "invalid_schema");
}

#[test]
fn an_agent_name_without_a_system_prompt_is_unknown() {
    let nobody = json!({ "agent": "nobody" });
    assert_eq!(code(&play(Script::new, &nobody)), "unknown_agent");
    let known = play(|| Script::new().says("Done"), &json!({ "agent": "writer", "system": "You write." }));
    assert_eq!(requests(&known)[0]["system"], "You write.");
    assert_eq!(known.of("agent.open")[0]["about"]["agent"], "writer");
    let preset = play_type("agent.coder", || Script::new().says("Done"), json!({ "prompt": "Go" }), &nobody);
    assert_eq!(output(&preset)["result"], "Done");
}

#[test]
fn input_overrides_config() {
    let input = json!({
        "prompt": "Go", "model": "m2", "system": "s2", "tools": ["b.*"], "metadata": { "ticket": 7 },
    });
    let config = json!({
        "provider": "p", "model": "m1", "system": "s1", "tools": ["a.*"], "mcp": ["files"],
        "sampling": { "temperature": 0.5, "topP": 1, "maxTokens": 9, "stop": ["x"], "seed": 3, "effort": "low" },
        "params": { "extra": true }, "inbox": { "capacity": 3, "idleCloseMs": 0 },
    });
    let script = || Script::new().tool("b.c", |_| Ok(Value::Null)).says("Done").silence();
    let played = play_type("agent.run", script, input, &config);
    let request = requests(&played)[0].clone();
    let mut expected = json!({
        "provider": "p", "model": "m2", "system": "s2", "messages": [{ "role": "user", "content": "Go" }],
        "tools": [{ "name": "b_c", "inputSchema": { "type": "object" } }],
        "maxTokens": 9, "temperature": 0.5, "topP": 1.0, "stop": ["x"], "seed": 3, "effort": "low",
        "params": { "extra": true }, "agentRunId": "agent-run-1",
    });
    assert_eq!(request, expected);
    assert_eq!(played.of("tools.find"), [&json!({ "patterns": ["b.*", "mcp:files/*"] })]);
    expected = json!({
        "tools": ["b_c"], "inbox": { "capacity": 3 }, "provider": "p", "model": "m2", "metadata": { "ticket": 7 },
    });
    assert_eq!(played.of("agent.open"), [&json!({ "about": expected })]);
}

#[test]
fn a_session_continues_the_stored_conversation() {
    let config = |prefix: Option<&str>| {
        let mut session = json!({ "flow": "f", "step": "b", "fork": true, "sameAgent": ["a"] });
        if let Some(prefix) = prefix {
            session["prefix"] = prefix.into();
        }
        json!({ "session": session })
    };
    let said = json!([{ "role": "user", "content": "Before" }, { "role": "assistant", "content": "Yes" }]);
    let played = |key: &'static str, prefix, from: &str| {
        let script = || Script::new().state(key, said.clone()).says("Done");
        play_type("agent.run", script, json!({ "prompt": "Go", "from": from }), &config(prefix))
    };
    let remembered = ["user: Before", "assistant: Yes", "user: Go"];
    let rows: [(&str, Option<&str>, &str, &[&str]); 6] = [
        ("session/f/b/p", Some("p"), "c", &remembered),
        ("session/f/b/p", Some("p"), "a", &["user: Go"]),
        ("session/f/a/p", Some("p"), "a", &remembered),
        ("session/f/c/p", Some("p"), "c", &["user: Go"]),
        ("session/f/b/q", Some("p"), "a", &["user: Go"]),
        ("session/f/b/p", None, "a", &["user: Go"]),
    ];
    for (key, prefix, from, expected) in rows {
        let played = played(key, prefix, from);
        assert_eq!(last_messages(&played), expected, "{key}");
        let kept = played.of("state.set");
        assert_eq!(kept.len(), usize::from(prefix.is_some()), "{key}");
        for kept in kept {
            assert_eq!(kept["key"], "session/f/b/p");
            assert_eq!(kept["value"].as_array().unwrap().len(), expected.len() + 1, "the answer, too");
        }
    }
}
