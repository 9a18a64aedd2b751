//! The manifest agrees with the code.

use flowcell_contract::{Effect, Manifest, Trait};
use serde_json::json;

use super::*;

#[test]
fn every_type_is_an_agent_with_an_inbox() {
    let manifest = Manifest::parse(crate::MANIFEST).unwrap();
    assert_eq!(manifest.nodes.len(), 6);
    for node in &manifest.nodes {
        for wanted in [Trait::Agent, Trait::Inbox, Trait::Streaming] {
            assert!(node.has(wanted), "{}", node.name);
        }
        for capability in ["model", "tools", "agent", "state"] {
            assert!(node.asks_for(capability), "{} does not ask for {capability}", node.name);
        }
        assert_eq!(node.effect, Effect::AtLeastOnce);
    }
}

#[test]
fn configs_are_checked_by_their_schema() {
    let manifest = Manifest::parse(crate::MANIFEST).unwrap();
    let node = &manifest.nodes[0];
    let config = jsonschema::validator_for(&node.config).unwrap();
    let good = [
        json!({}),
        json!({ "inbox": {}, "budget": { "usd": 0.1 }, "output": { "schema": {} }, "mcp": ["files"] }),
        // As the agentic dialect writes it.
        json!({
            "agent": "writer", "system": "You write.", "tools": ["data.*"], "provider": "p", "model": "m",
            "maxTurns": 3, "maxModelCalls": 9, "params": { "temperature": 0 },
            "permissions": { "default": "allow", "rules": [{ "tool": "bash", "args": "rm *", "action": "deny" }] },
            "output": { "schema": { "type": "object" } },
            "session": { "flow": "f", "step": "s", "fork": true, "sameAgent": [] },
        }),
    ];
    for good in good {
        assert!(config.is_valid(&good), "{good}");
    }
    let bad = [
        json!({ "maxturns": 3 }),
        json!({ "maxTurns": 0 }),
        json!({ "inbox": { "mode": "later" } }),
        json!({ "inbox": { "idle": 5 } }),
        json!({ "output": {} }),
        json!({ "mcp": ["a/b"] }),
        json!({ "permissions": { "default": "maybe" } }),
        json!({ "sampling": { "top_p": 1 } }),
        json!({ "budget": { "eur": 1 } }),
    ];
    for bad in bad {
        assert!(!config.is_valid(&bad), "{bad}");
    }
    let input = jsonschema::validator_for(&node.input).unwrap();
    assert!(input.is_valid(&json!({ "prompt": "Go", "args": {}, "previous": "", "from": "a" })));
    assert!(!input.is_valid(&json!({ "prompt": "Go", "input": 1 })));
}

#[test]
fn outputs_match_their_schema() {
    let manifest = Manifest::parse(crate::MANIFEST).unwrap();
    let schema = jsonschema::validator_for(&manifest.nodes[0].output).unwrap();
    let input = json!({ "prompt": "Go", "args": { "k": 1 } });
    let config = json!({ "output": { "schema": true } });
    let played = play_type("agent.run", || flowcell_sdk::testing::Script::new().says("{}"), input, &config);
    assert!(schema.is_valid(output(&played)), "{}", output(&played));
}
