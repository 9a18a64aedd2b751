//! Tests the server with the providers' own SDKs, `@anthropic-ai/sdk` and `openai`, on Node.js.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use flowcell_modelfake::Fake;
use serde_json::{Value, json};

/// Returns the folder that contains these Node.js packages. It is the parent of a folder in `PATH`, such as
/// `node_modules` for `node_modules/.bin`. Returns `None` and prints a message if Node.js or a package is
/// missing. Panics instead if `FLOWCELL_TEST_NEEDS` names `anthropic-ai-sdk`.
fn node_modules(packages: &[&str], test: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<_> = std::env::split_paths(&path).collect();
    let has = |modules: &&Path| packages.iter().all(|package| modules.join(package).join("package.json").is_file());
    let found = folders.iter().filter_map(|folder| folder.parent()).find(has);
    if found.is_none() || !folders.iter().any(|folder| folder.join("node").is_file()) {
        let needed = std::env::var("FLOWCELL_TEST_NEEDS").unwrap_or_default();
        let is_needed = needed.split(',').any(|needed| needed == "anthropic-ai-sdk");
        assert!(!is_needed, "{test} needs node, and {}", packages.join(" and "));
        eprintln!("skipped: {test}: there is no node, or no {}", packages.join(" and "));
        return None;
    }
    found.map(Path::to_owned)
}

/// Returns the turns of one dialect, in the order of the SDK's requests.
fn turns(dialect: &str) -> Vec<Value> {
    let expect = |text: &str| json!({ "dialect": dialect, "lastText": text });
    let usage = json!({ "fresh": 21, "output": 4 });
    let limit = |headers: Value| json!({ "status": { "status": 429, "headers": headers } });
    vec![
        json!({ "expect": expect("text"), "reply": { "text": "grüß dich 🦀" }, "usage": usage }),
        json!({ "expect": expect("stream"), "reply": { "text": "one two three" }, "usage": usage, "chunking": 7 }),
        json!({ "expect": expect("tools"), "reply": {
            "text": "I look.", "toolCalls": [{ "name": "weather", "arguments": { "city": "Köln" } }] } }),
        json!({ "expect": { "dialect": dialect, "tools": ["weather"] }, "reply": { "text": "It rains." } }),
        json!({ "expect": expect("limited"), "fault": limit(json!({ "retry-after": "1" })) }),
        json!({ "expect": expect("overloaded"), "fault": { "status": { "status": 503 } } }),
        json!({ "expect": expect("retried"), "fault": limit(json!({ "retry-after-ms": "1" })) }),
        json!({ "expect": expect("retried"), "reply": { "text": "ok" } }),
        json!({ "expect": expect("broken"), "reply": { "text": "never ends" },
            "fault": { "errorAfter": { "events": 3, "type": "overloaded_error" } } }),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn the_official_sdks_understand_every_answer() {
    let packages = ["@anthropic-ai/sdk", "openai"];
    let Some(modules) = node_modules(&packages, "the_official_sdks_understand_every_answer") else { return };
    let turns: Vec<_> = ["messages", "chat", "responses"].into_iter().flat_map(turns).collect();
    let fake = Fake::start(json!({ "turns": turns })).await.unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sdks/judge.mjs");
    let mut node = Command::new("node");
    node.arg(script).arg(&modules).arg(fake.url(""));
    let output = tokio::task::spawn_blocking(move || node.output().unwrap()).await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8(output.stdout).unwrap();
    let told: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(told.len(), 27, "{text}");
    for told in &told {
        check(told);
    }
    assert_eq!(fake.failures(), Vec::<String>::new());
}

/// Checks what the SDK reports about an answer.
fn check(told: &Value) {
    let dialect = told["dialect"].as_str().unwrap();
    let (ends, calls) = match dialect {
        "messages" => ("end_turn", "tool_use"),
        "chat" => ("stop", "tool_calls"),
        _ => ("completed", "completed"),
    };
    let result = &told["result"];
    let good = match told["what"].as_str().unwrap() {
        "text" => *result == json!({ "text": "grüß dich 🦀", "stop": ends, "input": 21 }),
        "stream" => *result == json!({ "deltas": "one two three", "text": "one two three", "stop": ends, "output": 4 }),
        "tools" => {
            *result == json!({ "name": "weather", "input": { "city": "Köln" }, "stop": calls, "text": "It rains." })
        }
        "key" => told["error"] == "AuthenticationError" && told["status"] == 401,
        "wrong" => told["error"] == "BadRequestError" && told["status"] == 400,
        "limited" => told["error"] == "RateLimitError" && told["status"] == 429,
        "overloaded" => {
            told["error"]
                .as_str()
                .is_some_and(|error| error.ends_with("ServerError") || error == "ServiceUnavailableError")
                && told["status"] == 503
        }
        "retried" => *result == "in the end",
        "broken" => {
            told["error"].is_string() && told["message"].as_str().is_some_and(|why| why.contains("in the middle"))
        }
        _ => false,
    };
    assert!(good, "{told}");
}
