//! Tests the start and the end of `flowcell serve`.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    thread::JoinHandle,
};

use serde_json::json;

use crate::{
    client::ask,
    kit::{Running, flowcell, output_of, stderr, stdout},
    samples::{asks, hello},
};

/// Starts a server. Returns the process and its address.
pub(crate) fn serve(folder: &Path, arguments: &[&str]) -> (Running, SocketAddr) {
    let (child, address, _) = serve_with_output(folder, arguments);
    (child, address)
}

/// Starts a server. Returns the process, its address, and a thread that collects its later output.
pub(crate) fn serve_with_output(folder: &Path, arguments: &[&str]) -> (Running, SocketAddr, JoinHandle<Vec<String>>) {
    serve_by(flowcell(folder), arguments)
}

/// Starts a server by a prepared command, as [`serve_with_output`] does.
pub(crate) fn serve_by(mut command: Command, arguments: &[&str]) -> (Running, SocketAddr, JoinHandle<Vec<String>>) {
    command.args(["serve", "--listen", "127.0.0.1:0"]).args(arguments).stderr(Stdio::piped());
    let mut child = Running::from(command.spawn().unwrap());
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut seen = Vec::new();
    let address = loop {
        let line = lines.next().unwrap_or_else(|| panic!("it does not listen: {seen:?}"));
        // The line is text, or a JSON object with the text.
        if let Some((_, address)) = line.split_once("listening on ").and_then(|(_, url)| url.split_once("://")) {
            break address.trim_end_matches(['"', '}']).parse().unwrap();
        }
        seen.push(line);
    };
    // Read the later output, so that the process does not block.
    (child, address, std::thread::spawn(move || lines.collect()))
}

/// Returns the memory of a process in KiB: `VmRSS` now, or `VmHWM` at its peak.
pub(crate) fn memory(process: u32, what: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(':'))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

/// Asks the process to stop. Returns its exit code.
#[track_caller]
pub(crate) fn stop(child: impl Into<Running>) -> Option<i32> {
    let mut child = child.into();
    send_term(&child);
    let status = child.wait().unwrap();
    assert!(status.code().is_some(), "it did not end by itself: {status}");
    status.code()
}

fn send_term(child: &Child) {
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
}

#[test]
fn a_server_whose_test_fails_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let (child, address) = serve(folder.path(), &[]);
    drop(child);
    assert!(std::net::TcpStream::connect(address).is_err(), "its process has ended");
}

#[test]
fn a_server_goes_on_for_its_drain_delay() {
    let folder = tempfile::tempdir().unwrap();
    let (child, address) = serve(folder.path(), &["--drain-delay", "10m"]);
    let ready = || ask(address, "GET", "/readyz", &[], "");
    assert_eq!(ready().status, 200);
    send_term(&child);
    let refused = std::iter::repeat_with(ready).take(100_000).find(|response| response.status == 503).unwrap();
    assert_eq!(refused.json()["error"]["code"], "draining");
    let run = ask(address, "POST", "/v1/runs?wait=true", &[], &json!({ "flow": hello() }).to_string());
    assert_eq!((run.status, run.json()["status"].as_str()), (201, Some("succeeded")), "{}", run.json());
    // The second signal does not wait.
    assert_eq!(stop(child), Some(143));
}

#[test]
fn a_server_stops_cleanly_and_the_next_resumes_its_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (child, address) = serve(folder.path(), &[]);
    let get = |address, path| ask(address, "GET", path, &[], "");
    assert_eq!((get(address, "/healthz").status, get(address, "/readyz").status), (200, 200));
    let version = get(address, "/version").json();
    assert_eq!(version["flowcell"], env!("CARGO_PKG_VERSION"));
    let manifest = std::fs::read_to_string(crate::kit::root().join("Cargo.toml")).unwrap();
    let engine = version["engine"].as_str().unwrap().strip_prefix("wasmtime ").unwrap();
    assert!(manifest.contains(&format!("wasmtime = {{ version = \"{engine}.")), "{version}");
    let timer = json!({
        "flow": { "name": "timer" },
        "nodes": [{ "id": "hold", "type": "control.wait", "input": { "ms": 600_000 } }],
    });
    for (flow, run) in [(timer, "t"), (asks(), "g"), (hello(), "h")] {
        let body = json!({ "flow": flow, "runId": run }).to_string();
        assert_eq!(ask(address, "POST", "/v1/runs", &[], &body).status, 201);
    }
    assert_eq!(stop(child), Some(0));
    let (child, address) = serve(folder.path(), &[]);
    let reply = ask(address, "POST", "/v1/runs/g/gates/ok/reply", &[], r#"{"answer":"yes"}"#);
    assert_eq!(reply.status, 200, "{reply:?}");
    let body = json!({ "flow": asks(), "runId": "g" }).to_string();
    assert_eq!(ask(address, "POST", "/v1/runs?wait=true", &[], &body).json()["outputs"]["said"], "yes");
    // A run that was parked by the server's end is resumed, and then evicted.
    let status = || get(address, "/v1/runs/t").json()["status"].clone();
    assert!((0..20_000).any(|_| status() == "parked"), "{}", status());
    // Another process sends a command through the socket, and the server drives the run.
    let cancelled = output_of(folder.path(), &["runs", "cancel", "t"]);
    assert!(cancelled.status.success(), "{}", stderr(&cancelled));
    let stream = ask_until_end(address, "t");
    assert!(stream.contains("\"status\":\"cancelled\""), "{stream}");
    assert_eq!(stop(child), Some(0));
}

/// Waits for the end of a run's event stream. Returns the events.
fn ask_until_end(address: SocketAddr, run: &str) -> String {
    let stream = crate::client::connect(address);
    let path = format!("/v1/runs/{run}/events/stream");
    crate::client::send(&stream, address, "GET", &path, &[("Connection", "close")], "");
    std::io::read_to_string(stream).unwrap()
}

