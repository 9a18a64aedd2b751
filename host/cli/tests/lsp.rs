//! Tests `flowcell lsp` as an editor uses it: frames on standard input and output.

#![cfg(unix)]

mod clients;

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError, Sender},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use crate::kit::{flowcell, root};

/// The time after which a program is killed, so that no test waits for ever.
const PATIENCE: Duration = Duration::from_secs(120);

/// Kills a program after [`PATIENCE`], unless the returned value is dropped before.
fn end_in_time(program: &Child) -> Sender<()> {
    let (watched, end) = mpsc::channel();
    let id = program.id().to_string();
    thread::spawn(move || {
        if end.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            let _ = Command::new("kill").args(["-KILL", &id]).status();
        }
    });
    watched
}

/// A language server, and the editor's ends of its pipes.
struct Server {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    requests: u32,
    /// Messages without a request that came in the meantime.
    notes: Vec<Value>,
    _watched: Sender<()>,
}

impl Server {
    fn start(folder: &Path) -> Server {
        let mut command = flowcell(folder);
        command.arg("lsp");
        Server::run(command)
    }

    /// Starts a language server by its command.
    fn run(mut command: Command) -> Server {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let _watched = end_in_time(&child);
        Server { child, input, output, requests: 0, notes: Vec::new(), _watched }
    }

    fn initialized(folder: &Path) -> Server {
        let mut server = Server::start(folder);
        let options = json!({ "initializationOptions": { "edges": "short" } });
        assert_eq!(server.ask("initialize", options)["result"]["serverInfo"]["name"], "flowcell");
        server.tell("initialized", json!({}));
        server
    }

