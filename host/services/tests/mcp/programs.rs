//! Servers that are programs: their start, their environment, and their end.

use std::{fs, path::Path, time::Duration};

use flowcell_mcpfake::Plan;
use serde_json::json;
use tokio::time::Instant;

use crate::mcp::kit::{CANARY, Kit, LONG, fake};

#[tokio::test]
async fn a_program_has_only_the_configured_environment() {
    let mut server = fake(&Plan::default());
    server["env"] = json!({ "TOKEN": { "keyEnv": "CANARY", "prefix": "t-" }, "LEVEL": "high" });
    let mut passing = fake(&Plan::default());
    passing["env"] = json!(["NOT_SET", "CANARY"]);
    let kit = Kit::of(&json!({ "set": server, "passed": passing }));
    let lines = |text: serde_json::Value| {
        let mut lines: Vec<String> = text.as_str().unwrap().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(lines(kit.call("set", "environment", json!({})).await.unwrap()), ["LEVEL=high", "TOKEN=t-[key]"]);
    let passed = lines(kit.call("passed", "environment", json!({})).await.unwrap());
    assert_eq!(passed, [format!("CANARY={CANARY}")]);
}

#[tokio::test]
async fn r22_a_program_that_cannot_start_fails_the_call() {
    let mute = |start: u64| {
        let mut server = fake(&Plan { mute: true, ..Plan::default() });
        server["startMs"] = json!(start);
        server
    };
    let mut keyless = fake(&Plan::default());
    keyless["env"] = json!({ "TOKEN": { "keyEnv": "NOT_SET" } });
    let table = [
        (json!({ "command": "no-such-program-here" }), "mcp_connect", false, "the program does not exist"),
        (json!({ "command": "/dev/null" }), "mcp_connect", false, "cannot start `/dev/null`: "),
        (json!({ "command": "sh", "cwd": "/no/such/folder" }), "mcp_connect", false, "its folder does not exist"),
        (fake(&Plan { stillborn: true, ..Plan::default() }), "mcp_connect", true, "exit status: 3"),
        (mute(30), "mcp_connect", true, "not ready within 30 ms"),
        (keyless, "mcp_auth", false, "NOT_SET: it is not set"),
    ];
    for (server, code, retryable, sentence) in table {
        let kit = Kit::of(&json!({ "it": server }));
        let failure = kit.call("it", "echo", json!({})).await.unwrap_err();
        assert_eq!((failure.code.as_str(), failure.retryable), (code, retryable), "{failure}");
        assert!(failure.message.starts_with("it: ") && failure.message.contains(sentence), "{failure}");
        assert!(flowcell_services::mcp::certainly_not_called(&failure));
    }
}

#[tokio::test]
async fn r22_a_program_that_ended_is_started_again() {
    let kit = Kit::of(&json!({ "fake": fake(&Plan::default()) }));
    for _ in 0..3 {
        let failure = kit.call("fake", "crash", json!({})).await.unwrap_err();
        assert!(failure.code == "mcp_broken" && failure.message.contains("exit status: 3"), "{failure}");
        assert!(!flowcell_services::mcp::certainly_not_called(&failure));
    }
    assert_eq!(kit.call("fake", "echo", json!({ "text": "a" })).await.unwrap(), json!("a"));
}

#[tokio::test]
async fn one_program_serves_all_calls_at_once() {
    let kit = Kit::of(&json!({ "fake": fake(&Plan::default()) }));
    let calls = (0..50).map(|number| {
        let text = format!("call {number}");
        let kit = &kit;
        async move { assert_eq!(kit.call("fake", "echo", json!({ "text": text })).await.unwrap(), json!(text)) }
    });
    futures_util::future::join_all(calls).await;
}

#[tokio::test]
async fn calls_beyond_the_limit_wait_for_their_turn() {
    let mut server = fake(&Plan::default());
    server["maxCalls"] = json!(1);
    let kit = Kit::of(&json!({ "fake": server }));
    kit.names("fake").await;
    let long = kit.call_within("fake", "slow", json!({}), Duration::from_millis(60));
    let short = async {
        tokio::task::yield_now().await;
        kit.call_within("fake", "echo", json!({ "text": "a" }), Duration::from_millis(20)).await
    };
    let (long, short) = tokio::join!(long, short);
    assert_eq!(long.unwrap_err().code, "mcp_timeout");
    assert_eq!(short.unwrap_err().code, "mcp_connect");
    assert_eq!(kit.call("fake", "echo", json!({ "text": "a" })).await.unwrap(), json!("a"));
}

/// Returns true if a process runs. A zombie does not count.
fn runs(id: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

async fn until(what: impl Fn() -> bool) {
    let begin = Instant::now();
    while !what() {
        assert!(begin.elapsed() < LONG, "it never happened");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn r22_all_processes_of_a_program_are_killed() {
    let folder = tempfile::tempdir().unwrap();
    let fake = fake(&Plan::default());
    let script = "sleep 600 & echo $! > child; echo $$ > own; exec \"$0\" \"$1\"";
    let server = json!({ "command": "/bin/sh", "args": ["-c", script, fake["command"], fake["args"][0]],
        "cwd": folder.path(), "env": ["PATH"] });
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap().trim().to_owned();
    for crash in [false, true] {
        let kit = Kit::of(&json!({ "it": server }));
        kit.names("it").await;
        let (own, child) = (read("own"), read("child"));
        assert!(runs(&own) && runs(&child));
        if crash {
            kit.call("it", "crash", json!({})).await.unwrap_err();
        } else {
            drop(kit);
        }
        until(|| !runs(&child)).await;
        // The program itself is reaped too.
        until(|| !Path::new(&format!("/proc/{own}")).exists()).await;
    }
}
