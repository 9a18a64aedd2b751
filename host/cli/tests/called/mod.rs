//! Tests which flows a run calls after another process has taken the run over, on each kind of store. The other process
//! works in another folder, whose flows have the same names but output other texts.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

use flowcell_runtime::sql::Dialect;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    kit::{flowcell, output_of, stderr, stdout},
    servers,
};

/// The longest time until a run makes its request.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A kind of store.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Folder,
    Server(Dialect),
}

/// The folder where runs begin, and the other one where another process continues them.
struct Folders {
    home: TempDir,
    other: TempDir,
    /// The option that names the store.
    store: [String; 2],
    bell: Bell,
}

impl Folders {
    /// Returns `None` if the server of this store is not installed.
    fn new(kind: Kind) -> Option<Folders> {
        let [home, other] = [(), ()].map(|()| tempfile::tempdir().unwrap());
        let store = match kind {
            Kind::Folder => ["--state".to_owned(), home.path().join("store").display().to_string()],
            Kind::Server(dialect) => {
                let server = servers::server(dialect)?;
                ["--store".to_owned(), server.url(&server.database())]
            }
        };
        let migrated = output_of(home.path(), &["store", "migrate", &store[0], &store[1]]);
        assert!(migrated.status.success(), "{}", stderr(&migrated));
        let folders = Folders { home, other, store, bell: Bell::new() };
        folders.write(folders.home.path(), "pinned");
        folders.write(folders.other.path(), "foreign");
        Some(folders)
    }

    /// Writes all flows of a folder. The flows that other flows call output the text `says`.
    fn write(&self, folder: &Path, says: &str) {
        let flows = folder.join("flows");
        fs::create_dir_all(&flows).unwrap();
        let call = |id: &str, name: &str| json!({ "id": id, "type": "control.subflow", "input": { "name": name, "input": {} } });
        let ring = json!({ "id": "ring", "type": "http.request", "input": { "url": self.bell.origin },
            "grants": { "http": [self.bell.origin] } });
        let ask = json!({ "id": "ask", "type": "control.gate", "input": { "prompt": "Now?", "choices": ["yes"] } });
        let say = json!({ "id": "say", "type": "data.template", "input": { "template": says } });
        let agent = |default: &str| {
            json!({ "id": "agent", "type": "agent.run", "input": { "prompt": "Call it.", "tools": ["flow:k*"] },
                "config": { "permissions": { "default": default } }, "grants": { "model": ["*"], "tools": ["flow:k*"] } })
        };
        let from_sub = "{{ sub.outputs.said }}";
        let all = [
            // Flows that others call, at three depths.
            ("grand", "{{ say.text }}", vec![ring.clone(), say.clone()]),
            ("kid", from_sub, vec![call("sub", "grand")]),
            ("quiet", "{{ say.text }}", vec![say]),
            ("k-quiet", from_sub, vec![call("sub", "quiet")]),
            // Their process dies while a flow that they have called is in progress.
            ("literal", from_sub, vec![call("sub", "kid")]),
            ("computed", from_sub, vec![call("sub", "{{ flow.input.n }}")]),
            ("agent", "{{ agent.result }}", vec![agent("allow")]),
            // Their process dies before they call a flow.
            ("late-literal", from_sub, vec![ring.clone(), call("sub", "k-quiet")]),
            ("late-computed", from_sub, vec![ring, call("sub", "{{ flow.input.q }}")]),
            // They ask a person before they call a flow.
            ("asks-literal", from_sub, vec![ask.clone(), call("sub", "k-quiet")]),
            ("asks-computed", from_sub, vec![ask, call("sub", "{{ flow.input.q }}")]),
            ("asks-agent", "{{ agent.result }}", vec![agent("ask")]),
        ];
        for (name, says, nodes) in all {
            let ids: Vec<_> = nodes.iter().map(|node| node["id"].clone()).collect();
            let edges: Vec<_> = ids.windows(2).map(|pair| json!({ "from": pair[0], "to": pair[1] })).collect();
            let flow = json!({ "name": name, "input": { "n": "kid", "q": "k-quiet" }, "outputs": { "said": says } });
            let text = json!({ "flow": flow, "nodes": nodes, "edges": edges }).to_string();
            fs::write(flows.join(format!("{name}.json")), text).unwrap();
        }
        let script = json!([{ "match": "", "toolCalls": [{ "name": "flow_kid", "input": {} }] }, { "match": "", "text": "done" }]);
        let profile = json!({ "dialect": "simulated", "model": "one", "script": script });
        let models = json!({ "default": "calls", "profiles": { "calls": profile } });
        fs::write(folder.join("models.yaml"), models.to_string()).unwrap();
    }

