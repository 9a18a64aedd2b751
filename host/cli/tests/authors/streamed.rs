//! Answers that nodes in all three languages read while they arrive, and what a killed process makes of them.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    authors::language::{Language, done, flowcell, project},
    kit,
};

const MANIFEST: &str = "name: brook
version: 0.1.0
nodes:
  - { type: brook.follow, title: Follow, input: {}, output: {}, capabilities: [{ name: http, reason: reads }, { name: log, reason: tells }] }
  - { type: brook.pair, title: Pair, input: {}, output: {}, capabilities: [{ name: http, reason: reads }] }
";

/// `brook.follow` logs the data of each event. `brook.pair` reads the lines of two answers in turn.
const RUST: &str = r#"
use flowcell_sdk::{http, log, prelude::*};

#[derive(Deserialize)]
struct Input {
    url: String,
}

fn follow(input: Input) -> Result<Value> {
    let mut seen = Vec::new();
    for event in http::open(http::Request::new("GET", &input.url))?.events() {
        let event = event?;
        log::info(&event.data);
        seen.push(json!([event.name, event.data]));
    }
    Ok(json!({ "seen": seen }))
}

fn pair(input: Input) -> Result<Value> {
    let mut one = http::open(http::Request::new("GET", &input.url))?;
    let mut two = http::open(http::Request::new("GET", &input.url))?;
    let mut lines = Vec::new();
    while let (Some(left), Some(right)) = (one.lines().next().transpose()?, two.lines().next().transpose()?) {
        lines.push(format!("{left}{right}"));
    }
    Ok(json!({ "lines": lines }))
}

flowcell_sdk::pack! {
    manifest: "node.yaml",
    "brook.follow" => follow,
    "brook.pair" => pair,
}
"#;

const JS: &str = r#"
import { http, log, pack } from "flowcell-sdk";

function follow({ input }) {
  const seen = [];
  for (const { name, data } of http.open({ url: input.url }).events()) {
    log.info(data);
    seen.push([name, data]);
  }
  return { seen };
}

function pair({ input }) {
  const [one, two] = [http.open({ url: input.url }).lines(), http.open({ url: input.url }).lines()];
  const lines = [];
  for (;;) {
    const [left, right] = [one.next(), two.next()];
    if (left.done || right.done) return { lines };
    lines.push(left.value + right.value);
  }
}

export const node = pack({ "brook.follow": follow, "brook.pair": pair });
"#;

const PYTHON: &str = r#"
from flowcell_sdk import Task, http, log, pack


def follow(task: Task) -> dict:
    seen = []
    for event in http.open(http.Request(task.input["url"])).events():
        log.info(event.data)
        seen.append([event.name, event.data])
    return {"seen": seen}


def pair(task: Task) -> dict:
    one, two = (http.open(http.Request(task.input["url"])).lines() for _ in range(2))
    return {"lines": [left + right for left, right in zip(one, two)]}


Node = pack({"brook.follow": follow, "brook.pair": pair})
"#;

fn brook(language: Language) -> (TempDir, PathBuf) {
    let (folder, project) = project("brook", language);
    let code = match language {
        Language::Rust => RUST,
        Language::Python => PYTHON,
        _ => JS,
    };
    fs::write(project.join(language.code()), code).unwrap();
    fs::write(project.join("node.yaml"), MANIFEST).unwrap();
    done(flowcell(&project).args(["node", "build"]));
    (folder, project)
}

/// A server that passes the connection of each request, whose head it has read, to `react`, with the number of earlier
/// requests.
struct Server {
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
}

impl Server {
    fn start(react: impl Fn(&mut TcpStream, usize) + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (requests, react) = (Arc::new(AtomicUsize::new(0)), Arc::new(react));
        let counted = requests.clone();
        thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let (react, before) = (react.clone(), counted.fetch_add(1, Ordering::SeqCst));
                thread::spawn(move || {
                    let (mut reader, mut line) = (BufReader::new(stream.try_clone().unwrap()), String::new());
                    while reader.read_line(&mut line).unwrap_or(0) > 2 {
                        line.clear();
                    }
                    react(&mut stream, before);
                });
            }
        });
        Server { address, requests }
    }

    fn flow(&self, node: &str, policy: Value) -> Value {
        let origin = format!("http://{}", self.address);
        let grants = json!({ "http": [origin] });
        let node =
            json!({ "id": "read", "type": node, "input": { "url": origin }, "grants": grants, "policy": policy });
        json!({ "flow": { "name": "brook", "outputs": { "all": "{{ read }}" } }, "nodes": [node] })
    }
}

