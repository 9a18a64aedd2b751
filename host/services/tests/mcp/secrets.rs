//! No output contains the secrets of a server.

use flowcell_mcpfake::Plan;
use flowcell_services::mcp::Servers;
use serde_json::json;

use crate::mcp::kit::{CANARY, everywhere};

#[tokio::test]
async fn a_key_is_in_no_answer_and_no_failure() {
    for (place, kit, _fake) in everywhere(Plan::default()).await {
        let echoed = kit.call("fake", "echo", json!({ "text": format!("it is {CANARY}") })).await.unwrap();
        assert_eq!(echoed, json!("it is [key]"), "{place}");
        let failed = kit.call("fake", "fail", json!({})).await.unwrap_err();
        assert_eq!(failed.message, "the disk is full\nthe key is [key]", "{place}");
        let refused = kit.call("fake", "refuse", json!({ "code": -32000 })).await.unwrap_err();
        assert_eq!(refused.message, "fake: the server refused: so it was [key]", "{place}");
        assert_eq!(refused.details.unwrap().to_serde(), json!({ "mcpCode": -32000 }), "{place}");
    }
}

#[tokio::test]
async fn n24_a_key_is_in_no_answer_in_any_encoding() {
    // Forms of `sk-canary/5+x=` that servers may send.
    let encoded = [
        r"sk-canary\/5\u002Bx=",
        "sk%2dcanary%2F5%2bx%3D",
        "sk-canary&#x2F;5&#43;x&equals;",
        "736b2d63616e6172792f352b783d",
        "736B2D63616E6172792F352B783D",
        "c2stY2FuYXJ5LzUreD0=",
        "QmVhcmVyIHNrLWNhbmFyeS81K3g9",
        "c2stY2FuYXJ5JTJGNSUyQnglM0Q",
    ];
    for (place, kit, _fake) in everywhere(Plan::default()).await {
        for text in encoded {
            let echoed = kit.call("fake", "echo", json!({ "text": text })).await.unwrap();
            let echoed = echoed.as_str().unwrap();
            assert!(echoed.contains("[key]") && echoed.len() < 20, "{place} {text}: {echoed}");
        }
    }
}

#[test]
fn a_configuration_shows_no_values() {
    let text = "a: { command: x, env: { TOKEN: canary } }\nb: { url: 'https://x.example', headers: { X-Key: canary } }";
    let shown = format!("{:?}", Servers::parse(text, std::path::Path::new("")).unwrap());
    assert!(!shown.contains("canary"), "{shown}");
}
