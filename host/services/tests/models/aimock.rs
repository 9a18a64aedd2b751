//! Tests with `@copilotkit/aimock`, a model server of another project: a tool loop, a rate limit and a broken stream,
//! in all dialects.

use std::{
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use flowcell_services::model::Wait;
use serde_json::{Value, json};

use crate::models::kit::{DIALECTS, Kit};

const PROGRAM: &str = "llmock";

/// A server that runs until this is dropped.
struct Running {
    child: Child,
    base: String,
}

impl Running {
    fn start(program: &Path) -> Running {
        let folder = tempfile::tempdir().unwrap();
        let fixtures = folder.path().join("fixtures.json");
        std::fs::write(&fixtures, fixtures_of_the_tests().to_string()).unwrap();
        let mut command = Command::new(program);
        command.args(["--port", "0", "--strict", "--chunk-size", "4", "--latency", "2", "--fixtures"]).arg(&fixtures);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("http://") {
            line.clear();
            assert_ne!(said.read_line(&mut line).unwrap(), 0, "{PROGRAM} ended");
        }
        // Its further output is read, so that it never blocks on a full pipe.
        std::thread::spawn(move || said.read_to_end(&mut Vec::new()));
        let base = line[line.find("http://").unwrap()..].trim().to_owned();
        Running { child, base }
    }

    fn kit(&self, dialect: &str) -> Kit {
        let (base, auth) = match dialect {
            "messages" => (self.base.clone(), "x-api-key"),
            _ => (format!("{}/v1", self.base), "bearer"),
        };
        // Each dialect has its own model, because fixtures count over all dialects.
        let profile = json!({ "dialect": dialect, "baseUrl": base, "auth": auth, "keyEnv": "FAKE_KEY",
            "model": format!("{dialect}-1"), "allowPrivate": ["127.0.0.1"] });
        Kit::configured(&json!({ "default": dialect, "profiles": { dialect: profile } }))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn fixtures_of_the_tests() -> Value {
    let call = json!({ "name": "weather", "arguments": { "city": "Köln", "days": [1, 2] } });
    let mut fixtures = vec![
        json!({ "match": { "userMessage": "cut" }, "truncateAfterChunks": 3,
            "response": { "content": "one two three four five six seven eight" } }),
        json!({ "match": { "toolResultContains": "rain" }, "response": { "content": "It rains in Köln." } }),
        json!({ "match": { "userMessage": "weather" }, "response": { "toolCalls": [call] } }),
        json!({ "match": { "userMessage": "hello" }, "response": { "content": "grüß dich 🦀, how are you today?" } }),
    ];
    for dialect in DIALECTS {
        let model = format!("{dialect}-1");
        fixtures.push(json!({ "match": { "userMessage": "limited", "model": model, "sequenceIndex": 0 }, "response": {
                "error": { "message": "slow down", "type": "rate_limit_error" }, "status": 429, "retryAfter": 3 } }));
        fixtures
            .push(json!({ "match": { "userMessage": "limited", "model": model }, "response": { "content": "now" } }));
    }
    json!({ "fixtures": fixtures })
}

/// Returns the first text block of a reply.
fn text(reply: &Value) -> &str {
    let blocks = reply["content"].as_array().unwrap();
    let text = blocks.iter().find(|block| block["type"] == "text").and_then(|block| block["text"].as_str());
    text.unwrap_or_else(|| panic!("no text in {reply}"))
}

/// Finds the server in the `PATH`. If it is missing, prints that the test is skipped, or panics if
/// `FLOWCELL_TEST_NEEDS` lists it.
fn installed(test: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(PROGRAM)).find(|file| file.is_file());
    if found.is_none() {
        let needed = std::env::var("FLOWCELL_TEST_NEEDS").unwrap_or_default();
        assert!(!needed.split(',').any(|needed| needed == PROGRAM), "{test} needs `{PROGRAM}`");
        eprintln!("skipped: {test}: `{PROGRAM}` is missing");
    }
    found
}

#[tokio::test]
async fn a_streamed_loop_of_tools() {
    let Some(program) = installed("a_streamed_loop_of_tools") else { return };
    let server = Running::start(&program);
    let tools = json!([{ "name": "weather", "description": "Tells.", "inputSchema": { "type": "object" } }]);
    for dialect in DIALECTS {
        let kit = server.kit(dialect);
        let mut messages = vec![json!({ "role": "user", "content": "weather" })];
        let first = kit.generate(&json!({ "messages": messages, "tools": tools })).await.unwrap();
        assert_eq!(first["stop"], "tool_calls", "{dialect}: {first}");
        let blocks = first["content"].as_array().unwrap();
        let call = blocks.iter().find(|block| block["type"] == "tool_use").unwrap();
        assert_eq!((&call["name"], &call["input"]), (&json!("weather"), &json!({ "city": "Köln", "days": [1, 2] })));
        messages.push(json!({ "role": "assistant", "content": blocks }));
        let result = json!({ "type": "tool_result", "toolUseId": call["id"], "content": "rain" });
        messages.push(json!({ "role": "user", "content": [result] }));
        let last = kit.generate(&json!({ "messages": messages, "tools": tools })).await.unwrap();
        assert_eq!((text(&last), &last["stop"]), ("It rains in Köln.", &json!("end")));
        assert_eq!(kit.text_of_events("agent:text"), "It rains in Köln.", "{dialect}");
    }
}

#[tokio::test]
async fn a_text_in_small_pieces() {
    let Some(program) = installed("a_text_in_small_pieces") else { return };
    let server = Running::start(&program);
    for dialect in DIALECTS {
        let kit = server.kit(dialect);
        let reply = kit.ask("hello").await.unwrap();
        assert_eq!(text(&reply), "grüß dich 🦀, how are you today?", "{dialect}");
        assert_eq!(kit.text_of_events("agent:text"), "grüß dich 🦀, how are you today?");
        assert_eq!(reply["stop"], "end", "{dialect}");
    }
}

#[tokio::test]
async fn a_limit_passes() {
    let Some(program) = installed("a_limit_passes") else { return };
    let server = Running::start(&program);
    for dialect in DIALECTS {
        let kit = server.kit(dialect);
        let reply = kit.ask("limited").await.unwrap();
        assert_eq!(text(&reply), "now", "{dialect}");
        assert_eq!(kit.clock.slept(Wait::Backoff), [3_000], "{dialect}: it waits as long as it was asked to");
    }
}

#[tokio::test]
async fn a_stream_that_always_breaks_is_given_up() {
    let Some(program) = installed("a_stream_that_always_breaks_is_given_up") else { return };
    let server = Running::start(&program);
    for dialect in DIALECTS {
        let kit = server.kit(dialect);
        let failure = kit.ask("cut").await.unwrap_err();
        assert_eq!(
            (failure.code.as_str(), failure.retryable),
            ("model_stream_truncated", true),
            "{dialect}: {failure}"
        );
        assert_eq!(kit.events("agent:retry").len(), 2, "{dialect}");
    }
}