    /// Replaces the flows that the runs began with.
    fn change(&self) {
        self.write(self.home.path(), "changed");
    }

    fn command(&self, folder: &Path, arguments: &[&str]) -> Command {
        let mut command = flowcell(folder);
        command.args(arguments).args(&self.store).env("FLOWCELL_ALLOW_PRIVATE", &self.bell.address);
        command.env("FLOWCELL_PROVIDERS", folder.join("models.yaml"));
        command
    }

    fn at_home(&self, arguments: &[&str]) -> Output {
        self.command(self.home.path(), arguments).output().unwrap()
    }

    fn elsewhere(&self, arguments: &[&str]) -> Output {
        self.command(self.other.path(), arguments).output().unwrap()
    }

    /// Checks the outputs of a run, and that its export contains the expected text of the called flow and no text of
    /// another version.
    #[track_caller]
    fn check_called(&self, run: &str, outputs: &Value, expected: &str) {
        assert_eq!(outputs["said"], if run.contains("agent") { "done" } else { expected }, "{run}");
        let export = stdout(&self.elsewhere(&["runs", "export", run]));
        for other in ["pinned", "changed", "foreign"] {
            assert!(other == expected || !export.contains(&format!("\"{other}\"")), "{run} called {other}: {export}");
        }
        assert!(export.contains(&format!("\"{expected}\"")), "{run}: {export}");
    }
}

/// Returns the outputs that a command prints.
#[track_caller]
fn outputs(output: &Output) -> Value {
    assert!(output.status.success(), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A server that reports each request to the test, and answers no request until the test calls `answer`.
struct Bell {
    address: String,
    origin: String,
    rings: mpsc::Receiver<()>,
    held: Arc<Mutex<Option<Vec<TcpStream>>>>,
}

impl Bell {
    fn new() -> Bell {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let held = Arc::new(Mutex::new(Some(Vec::new())));
        let (ring, rings) = mpsc::channel();
        let holds = held.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let request = BufReader::new(&stream).lines().map_while(Result::ok);
                if request.take_while(|line| !line.is_empty()).count() == 0 {
                    continue;
                }
                match &mut *holds.lock().unwrap() {
                    Some(held) => held.push(stream),
                    None => answer(stream),
                }
                // The test may have ended.
                _ = ring.send(());
            }
        });
        Bell { origin: format!("http://{address}/"), address, rings, held }
    }

    /// Answers all requests from now on. The connections of earlier requests are closed without an answer.
    fn answer(&self) {
        drop(self.held.lock().unwrap().take());
    }
}

fn answer(mut stream: TcpStream) {
    // The program may have been killed.
    _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
}

/// A server of the program, which is killed at its end.
pub(crate) struct Serving {
    child: Child,
    address: String,
}

impl Serving {
    pub(crate) fn start(mut command: Command) -> Serving {
        let mut child = command.args(["--listen", "127.0.0.1:0"]).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let address = lines.find_map(|line| Some(line.strip_prefix("listening on http://")?.to_owned()));
        // Read the later output, so that the process does not block.
        thread::spawn(move || lines.count());
        Serving { child, address: address.expect("it does not listen") }
    }