/// Sends a chunk of a body. Does nothing if the client is gone.
fn send(stream: &mut TcpStream, bytes: &[u8]) {
    _ = write!(stream, "{:x}\r\n", bytes.len())
        .and_then(|()| stream.write_all(bytes))
        .and_then(|()| stream.write_all(b"\r\n"));
}

fn begin(stream: &mut TcpStream) {
    stream.set_nodelay(true).unwrap();
    _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n");
}

fn end(stream: &mut TcpStream) {
    _ = stream.write_all(b"0\r\n\r\n");
}

fn run(project: &Path, server: &Server, node: &str) -> Value {
    fs::write(project.join("flow.json"), server.flow(node, json!({})).to_string()).unwrap();
    let address = server.address.to_string();
    let mut command = flowcell(project);
    command.args(["run", "flow.json", "--quiet", "--allow-private", &address, "--packs", "dist"]);
    let outputs: Value = serde_json::from_str(&done(&mut command)).unwrap();
    outputs["all"].clone()
}

#[test]
fn nodes_in_all_languages_read_events_that_are_cut_anywhere() {
    let text = "\u{feff}: hi\r\nevent: grüße\r\ndata: 🦀\r\ndata: b\r\n\r\ndata:c\r\rdata: d\n\n";
    let server = Server::start(move |stream, _| {
        begin(stream);
        text.as_bytes().chunks(1).for_each(|byte| send(stream, byte));
        end(stream);
    });
    for language in Language::WITH_SDK.into_iter().filter(|language| language.is_there("streamed answers")) {
        let (_folder, project) = brook(language);
        let expected = json!({ "seen": [["grüße", "🦀\nb"], ["message", "c"], ["message", "d"]] });
        assert_eq!(run(&project, &server, "brook.follow"), expected, "{language:?}");
    }
}

#[test]
fn two_answers_are_read_in_turn() {
    let server = Server::start(|stream, before| {
        begin(stream);
        (0..3).for_each(|line| send(stream, format!("{before}{line}\n").as_bytes()));
        end(stream);
    });
    for language in Language::WITH_SDK.into_iter().filter(|language| language.is_there("two answers")) {
        let (_folder, project) = brook(language);
        let first = server.requests.load(Ordering::SeqCst);
        let line = |line: usize| format!("{first}{line}{}{line}", first + 1);
        let expected = json!({ "lines": [line(0), line(1), line(2)] });
        assert_eq!(run(&project, &server, "brook.pair"), expected, "{language:?}");
    }
}

/// Reads the body of `fetch` in pieces, as a whole, and only at its beginning.
const FETCHED: &str = r#"
import { pack } from "flowcell-sdk";

async function fetched({ input }) {
  const answer = await fetch(input.url, { stream: true });
  const decoder = new TextDecoder();
  const texts = [];
  for await (const chunk of answer.body) texts.push(decoder.decode(chunk, { stream: true }));
  const left = await fetch(input.url, { stream: true });
  const reader = left.body.getReader();
  const first = await reader.read();
  await reader.cancel();
  const { done } = await reader.read();
  const whole = await fetch(input.url, { stream: true });
  let clone;
  try {
    whole.clone();
  } catch (error) {
    clone = error.name;
  }
  const used = [answer.bodyUsed, whole.bodyUsed];
  return { joined: texts.join(""), begun: first.value.length > 0, done, whole: await whole.text(), clone, used };
}

export const node = pack({ "brook.fetched": fetched });
"#;

