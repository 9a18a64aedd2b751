//! Structured output: read, repaired, given up, and merged into arguments.

use flowcell_sdk::testing::{Outcome, Script};
use serde_json::{Value, json};

use super::*;

fn config() -> Value {
    json!({ "output": { "schema": { "type": "object", "required": ["n"], "properties": { "n": { "type": "integer" } } } } })
}

#[test]
fn answers_are_parsed_with_or_without_a_code_fence() {
    let rows = ["{\"n\":1}", "  {\"n\":1}\n", "```json\n{\"n\":1}\n```", "Here it is:\n```\n{\"n\":1}\n```\nWell?"];
    for text in rows {
        let played = play(|| Script::new().says(text), &config());
        assert_eq!(output(&played)["structuredOutput"], json!({ "n": 1 }), "{text}");
        assert_eq!(output(&played)["result"], text);
        assert_eq!(closed(&played)["result"]["structuredOutput"], json!({ "n": 1 }));
        assert_eq!(requests(&played)[0]["outputSchema"], config()["output"]["schema"]);
    }
}

#[test]
fn an_invalid_answer_is_repaired() {
    let played = play(|| Script::new().says("{\"n\":\"x\"}").says("no").says("{\"n\":2}"), &config());
    assert_eq!(output(&played)["structuredOutput"], json!({ "n": 2 }));
    assert_eq!(output(&played)["turns"], 1);
    let said = last_messages(&played);
    assert_eq!(said.len(), 5);
    assert!(said[2].contains("- /n: \"x\" is not of type \"integer\""), "{}", said[2]);
    assert!(said[4].contains("this is not JSON"), "{}", said[4]);
}

#[test]
fn an_answer_that_stays_invalid_fails_the_task() {
    let played = play(|| Script::new().says("1").says("2").says("3"), &config());
    assert_eq!((code(&played), played.remaining_acts), ("invalid_structured_output", 0));
    let Outcome::Failure(failure) = &played.outcome else { panic!("it fails") };
    assert_eq!(failure.details, Some(json!({ "errors": ["3 is not of type \"object\""] })));
    assert_eq!(closed(&played)["error"]["code"], "invalid_structured_output");
    let mut never = config();
    never["output"]["maxRepairs"] = 0.into();
    assert_eq!(requests(&play(|| Script::new().says("1"), &never)).len(), 1);
}

#[test]
fn members_of_the_answer_override_arguments() {
    let rows = [
        (json!({ "n": 0, "k": { "a": 1 } }), config(), "{\"n\":1}", json!({ "n": 1, "k": { "a": 1 } })),
        (json!({ "k": 1 }), json!({}), "Done", json!({ "k": 1 })),
        (json!({}), config(), "{\"n\":1,\"k\":null}", json!({ "n": 1, "k": null })),
        (json!({ "k": 1 }), json!({ "output": { "schema": { "type": "array" } } }), "[1]", json!({ "k": 1 })),
    ];
    for (args, config, text, expected) in rows {
        let input = json!({ "prompt": "Go", "args": args });
        let played = play_type("agent.run", || Script::new().says(text), input, &config);
        assert_eq!(output(&played)["args"], expected, "{text}");
    }
    assert_eq!(output(&play(|| Script::new().says("Done"), &json!({}))).get("args"), None);
}

#[test]
fn every_preset_has_a_prompt_and_a_schema() {
    let rows = [
        ("agent.run", None, "Done"),
        ("agent.plan", Some("plan"), r#"{ "plan": [{ "title": "Look" }], "risks": ["Rain"] }"#),
        ("agent.classify", Some("category"), r#"{ "category": "bug", "reason": "It breaks." }"#),
        ("agent.coder", None, "Done"),
        ("agent.reviewer", Some("verdict"), r#"{ "verdict": "change", "findings": [{ "what": "A leak" }] }"#),
        ("agent.summarize", Some("summary"), r#"{ "summary": "It rains." }"#),
    ];
    for (node_type, key, text) in rows {
        let input = || json!({ "input": "Go" });
        let played = play_type(node_type, || Script::new().says(text), input(), &json!({}));
        assert_eq!(requests(&played)[0].get("system").is_some(), node_type != "agent.run", "{node_type}");
        let structured = output(&played).get("structuredOutput");
        assert_eq!(structured.is_some(), key.is_some(), "{node_type}");
        let Some(key) = key else { continue };
        assert!(structured.unwrap().get(key).is_some(), "{node_type}");
        let odd = play_type(node_type, || Script::new().says("{}").says("{}").says("{}"), input(), &json!({}));
        assert_eq!(code(&odd), "invalid_structured_output", "{node_type}");
        let own = play_type(node_type, || Script::new().says("{\"n\":1}"), input(), &config());
        assert_eq!(output(&own)["structuredOutput"], json!({ "n": 1 }), "{node_type}");
    }
}

#[test]
fn the_answer_of_an_earlier_turn_is_not_returned() {
    let mut config = config();
    config["inbox"] = json!({});
    let refused = flowcell_sdk::testing::reply(&[], "refusal");
    let script = || Script::new().says("{\"n\":1}").message("m1", "And?").reply(refused.clone());
    let played = play(script, &config);
    assert_eq!((&output(&played)["result"], output(&played).get("structuredOutput")), (&json!(""), None));
    assert_eq!((&output(&played)["turns"], &output(&played)["stopReason"]), (&json!(2), &json!("refusal")));
}