    fn send(&mut self, message: &Value) {
        let body = message.to_string();
        write!(self.input, "Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    }

    fn tell(&mut self, method: &str, params: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    /// Sends a request, and returns its response.
    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.requests += 1;
        let id = self.requests;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        loop {
            let message = self.next();
            // A server numbers its own requests, too.
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
            self.notes.push(message);
        }
    }

    fn next(&mut self) -> Value {
        let mut length = 0;
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the server has ended");
            match line.trim_end().split_once(": ") {
                Some((_, value)) => length = value.parse().unwrap(),
                None => break,
            }
        }
        let mut body = vec![0; length];
        self.output.read_exact(&mut body).unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    /// Returns the next diagnostics of a file.
    fn diagnostics(&mut self, uri: &str) -> Vec<Value> {
        loop {
            let message = if self.notes.is_empty() { self.next() } else { self.notes.remove(0) };
            if message["method"] == "textDocument/publishDiagnostics" && message["params"]["uri"] == uri {
                return message["params"]["diagnostics"].as_array().unwrap().clone();
            }
        }
    }

    fn open(&mut self, uri: &str, text: &str) {
        let document = json!({ "uri": uri, "languageId": "yaml", "version": 1, "text": text });
        self.tell("textDocument/didOpen", json!({ "textDocument": document }));
    }

    /// Asks about the place of a part of a text, at its end.
    fn ask_at(&mut self, method: &str, uri: &str, text: &str, part: &str, more: Value) -> Value {
        let at = text.find(part).unwrap() + part.len();
        let mut params = json!({ "textDocument": { "uri": uri }, "position": position(text, at) });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let reply = self.ask(method, params);
        assert!(reply.get("error").is_none(), "{reply}");
        reply["result"].clone()
    }

    fn end(mut self) -> Option<i32> {
        self.ask("shutdown", Value::Null);
        self.tell("exit", Value::Null);
        self.child.wait().unwrap().code()
    }
}

fn position(text: &str, at: usize) -> Value {
    let before = &text[..at];
    let line = before.matches('\n').count();
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    json!({ "line": line, "character": before[start..].encode_utf16().count() })
}

/// Returns a text with edits of the protocol.
fn applied(text: &str, edits: &Value) -> String {
    let offset = |place: &Value| {
        let line = place["line"].as_u64().unwrap() as usize;
        let start: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
        let mut units = place["character"].as_u64().unwrap() as usize;
        let sign = text[start..].char_indices().find(|(_, sign)| {
            let found = units == 0;
            units = units.saturating_sub(sign.len_utf16());
            found
        });
        start + sign.map_or(text.len() - start, |(at, _)| at)
    };
    let mut edits: Vec<_> = edits.as_array().unwrap().iter().collect();
    edits.sort_by_key(|edit| std::cmp::Reverse(offset(&edit["range"]["start"])));
    edits.iter().fold(text.to_owned(), |text, edit| {
        let (start, end) = (offset(&edit["range"]["start"]), offset(&edit["range"]["end"]));
        format!("{}{}{}", &text[..start], edit["newText"].as_str().unwrap(), &text[end..])
    })
}

fn uri(path: &Path) -> String {
    format!("file://{}", path.display())
}

#[test]
fn an_editor_gets_diagnostics_completions_and_a_renamed_node() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("triage.yaml");
    for name in ["triage.yaml", "triage.test.yaml"] {
        fs::copy(root().join("flows/graph").join(name), folder.path().join(name)).unwrap();
    }
    let text = fs::read_to_string(&path).unwrap();
    let uri_of_flow = uri(&path);
    let mut server = Server::initialized(folder.path());
    server.open(&uri_of_flow, &text);
    assert!(server.diagnostics(&uri_of_flow).is_empty());

    // A change in UTF-16 units: the sign before the place has two of them.
    let at = text.find("control.switch").unwrap() + "control.swit".len();
    let change = |text: &str, at: usize, length: usize, new: &str| json!({ "range": { "start": position(text, at), "end": position(text, at + length) }, "text": new });
    let changes = json!([change(&text, at, 0, "😀"), change(&text.replacen("swit", "swit😀", 1), at + 4, 2, "")]);
    server.tell(
        "textDocument/didChange",
        json!({ "textDocument": { "uri": uri_of_flow, "version": 2 }, "contentChanges": changes }),
    );
    let found = server.diagnostics(&uri_of_flow);
    assert_eq!(found[0]["code"], "unknown_type");
    let changes = json!([{ "text": text }]);
    server.tell(
        "textDocument/didChange",
        json!({ "textDocument": { "uri": uri_of_flow, "version": 3 }, "contentChanges": changes }),
    );
    assert!(server.diagnostics(&uri_of_flow).is_empty());

    let ask = |server: &mut Server, method: &str, part: &str, more: Value| {
        server.ask_at(method, &uri_of_flow, &text, part, more)
    };
    let offered = ask(&mut server, "textDocument/completion", "reply: \"{{ reply.", json!({}));
    assert_eq!(offered["items"][0]["label"], "text");
    let hover = ask(&mut server, "textDocument/hover", "type: control.sw", json!({}));
    assert!(hover["contents"]["value"].as_str().unwrap().contains("`cases`"), "{hover}");
    let place = ask(&mut server, "textDocument/definition", "from: rout", json!({}));
    assert_eq!(place["range"]["start"], position(&text, text.find("id: route").unwrap() + 4));
    let places =
        ask(&mut server, "textDocument/references", "from: rout", json!({ "context": { "includeDeclaration": true } }));
    assert_eq!(places.as_array().unwrap().len(), 11);

    let renamed = ask(&mut server, "textDocument/rename", "id: pag", json!({ "newName": "call" }));
    let flow = applied(&text, &renamed["changes"][&uri_of_flow]);
    let cases = fs::read_to_string(folder.path().join("triage.test.yaml")).unwrap();
    let cases_after = applied(&cases, &renamed["changes"][uri(&folder.path().join("triage.test.yaml"))]);
    fs::write(&path, flow).unwrap();
    fs::write(folder.path().join("triage.test.yaml"), cases_after).unwrap();
    let tested = flowcell(folder.path()).args(["test", "triage.yaml"]).output().unwrap();
    assert!(tested.status.success(), "{}", String::from_utf8_lossy(&tested.stdout));

    let formatted =
        server.ask("textDocument/formatting", json!({ "textDocument": { "uri": uri_of_flow }, "options": {} }));
    assert!(applied(&text, &formatted["result"]).contains("\"route -> page: urgent\""), "{formatted}");
    for method in ["documentSymbol", "foldingRange", "semanticTokens/full"] {
        let reply = server.ask(&format!("textDocument/{method}"), json!({ "textDocument": { "uri": uri_of_flow } }));
        assert!(!reply["result"].is_null() && reply["result"] != json!([]), "{reply}");
    }
    assert_eq!(server.end(), Some(0));
}

#[test]
fn a_quick_fix_writes_the_meant_word() {
    let folder = tempfile::tempdir().unwrap();
    let uri = uri(&folder.path().join("a.yaml"));
    let text = "flow: { name: a }\nnodes: [{ id: x, type: control.nop }]\n";
    let mut server = Server::initialized(folder.path());
    server.open(&uri, text);
    let found = server.diagnostics(&uri);
    let params =
        json!({ "textDocument": { "uri": uri }, "range": found[0]["range"], "context": { "diagnostics": found } });
    let reply = server.ask("textDocument/codeAction", params);
    let edits = &reply["result"][0]["edit"]["changes"][&uri];
    assert_eq!(applied(text, edits), text.replace("nop", "noop"), "{reply}");
    assert_eq!(server.end(), Some(0));
}

#[test]
fn scripts_have_diagnostics_only_and_other_files_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::initialized(folder.path());
    let methods = ["completion", "hover", "definition", "prepareRename"];
    let text = "flow: { name: a }\nnodes: [{ id: x, type: control.nop }]\n";
    let mut has_diagnostics = |name: &str, text: &str| {
        let uri = uri(&folder.path().join(name));
        server.open(&uri, text);
        for method in methods {
            let reply = server.ask_at(&format!("textDocument/{method}"), &uri, text, "x", json!({}));
            assert_eq!(reply, Value::Null, "{method} in {name}");
        }
        !server.diagnostics(&uri).is_empty()
    };
    for name in ["a.test.yaml", "a.test.yml", "flow.schema.json", "agent.md", "yaml"] {
        assert!(!has_diagnostics(name, text), "{name}");
    }
    assert!(has_diagnostics("a.flow.js", "export function run( { x\n"));
    let uri = uri(&folder.path().join("a.yml"));
    server.open(&uri, text);
    assert_eq!(server.diagnostics(&uri)[0]["code"], "unknown_type");
    assert_eq!(server.end(), Some(0));
}