    pub(crate) fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let text = exchange(&self.address, method, path, body);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{method} {path}: `{text}`"));
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {head}\n{body}"))
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Sends a request on a new connection. Returns the whole response.
pub(crate) fn exchange(address: &str, method: &str, path: &str, body: &Value) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let body = body.to_string();
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {length}");
    write!(stream, "{head}\r\ncontent-type: application/json\r\n\r\n{body}").unwrap();
    std::io::read_to_string(stream).unwrap()
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The runs that a server drives when it is killed, each with the text that the run outputs after another server has
/// continued it.
const KILLED: [(&str, &str); 5] = [
    ("literal", "pinned"),
    ("computed", "pinned"),
    ("agent", "pinned"),
    ("late-literal", "pinned"),
    // The host looks a computed name up at the time of the call, in the folder where the run began.
    ("late-computed", "changed"),
];

fn check_runs_of_a_killed_server(kind: Kind) {
    let Some(folders) = Folders::new(kind) else { return };
    let first = Serving::start(folders.command(folders.home.path(), &["serve"]));
    for (flow, _) in KILLED {
        // All tests share the database servers, which may be too busy to answer in time.
        let start = |_| first.ask("POST", "/v1/runs", &json!({ "flow": flow, "runId": flow }));
        let begun = (0..20).map(start).find(|begun| begun["error"]["code"] != "store_unavailable").unwrap();
        assert_eq!(begun["status"], "running", "{begun}");
    }
    // Each run is in the midst of a request when the process dies.
    (0..KILLED.len()).for_each(|_| folders.bell.rings.recv_timeout(TIMEOUT).unwrap());
    first.kill();
    folders.change();
    folders.bell.answer();
    let second = Serving::start(folders.command(folders.other.path(), &["serve"]));
    for (run, expected) in KILLED {
        // On a shared store the runs are free when the lease of the dead process is over. A request waits for 60 s.
        let begun = json!({ "flow": run, "runId": run });
        let mut views = (0..3).map(|_| second.ask("POST", "/v1/runs?wait=true", &begun));
        let ended = views.find(|view| view["status"] != "running");
        let ended = ended.unwrap_or_else(|| panic!("{run} does not end"));
        assert_eq!(ended["status"], "succeeded", "{run}: {ended}");
        folders.check_called(run, &ended["outputs"], expected);
        // A retry calls the same flows as the run, on the server and on the command line.
        let again =
            second.ask("POST", &format!("/v1/runs/{run}/retry?wait=true"), &json!({ "runId": format!("{run}-2") }));
        assert_eq!(again["status"], "succeeded", "{again}");
        folders.check_called(&format!("{run}-2"), &again["outputs"], expected);
    }
    drop(second);
    if kind == Kind::Folder {
        let again = folders.elsewhere(&["runs", "retry", "agent", "--run-id", "agent-3", "--quiet"]);
        folders.check_called("agent-3", &outputs(&again), "pinned");
    }
}

/// Parked runs that another process continues: the run, the address of its question, the answer, and the expected text.
const PARKED: [(&str, &str, &str, &str); 3] = [
    ("asks-literal", "ask", "yes", "pinned"),
    ("asks-computed", "ask", "yes", "changed"),
    ("asks-agent", "agent#3", "allow", "pinned"),
];

fn check_parked_runs(kind: Kind) {
    let Some(folders) = Folders::new(kind) else { return };
    folders.bell.answer();
    let path = |flow: &str| folders.home.path().join(format!("flows/{flow}.json"));
    for (flow, ..) in PARKED {
        let parked = folders.at_home(&["run", path(flow).to_str().unwrap(), "--run-id", flow, "--quiet"]);
        assert_eq!(parked.status.code(), Some(3), "{flow}: {}", stderr(&parked));
    }
    folders.change();
    for (run, question, answer, _) in PARKED {
        let answered = folders.elsewhere(&["answer", run, question, answer]);
        assert!(answered.status.success(), "{run}: {}", stderr(&answered));
    }
    let driven = folders.elsewhere(&["drive", "--once"]);
    assert!(driven.status.success(), "{}", stderr(&driven));
    for (run, question, answer, expected) in PARKED {
        folders.check_called(run, &outputs(&folders.elsewhere(&["runs", "resume", run, "--quiet"])), expected);
        let (again, answer) = (format!("{run}-2"), format!("{question}={answer}"));
        let retried = folders.elsewhere(&["runs", "retry", run, "--run-id", &again, "--quiet", "--answer", &answer]);
        folders.check_called(&again, &outputs(&retried), expected);
    }
}

#[test]
fn y16_runs_of_a_killed_server_call_their_flows_from_a_folder() {
    check_runs_of_a_killed_server(Kind::Folder);
}

#[test]
fn y16_runs_of_a_killed_server_call_their_flows_from_mariadb() {
    check_runs_of_a_killed_server(Kind::Server(Dialect::MySql));
}

#[test]
fn y16_runs_of_a_killed_server_call_their_flows_from_postgresql() {
    check_runs_of_a_killed_server(Kind::Server(Dialect::Postgres));
}

#[test]
fn y16_parked_runs_on_a_shared_store_call_their_flows() {
    for dialect in [Dialect::MySql, Dialect::Postgres] {
        check_parked_runs(Kind::Server(dialect));
    }
}
