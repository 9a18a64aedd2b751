//! The inbox: the moments at which messages enter the conversation, and the ends of waiting.

use flowcell_sdk::testing::Script;
use serde_json::{Value, json};

use super::*;

fn tool() -> Script {
    Script::new().tool("a.b", |_| Ok("ok".into()))
}

fn one_tool_use() -> [(&'static str, &'static str, Value); 1] {
    [("t1", "a_b", json!({}))]
}

fn config(inbox: Value) -> Value {
    json!({ "tools": ["*"], "inbox": inbox })
}

#[test]
fn a_message_during_a_turn_is_added_at_once_or_queued() {
    let script = || tool().message("m1", "Faster").message("m2", "Louder").calls(one_tool_use());
    let steered = play(|| script().says("Done").silence(), &config(json!({ "idleCloseMs": 5 })));
    let expected = ["user: Go", "assistant: tool_use", "user: tool_result | Faster | Louder"];
    assert_eq!(last_messages(&steered), expected);
    assert_eq!((&output(&steered)["turns"], &output(&steered)["stopReason"]), (&json!(3), &json!("idle")));
    assert_eq!(requests(&steered).len(), 2);

    let queue = config(json!({ "idleCloseMs": 5, "mode": "queue" }));
    let queued = play(|| script().says("One").says("Two").says("Three").silence(), &queue);
    let expected = [
        "user: Go",
        "assistant: tool_use",
        "user: tool_result",
        "assistant: One",
        "user: Faster",
        "assistant: Two",
        "user: Louder",
    ];
    assert_eq!(last_messages(&queued), expected);
    assert_eq!((&output(&queued)["turns"], &output(&queued)["result"]), (&json!(3), &json!("Three")));
}

#[test]
fn an_agent_without_inbox_config_receives_messages_during_its_turn() {
    let played = play(|| Script::new().message("m1", "Faster").says("One").says("Two"), &json!({}));
    assert_eq!(last_messages(&played), ["user: Go", "assistant: One", "user: Faster"]);
    assert_eq!((&output(&played)["turns"], &output(&played)["stopReason"]), (&json!(2), &json!("end")));
    assert_eq!(played.of("agent.open")[0]["about"]["inbox"], json!({ "capacity": 64 }));
    assert_eq!(states(&played), ["running"]);
}

#[test]
fn a_message_after_an_answer_is_a_new_turn() {
    let played = play(|| Script::new().says("One").message("m1", "And?").says("Two").close(), &config(json!({})));
    assert_eq!(last_messages(&played), ["user: Go", "assistant: One", "user: And?"]);
    assert_eq!((&output(&played)["result"], &output(&played)["stopReason"]), (&json!("Two"), &json!("closed")));
    assert_eq!(states(&played), ["running", "idle", "running", "idle"]);
    // Without a timeout it waits as long as a message can arrive.
    let waits = played.of("queue.next-event");
    assert!(waits.iter().all(|wait| wait.get("timeoutMs").is_none()), "{waits:?}");
}

#[test]
fn an_idle_agent_ends_by_timeout_by_closing_or_without_senders() {
    let rows = [
        (Script::silence as fn(Script) -> Script, json!({ "idleCloseMs": 5 }), "idle"),
        (Script::close, json!({ "idleCloseMs": 5 }), "closed"),
        (Script::close, json!({}), "closed"),
        (Script::silence, json!({}), "closed"),
    ];
    for (end, inbox, reason) in rows {
        let played = play(|| end(Script::new().says("Done")), &config(inbox.clone()));
        assert_eq!(output(&played)["stopReason"], reason, "{inbox}");
        assert_eq!((&output(&played)["result"], played.remaining_acts), (&json!("Done"), 0), "{inbox}");
    }
}

#[test]
fn an_agent_closed_during_a_turn_answers_earlier_messages() {
    let script = || Script::new().message("m1", "Faster").close().says("One").says("Two");
    let played = play(script, &config(json!({ "mode": "queue" })));
    assert_eq!((&output(&played)["result"], &output(&played)["stopReason"]), (&json!("Two"), &json!("closed")));
    assert_eq!((&output(&played)["turns"], played.remaining_acts), (&json!(2), 0));
    assert_eq!(states(&played), ["running"]);
}

#[test]
fn max_turns_ends_the_agent_run_and_reports_discarded_messages() {
    let script = || Script::new().message("m1", "One").message("m2", "Two").message("m3", "Three").says("A").says("B");
    let limited = |mode: &str| json!({ "maxTurns": 2, "inbox": { "mode": mode } });
    for mode in ["queue", "steer"] {
        let played = play(script, &limited(mode));
        assert_eq!((&output(&played)["turns"], &output(&played)["stopReason"]), (&json!(2), &json!("max_turns")));
        assert_eq!(last_messages(&played), ["user: Go", "assistant: A", "user: One"]);
        let told = played.of("agent.tell").into_iter().filter(|told| told["kind"] == "inbox.discarded");
        let ids: Vec<_> = told.map(|told| (&told["data"]["messageId"], &told["data"]["reason"])).collect();
        assert_eq!(ids, [(&json!("m2"), &json!("max_turns")), (&json!("m3"), &json!("max_turns"))]);
    }
    let one = play(|| Script::new().says("A"), &json!({ "maxTurns": 1 }));
    assert_eq!(output(&one)["stopReason"], "end");
}

#[test]
fn every_form_of_an_inbox_message_is_accepted() {
    let rows = [
        (json!("Hello"), "user: Hello"),
        (json!({ "content": "Hello" }), "user: Hello"),
        (json!({ "role": "user", "content": [{ "type": "text", "text": "Hello" }] }), "user: Hello"),
        (
            json!({ "type": "user", "message": { "role": "user", "content": "Hello" }, "session_id": "s" }),
            "user: Hello",
        ),
        // Only the model speaks for the model.
        (json!({ "role": "assistant", "content": "Hello" }), "user: Hello"),
        (json!({ "odd": true }), "user: {\"odd\":true}"),
        (json!(5), "user: 5"),
    ];
    for (message, expected) in rows {
        let script = || Script::new().says("One").message("m1", message.clone()).says("Two").close();
        assert_eq!(last_messages(&play(script, &config(json!({}))))[2], expected, "{message}");
    }
}
