//! Measures `flowcell lsp` with flows of three lengths: the time from a request to its reply and from a change to the
//! diagnostics, and the memory of the process.

use std::{
    fmt::Write as _,
    io::{BufRead, BufReader, Read, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{flowcell, memory_of, ms};

/// The number of requests of each kind for a figure.
const REQUESTS: usize = 200;

/// A language server, and the editor's ends of its pipes.
struct Server {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

pub(super) fn editor(folder: &Path) {
    for lines in [50, 500, 5_000] {
        let mut server = Server::start(folder);
        let empty = memory_of(server.child.id(), "VmRSS").unwrap();
        let text = long_flow(lines);
        let rows: Vec<_> = text.lines().collect();
        server.tell("textDocument/didOpen", json!({ "textDocument": file(json!({ "text": text, "version": 0 })) }));
        assert_eq!(server.diagnostics(), json!([]));
        let (mut changes, mut completions, mut hovers) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..REQUESTS {
            // A place in each part of the text: the middle of a line.
            let line = number * rows.len() / REQUESTS;
            let at = json!({ "line": line, "character": rows[line].len() / 2 });
            let params = json!({ "textDocument": file(json!({})), "position": at });
            completions.push(server.ask("textDocument/completion", &params));
            hovers.push(server.ask("textDocument/hover", &params));
            // A typed character, and its deletion.
            let end = json!({ "line": line, "character": rows[line].len() });
            let behind = json!({ "line": line, "character": rows[line].len() + 1 });
            for (range, text) in [((&end, &end), " "), ((&end, &behind), "")] {
                let change = json!({ "range": { "start": range.0, "end": range.1 }, "text": text });
                let since = Instant::now();
                let version = file(json!({ "version": number }));
                server.tell("textDocument/didChange", json!({ "textDocument": version, "contentChanges": [change] }));
                assert_eq!(server.diagnostics(), json!([]));
                changes.push(since.elapsed());
            }
        }
        let memory = memory_of(server.child.id(), "VmHWM").unwrap();
        let shown =
            [("diagnostics", changes), ("completion", completions), ("hover", hovers)].map(|(name, mut times)| {
                times.sort_unstable();
                let of = |per_cent: usize| ms(times[times.len() * per_cent / 100]);
                format!("{name} {:.1} ms, 99th of 100 {:.1} ms, fastest {:.1} ms", of(50), of(99), of(0))
            });
        println!(
            "an editor with {lines} lines: {}; memory {:.0} MiB, without a file {:.0} MiB",
            shown.join("; "),
            memory as f64 / 1024.0,
            empty as f64 / 1024.0
        );
        server.child.kill().unwrap();
        server.child.wait().unwrap();
    }
}

impl Server {
    fn start(folder: &Path) -> Server {
        let mut command = flowcell(&folder.join("cache"), &folder.join("state"));
        command.arg("lsp").current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut server = Server { child, input, output };
        server.ask("initialize", &json!({}));
        server
    }

    fn send(&mut self, message: &Value) {
        let body = message.to_string();
        write!(self.input, "Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    }

    fn tell(&mut self, method: &str, params: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    /// Sends a request and reads its reply. Returns the time between the two.
    fn ask(&mut self, method: &str, params: &Value) -> Duration {
        let since = Instant::now();
        self.send(&json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }));
        let reply = self.read();
        let time = since.elapsed();
        assert!(reply.contains("\"result\""), "{reply}");
        time
    }

    /// Returns the diagnostics of the next message.
    fn diagnostics(&mut self) -> Value {
        let message: Value = serde_json::from_str(&self.read()).unwrap();
        assert_eq!(message["method"], "textDocument/publishDiagnostics", "{message}");
        message["params"]["diagnostics"].clone()
    }

    /// Reads the text of a message.
    fn read(&mut self) -> String {
        let mut length = 0;
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the server has ended");
            if let Some(value) = line.strip_prefix("Content-Length:") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        self.output.read_exact(&mut body).unwrap();
        String::from_utf8(body).unwrap()
    }
}

/// Returns the parameter that names the file, with further members.
fn file(mut members: Value) -> Value {
    members["uri"] = "file:///long.yaml".into();
    members
}

/// Returns a flow with this number of lines: a chain of nodes with an edge each.
fn long_flow(lines: usize) -> String {
    let count = lines / 5;
    let mut text = "flow: { name: long, strict: true, input: { n: 1 } }\nnodes:\n".to_owned();
    for node in 0..count {
        let value = match node {
            0 => "flow.input.n".to_owned(),
            1 => "n0.value".to_owned(),
            _ => format!("n{}.value + n{}.value", node - 1, node / 2),
        };
        write!(text, "  - id: n{node}\n    type: control.noop\n    input:\n      value: \"{{{{ {value} }}}}\"\n")
            .unwrap();
    }
    text += "edges:\n";
    (1..count).for_each(|node| writeln!(text, "  - {{ from: n{}, to: n{node} }}", node - 1).unwrap());
    text
}
