//! Tests with `filesystem`, a reference server of the protocol.

use serde_json::json;

use crate::mcp::kit::{Kit, installed, program};

const PROGRAM: &str = "mcp-server-filesystem";

#[tokio::test]
async fn files_are_written_and_read_in_the_permitted_folder() {
    let Some(path) = installed(PROGRAM, "files_are_written_and_read_in_the_permitted_folder") else { return };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let kit = Kit::of(&json!({ "files": program(&path, &[root.to_str().unwrap()]) }));
    let tools = kit.tools.list("files").await.unwrap();
    let read = tools.iter().find(|tool| &*tool.name == "read_text_file").unwrap();
    assert!(read.description.is_some() && read.input_schema.get("properties").is_some());
    assert_eq!(read.annotations.get("readOnlyHint").and_then(flowcell_contract::Json::as_bool), Some(true));
    let file = root.join("note.txt");
    kit.call("files", "write_file", json!({ "path": file, "content": "hallo" })).await.unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "hallo");
    let text = kit.call("files", "read_text_file", json!({ "path": file })).await.unwrap();
    assert!(text == json!("hallo") || text["content"] == "hallo", "{text}");
    let denied = kit.call("files", "read_text_file", json!({ "path": "/etc/passwd" })).await.unwrap_err();
    assert_eq!((denied.code.as_str(), denied.retryable), ("tool_failed", false));
    assert!(denied.message.contains("outside allowed directories"), "{denied}");
}