#[test]
fn called_flows_are_found_and_long_lists_go_on_after_further_letters() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("child.json"), "{}").unwrap();
    let nodes: Vec<_> = (0..300).map(|number| format!("{{ id: n{number}, type: control.noop }}")).collect();
    let call = "{ id: call, type: control.subflow, input: { name: child } }";
    let text = format!("flow: {{ name: a }}\nnodes: [{call}, {}]\nedges: [{{ from: n0, to: n }}]\n", nodes.join(", "));
    let uri_of_flow = uri(&folder.path().join("a.yaml"));
    let mut server = Server::initialized(folder.path());
    server.open(&uri_of_flow, &text);
    let found = server.ask_at("textDocument/definition", &uri_of_flow, &text, "name: child", json!({}));
    assert_eq!(found["uri"], uri(&folder.path().join("child.json")));
    let offered = server.ask_at("textDocument/completion", &uri_of_flow, &text, "to: n", json!({}));
    assert_eq!((offered["items"].as_array().unwrap().len(), &offered["isIncomplete"]), (200, &json!(true)));
    let further = text.replace("to: n ", "to: n29 ");
    server.open(&uri_of_flow, &further);
    let offered = server.ask_at("textDocument/completion", &uri_of_flow, &further, "to: n29", json!({}));
    assert_eq!((offered["items"].as_array().unwrap().len(), &offered["isIncomplete"]), (11, &json!(false)));
    assert_eq!(server.end(), Some(0));
}