#[test]
fn the_body_of_fetch_is_read_while_it_arrives() {
    if !Language::Js.is_there("the body of fetch") {
        return;
    }
    let server = Server::start(|stream, before| {
        begin(stream);
        "grüße".as_bytes().chunks(1).for_each(|byte| send(stream, byte));
        if before == 1 {
            // This answer ends only when the node closes the connection.
            _ = stream.read_to_end(&mut Vec::new());
        }
        end(stream);
    });
    let (_folder, project) = project("brook", Language::Js);
    fs::write(project.join(Language::Js.code()), FETCHED).unwrap();
    let first = MANIFEST.lines().take(3).collect::<Vec<_>>().join("\n");
    let last = MANIFEST.lines().last().unwrap().replace("brook.pair", "brook.fetched");
    fs::write(project.join("node.yaml"), format!("{first}\n{last}\n")).unwrap();
    done(flowcell(&project).args(["node", "build"]));
    let expected = json!({ "joined": "grüße", "begun": true, "done": true, "whole": "grüße", "clone": "TypeError",
        "used": [true, false] });
    assert_eq!(run(&project, &server, "brook.fetched"), expected);
}

/// The first answer stops after two events, and the second has three.
fn stopping() -> Server {
    Server::start(move |stream, before| {
        begin(stream);
        send(stream, b"data: one\n\n");
        send(stream, b"data: two\n\nda");
        if before > 0 {
            send(stream, b"ta: three\n\n");
            return end(stream);
        }
        // Returns when the client has closed the connection.
        _ = stream.read_to_end(&mut Vec::new());
    })
}

/// Runs the flow until the node has logged `two`, and kills the process.
fn kill_after_two(project: &Path, server: &Server) {
    let address = server.address.to_string();
    let mut command = flowcell(project);
    command.args(["run", "flow.json", "--run-id", "r", "--quiet", "--events", "-", "--allow-private", &address]);
    let mut child = command.args(["--packs", "dist"]).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let heard =
        lines.filter_map(|line| serde_json::from_str::<Value>(&line).ok()).any(|event| event["message"] == "two");
    assert!(heard, "the process ended by itself");
    assert!(Command::new("kill").args(["-9", &child.id().to_string()]).status().unwrap().success());
    assert!(!child.wait().unwrap().success());
}

#[test]
fn a_stream_that_a_killed_process_read_is_interrupted_and_not_read_again_silently() {
    let (_folder, project) = brook(Language::Rust);
    for attempts in [1, 2] {
        let server = stopping();
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("dist")).unwrap();
        fs::copy(project.join("dist/brook.wasm"), folder.path().join("dist/brook.wasm")).unwrap();
        let retry = json!({ "retry": { "maxAttempts": attempts, "backoffMs": 1 } });
        fs::write(folder.path().join("flow.json"), server.flow("brook.follow", retry).to_string()).unwrap();
        kill_after_two(folder.path(), &server);
        let address = server.address.to_string();
        let mut command = flowcell(folder.path());
        command.args(["runs", "resume", "r", "--json", "--quiet", "--allow-private", &address, "--packs", "dist"]);
        let resumed = command.output().unwrap();
        let told: Value =
            serde_json::from_slice(&resumed.stdout).unwrap_or_else(|_| panic!("{}", kit::stderr(&resumed)));
        let events = kit::events(folder.path(), "r");
        let said = |text: &str| events.iter().filter(|event| event["message"] == text).count();
        if attempts == 1 {
            let error = &told["error"];
            assert_eq!((&error["code"], &error["retryable"]), (&json!("stream_interrupted"), &json!(true)), "{told}");
            assert_eq!(error["details"]["received"], json!(24), "{told}");
            assert_eq!(server.requests.load(Ordering::SeqCst), 1, "the request is not sent again");
            // The repeated attempt gets both events from the record. It logs `two` again if its process was killed before
            // the read that follows was recorded.
            assert_eq!(said("one"), 1);
            assert!((1..=2).contains(&said("two")), "{}", said("two"));
        } else {
            let all = json!([["message", "one"], ["message", "two"], ["message", "three"]]);
            assert_eq!(told["outputs"]["all"]["seen"], all, "{told}");
            assert_eq!(server.requests.load(Ordering::SeqCst), 2, "a retry sends the request again");
        }
    }
}
