//! Lists of tools: their pages, their lifetime, and tools that are refused or shortened.

use flowcell_contract::Json;
use flowcell_mcpfake::{List, Plan, http::Fake};
use serde_json::json;

use crate::mcp::kit::{Kit, at, everywhere};

#[tokio::test]
async fn tools_are_described() {
    for (place, kit, _fake) in everywhere(Plan::default()).await {
        let tools = kit.tools.list("fake").await.unwrap();
        assert_eq!(tools.len(), 20, "{place}");
        let echo = &tools[0];
        assert_eq!((&*echo.name, echo.title.as_deref()), ("echo", Some("ECHO")));
        assert_eq!(echo.description.as_deref(), Some("Does echo."));
        assert_eq!(echo.input_schema.to_serde(), json!({ "type": "object" }));
        assert_eq!((&echo.output_schema, echo.annotations.to_serde()), (&None, json!({ "readOnlyHint": true })));
        let text = concat!(
            r#"{"name":"echo","title":"ECHO","description":"Does echo.","inputSchema":{"type":"object"},"#,
            r#""annotations":{"readOnlyHint":true}}"#
        );
        assert_eq!(echo.to_json().to_text(), text);
    }
}

#[tokio::test]
async fn pages_of_tools_are_joined() {
    for (place, kit, _fake) in everywhere(Plan { page: 5, ..Plan::default() }).await {
        assert_eq!(kit.names("fake").await.len(), 20, "{place}");
    }
}

#[tokio::test]
async fn a_list_is_cached_until_the_server_reports_a_change() {
    let fake = Fake::start(Plan::default()).await.unwrap();
    let kit = Kit::of(&json!({ "fake": at(&fake) }));
    kit.names("fake").await;
    kit.names("fake").await;
    assert_eq!(fake.listed(), 1);
    kit.call("fake", "change", json!({})).await.unwrap();
    assert_eq!(kit.names("fake").await.last().unwrap(), "new-2");
    kit.names("fake").await;
    assert_eq!(fake.listed(), 2);
}

#[tokio::test]
async fn a_list_without_a_lifetime_is_requested_again() {
    let fake = Fake::start(Plan { modern: true, ..Plan::default() }).await.unwrap();
    let kit = Kit::of(&json!({ "fake": at(&fake) }));
    kit.names("fake").await;
    kit.names("fake").await;
    assert_eq!(fake.listed(), 2);
}

#[tokio::test]
async fn h16_overlong_and_malformed_lists_are_refused() {
    let table = [
        (List::Many, "mcp_too_large", "more than 1000 tools"),
        (List::Costly, "mcp_too_large", "more than 1000000 values"),
        (List::Endless, "mcp_too_large", "more than 100 pages"),
        (List::Nonsense, "mcp_protocol", "another kind than the request"),
    ];
    for (list, code, sentence) in table {
        for (place, kit, _fake) in everywhere(Plan { list, ..Plan::default() }).await {
            let failure = kit.tools.list("fake").await.unwrap_err();
            assert!(failure.code == code && failure.message.contains(sentence), "{place}, {list:?}: {failure}");
        }
    }
}

#[tokio::test]
async fn h16_invalid_tools_are_left_out_and_long_texts_are_cut() {
    for (place, kit, _fake) in everywhere(Plan { list: List::Hostile, ..Plan::default() }).await {
        let tools = kit.tools.list("fake").await.unwrap();
        let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
        assert_eq!(names, ["long-description", "twice"], "{place}");
        let description = tools[0].description.as_deref().unwrap();
        assert!(description.len() <= 16 * 1024 && description.ends_with('…'), "{place}");
        assert_eq!(tools[1].description.as_deref(), Some("Does twice."), "{place}");
        assert_eq!(tools[1].annotations.get("readOnlyHint").and_then(Json::as_bool), Some(false), "{place}");
    }
}