#[test]
fn t7_a_server_without_tokens_serves_only_its_own_machine() {
    let folder = tempfile::tempdir().unwrap();
    let output = output_of(folder.path(), &["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("requires no tokens"), "{}", stderr(&output));
    let output = output_of(folder.path(), &["serve", "--store", "memory:"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}

#[test]
fn a_server_requires_tokens_once_a_tenant_exists() {
    let folder = tempfile::tempdir().unwrap();
    let (child, address) = serve(folder.path(), &[]);
    let runs = |token: Option<&str>| {
        let header = token.map(|token| format!("Bearer {token}"));
        let headers: Vec<_> = header.iter().map(|header| ("Authorization", header.as_str())).collect();
        ask(address, "GET", "/v1/runs", &headers, "")
    };
    assert_eq!((runs(None).status, runs(Some("fct_a_b")).status), (200, 200));
    let made = output_of(folder.path(), &["tenant", "create", "a"]);
    assert!(made.status.success(), "{}", stderr(&made));
    assert!(stderr(&made).contains("refuse all requests without a token"), "{}", stderr(&made));
    let second = output_of(folder.path(), &["tenant", "create", "b"]);
    assert!(second.status.success() && !stderr(&second).contains("token"), "{}", stderr(&second));
    let token = output_of(folder.path(), &["token", "create", "a"]);
    let token: serde_json::Value = serde_json::from_str(&stdout(&token)).unwrap();
    // The first token makes every request without one fail.
    assert_eq!(runs(Some("fct_a_b")).fault(), (401, "unauthorized".into()));
    assert_eq!(runs(None).fault(), (401, "unauthorized".into()));
    assert_eq!(runs(token["token"].as_str()).status, 200);
    assert_eq!(stop(child), Some(0));
    // The next server also refuses them. It drives the operator's own runs, too.
    let detached = output_of(folder.path(), &["run", "--detach", "--run-id", "l", &hello_file(folder.path())]);
    assert!(detached.status.success(), "{}", stderr(&detached));
    let (child, address) = serve(folder.path(), &[]);
    assert_eq!(ask(address, "GET", "/v1/runs", &[], "").status, 401);
    let shown = std::iter::repeat_with(|| stdout(&output_of(folder.path(), &["runs", "show", "l", "--json"])));
    let ended = shown.take(500).find(|shown| shown.contains("\"succeeded\""));
    assert!(ended.is_some(), "the run of `local` is not driven");
    assert_eq!(stop(child), Some(0));
}

fn hello_file(folder: &Path) -> String {
    let file = folder.join("hello.json");
    std::fs::write(&file, hello().to_string()).unwrap();
    file.display().to_string()
}

#[test]
fn r6_a_damaged_run_shows_its_other_parts() {
    let folder = tempfile::tempdir().unwrap();
    let (child, address) = serve(folder.path(), &[]);
    for run in ["start", "end", "record", "whole"] {
        let body = json!({ "flow": asks(), "runId": run, "input": { "amount": 7 } }).to_string();
        assert_eq!(ask(address, "POST", "/v1/runs?wait=true", &[], &body).status, 201);
        let reply = format!("/v1/runs/{run}/gates/ok/reply");
        assert_eq!(ask(address, "POST", &reply, &[], &json!({ "answer": "yes" }).to_string()).status, 200);
        let status = || ask(address, "GET", &format!("/v1/runs/{run}"), &[], "").json()["status"].clone();
        assert!(std::iter::repeat_with(status).take(10_000).any(|status| status == "succeeded"));
    }
    assert_eq!(stop(child), Some(0));
    let database = rusqlite::Connection::open(folder.path().join(".flowcell/flowcell.db")).unwrap();
    let damage = |sql: &str| assert_eq!(database.execute(sql, []).unwrap(), 1, "{sql}");
    let units = "UPDATE units SET body = replace(body, 'u', 'v') WHERE";
    damage(&format!("{units} run = (SELECT id FROM runs WHERE run = 'start') AND first_seq = 0"));
    damage(&format!(
        "{units} (run, first_seq) = (SELECT run, max(first_seq) FROM units
        WHERE run = (SELECT id FROM runs WHERE run = 'end'))"
    ));
    damage("UPDATE runs SET record = '{' WHERE run = 'record'");
    drop(database);
    let (child, address) = serve(folder.path(), &[]);
    let shown = |run: &str| {
        let answer = ask(address, "GET", &format!("/v1/runs/{run}"), &[], "");
        assert_eq!((answer.status, &answer.json()["status"]), (200, &json!("succeeded")), "{answer:?}");
        answer.json()
    };
    let is_damage = |reason: &serde_json::Value| reason.as_str().is_some_and(|reason| reason.contains("damaged"));
    let (input, outputs) = (json!({ "amount": 7 }), json!({ "said": "yes" }));
    let whole = shown("whole");
    assert_eq!((&whole["input"], &whole["outputs"]), (&input, &outputs), "{whole}");
    for (run, unknown) in [("start", "inputUnknown"), ("end", "outputsUnknown"), ("record", "packsUnknown")] {
        let shown = shown(run);
        for (name, value, expected) in [("inputUnknown", "input", &input), ("outputsUnknown", "outputs", &outputs)] {
            let expected = if name == unknown { &serde_json::Value::Null } else { expected };
            assert_eq!(&shown[value], expected, "{run}: {shown}");
        }
        assert!(is_damage(&shown[unknown]), "{run}: {shown}");
    }
    assert!(whole.as_object().unwrap().keys().all(|name| !name.ends_with("Unknown")), "{whole}");
    assert_eq!(stop(child), Some(0));
}
