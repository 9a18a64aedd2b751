//! Tests with `everything`, a reference server of the protocol, over both transports.

use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use flowcell_services::mcp::certainly_not_called;
use serde_json::{Value, json};

use crate::mcp::kit::{CANARY, Kit, installed, program};

const PROGRAM: &str = "mcp-server-everything";

/// Runs the same checks over any transport.
async fn one_of_everything(kit: &Kit) {
    let names = kit.names("every").await;
    for name in ["echo", "get-sum", "get-tiny-image", "get-structured-content", "trigger-long-running-operation"] {
        assert!(names.iter().any(|own| own == name), "{name}: {names:?}");
    }
    let echo = kit.call("every", "echo", json!({ "message": "hallo ü" })).await.unwrap();
    assert_eq!(echo, json!("Echo: hallo ü"));
    let sum = kit.call("every", "get-sum", json!({ "a": 2, "b": 3 })).await.unwrap();
    assert!(sum.as_str().unwrap().contains('5'), "{sum}");
    let structured = kit.call("every", "get-structured-content", json!({ "location": "New York" })).await.unwrap();
    assert!(structured["temperature"].is_number(), "{structured}");
    let image = kit.call("every", "get-tiny-image", json!({})).await.unwrap();
    let block = image.as_array().unwrap().iter().find(|block| block["type"] == "image").unwrap();
    let (bytes, mime) = kit.file(&block["file"]);
    assert_eq!((&bytes[1..4], mime.as_str()), (&b"PNG"[..], "image/png"));
    let steps = json!({ "duration": 0.05, "steps": 3 });
    kit.call("every", "trigger-long-running-operation", steps).await.unwrap();
    let told: Vec<Value> = kit.told.lock().unwrap().iter().map(|told| told["progress"].clone()).collect();
    assert_eq!(told, [json!(1.0), json!(2.0), json!(3.0)]);
    let wrong = kit.call("every", "get-sum", json!({ "a": "two" })).await.unwrap_err();
    assert!(["tool_failed", "invalid_input"].contains(&wrong.code.as_str()) && !wrong.retryable, "{wrong}");
    let unknown = kit.call("every", "no-such-tool", json!({})).await.unwrap_err();
    assert!(["tool_failed", "invalid_input"].contains(&unknown.code.as_str()), "{unknown}");
}

#[tokio::test]
async fn everything_over_standard_input_and_output() {
    let Some(path) = installed(PROGRAM, "everything_over_standard_input_and_output") else { return };
    let mut server = program(&path, &["stdio"]);
    server["env"] = json!({ "PATH": std::env::var("PATH").unwrap(), "TOKEN": { "keyEnv": "CANARY" } });
    let kit = Kit::of(&json!({ "every": server }));
    one_of_everything(&kit).await;
    let environment = kit.call("every", "get-env", json!({})).await.unwrap();
    let text = environment.as_str().unwrap();
    assert!(text.contains("\"TOKEN\": \"[key]\"") && !text.contains(CANARY), "{text}");
    assert!(!text.contains("CARGO"), "the rest of the environment stays here: {text}");
}

/// The process of the server is killed in the middle of a call.
#[cfg(unix)]
#[tokio::test]
async fn r22_everything_is_killed_and_started_again() {
    let Some(path) = installed(PROGRAM, "r22_everything_is_killed_and_started_again") else { return };
    let folder = tempfile::tempdir().unwrap();
    let server = json!({ "command": "/bin/sh", "args": ["-c", "echo $$ > own; exec \"$0\" stdio", path],
        "cwd": folder.path(), "env": ["PATH"] });
    let kit = Kit::of(&json!({ "every": server }));
    for _ in 0..3 {
        kit.told.lock().unwrap().clear();
        let steps = json!({ "duration": 600, "steps": 60_000 });
        let killing = async {
            while kit.told.lock().unwrap().is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let own = std::fs::read_to_string(folder.path().join("own")).unwrap();
            Command::new("kill").args(["-9", own.trim()]).status().unwrap();
        };
        let (ended, ()) = tokio::join!(kit.call("every", "trigger-long-running-operation", steps), killing);
        let failure = ended.unwrap_err();
        assert!(failure.code == "mcp_broken" && !certainly_not_called(&failure), "{failure}");
        let echo = kit.call("every", "echo", json!({ "message": "again" })).await.unwrap();
        assert_eq!(echo, json!("Echo: again"));
    }
}

/// A server that runs until this is dropped.
struct Running {
    child: Child,
    port: u16,
}

impl Running {
    fn start(path: &Path) -> Running {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(path);
        command.arg("streamableHttp").env("PORT", port.to_string());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("listening") {
            line.clear();
            assert!(errors.read_line(&mut line).unwrap() > 0, "the server ended");
        }
        // The server stops if its output is not read.
        std::thread::spawn(move || drop(errors.read_to_end(&mut Vec::new())));
        Running { child, port }
    }

    fn server(&self) -> Value {
        let address = format!("127.0.0.1:{}", self.port);
        json!({ "url": format!("http://{address}/mcp"), "allowPrivate": [address],
            "headers": { "Authorization": { "keyEnv": "CANARY" } } })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[tokio::test]
async fn everything_over_http() {
    let Some(path) = installed(PROGRAM, "everything_over_http") else { return };
    let running = Running::start(&path);
    let kit = Kit::of(&json!({ "every": running.server() }));
    one_of_everything(&kit).await;
}