/// Files, agents and the names of other notations. No file outside of the flow's folder is offered or opened.
#[test]
fn files_beside_a_flow_and_agents_are_found() {
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("flows");
    for (name, text) in [
        ("secret.md", "secret"),
        ("flows/prompts/ask.md", "Ask"),
        ("flows/prompts/x\u{202e}dm.md", "hidden"),
        ("flows/.flowcell/agents/translator.md", "You translate."),
    ] {
        let path = outer.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    std::os::unix::fs::symlink("../secret.md", folder.join("link.md")).unwrap();
    let labels = |reply: &Value| -> Vec<String> {
        reply["items"].as_array().unwrap().iter().map(|item| item["label"].as_str().unwrap().to_owned()).collect()
    };
    let mut server = Server::initialized(&folder);
    let prompts = uri(&folder.join("a.yaml"));
    for (written, found) in [
        ("prompts/ask.md", Some("prompts/ask.md")),
        ("./prompts/ask.md", Some("prompts/ask.md")),
        ("../secret.md", None),
        ("link.md", None),
        ("prompts", None),
        ("/etc/hostname", None),
    ] {
        let text = format!("flow: {{ name: a }}\nnodes: [{{ id: a, type: agent.run, promptFile: {written} }}]\n");
        server.open(&prompts, &text);
        let place = server.ask_at("textDocument/definition", &prompts, &text, "promptFile: ", json!({}));
        let expected = found.map_or(Value::Null, |path| json!(uri(&folder.join(path))));
        assert_eq!(place.get("uri").cloned().unwrap_or_default(), expected, "{written}");
    }
    let text = "flow: { name: a }\nnodes: [{ id: a, type: agent.run, promptFile: p }]\n";
    server.open(&prompts, text);
    let offered = server.ask_at("textDocument/completion", &prompts, text, "promptFile: p", json!({}));
    assert_eq!(labels(&offered), ["prompts/ask.md"]);

    let steps = uri(&folder.join("a-flow.yaml"));
    let text = "flow:\n  steps:\n    - { id: a, agent: translator, prompt: x, rules: [{ then: b }] }\n    - { id: b, agent: t, prompt: x }\n";
    server.open(&steps, text);
    let offered = server.ask_at("textDocument/completion", &steps, text, "agent: t", json!({}));
    assert_eq!(labels(&offered), ["translator"]);
    let place = server.ask_at("textDocument/definition", &steps, text, "agent: trans", json!({}));
    assert_eq!(place["uri"], uri(&folder.join(".flowcell/agents/translator.md")));
    let renamed = server.ask_at("textDocument/rename", &steps, text, "then: b", json!({ "newName": "end" }));
    let expected = text.replace("then: b", "then: end").replace("id: b", "id: end");
    assert_eq!(applied(text, &renamed["changes"][&steps]), expected);
    assert_eq!(server.end(), Some(0));
}

#[test]
fn hostile_messages_get_errors_and_the_server_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path());
    assert_eq!(server.ask("textDocument/hover", json!({}))["error"]["code"], -32002);
    server.ask("initialize", json!({ "capabilities": [1, "x", null] }));
    assert_eq!(server.ask("textDocument/unknown", json!({}))["error"]["code"], -32601);
    assert_eq!(server.ask("textDocument/hover", json!({}))["error"]["code"], -32602);
    let missing = json!({ "textDocument": { "uri": "file:///a.yaml" }, "position": { "line": 0, "character": 0 } });
    assert!(server.ask("textDocument/hover", missing)["error"]["message"].as_str().unwrap().contains("not open"));
    // Bodies that are no messages.
    for body in ["{}", "[]", "nonsense", "{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":1}"] {
        write!(server.input, "Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        assert_eq!(server.next()["error"]["code"], -32700);
    }
    let uri = "untitled:a";
    server.open(uri, "flow: { name: a }\nnodes: [{ id: x, type: control.noop, input: { value: \"😀{{ f\" } }]");
    for (line, character) in [(0, 0), (1, 58), (1, 59), (1, u32::MAX), (u32::MAX, 7)] {
        for method in ["completion", "hover", "definition", "references", "prepareRename"] {
            let params =
                json!({ "textDocument": { "uri": uri }, "position": { "line": line, "character": character } });
            assert!(
                server.ask(&format!("textDocument/{method}"), params).get("error").is_none(),
                "{method} at {line}:{character}"
            );
        }
    }
    for position in [json!({ "line": -1, "character": 0 }), json!({ "line": "x" }), json!(null)] {
        let params = json!({ "textDocument": { "uri": uri }, "position": position });
        assert_eq!(server.ask("textDocument/completion", params)["error"]["code"], -32602);
    }
    // Changes beyond the end, backwards, and of files that are not open.
    let far = json!({ "line": 9_999_999, "character": 9 });
    for range in
        [json!({ "start": far, "end": { "line": 0, "character": 0 } }), json!({ "start": {}, "end": {} }), json!(7)]
    {
        let changes = json!([{ "range": range, "text": "\n# end" }]);
        for uri in [uri, "file:///b.yaml", "", "\u{202e}"] {
            server.tell("textDocument/didChange", json!({ "textDocument": { "uri": uri }, "contentChanges": changes }));
        }
    }
    server.open("file:///deep.yaml", &"[".repeat(200_000));
    server.open("file:///large.yaml", &format!("flow: {{ name: a }}\n# {}", "x".repeat(5 << 20)));
    assert_eq!(server.diagnostics("file:///large.yaml")[0]["code"], "syntax");
    assert_eq!(server.end(), Some(0));
}

#[test]
fn a_stream_that_is_no_protocol_ends_the_server_with_an_error() {
    let folder = tempfile::tempdir().unwrap();
    for (input, code) in [("GET / HTTP/1.1\r\n\r\n", 2), ("Content-Length: x\r\n\r\n", 2), ("", 1)] {
        let mut command = flowcell(folder.path());
        let mut child =
            command.arg("lsp").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code), "{input}");
    }
}
