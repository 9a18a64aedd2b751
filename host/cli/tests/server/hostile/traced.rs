//! Traces the system calls of a server while it checks a request.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::{
    client::ask,
    kit::{Running, flowcell},
    samples::hello,
};

/// If this environment variable is set, the test is skipped where `strace` is missing or not permitted. Otherwise the
/// test fails there.
const WITHOUT: &str = "FLOWCELL_TEST_WITHOUT_STRACE";

/// A server and its tracer. Both are killed when the value is dropped, so that a test that fails leaves none.
struct Traced {
    tracer: Running,
    /// The file with the trace.
    log: PathBuf,
}

impl Traced {
    /// Sends a signal to the server. Its process id is the first word of the trace. Returns whether it was there.
    fn signal(&self, signal: &str) -> bool {
        let traced = fs::read_to_string(&self.log).unwrap_or_default();
        let Some(server) = traced.split_whitespace().next() else { return false };
        Command::new("kill").args([signal, server]).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }

    /// Ends the server. The tracer exits with its exit code.
    fn end(mut self) {
        assert!(self.signal("-TERM"));
        assert_eq!(self.tracer.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        // Without its tracer, the server would go on. Once the tracer has ended, another process may have its id.
        if matches!(self.tracer.try_wait(), Ok(None)) {
            self.signal("-KILL");
        }
    }
}

/// Starts a server whose system calls on files, programs and connections are traced. Returns `None` if tracing is
/// impossible.
fn serve_traced(folder: &Path, log: &Path) -> Option<(Traced, SocketAddr)> {
    let calls = "trace=%file,execve,execveat,connect,bind,sendto,socket";
    let tries = Command::new("strace").args(["-f", "-o", "/dev/null", "-e", calls, "true"]).output();
    if !tries.is_ok_and(|output| output.status.success()) {
        return None;
    }
    let program = flowcell(folder);
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-s", "4096", "-e", calls, "-o"]).arg(log).arg(program.get_program());
    command.args(["serve", "--listen", "127.0.0.1:0"]).current_dir(folder).stderr(Stdio::piped());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let mut server = Traced { tracer: command.spawn().unwrap().into(), log: log.to_owned() };
    let mut lines = BufReader::new(server.tracer.stderr.take().unwrap()).lines().map(Result::unwrap);
    let address = lines.find_map(|line| line.strip_prefix("listening on http://").map(|rest| rest.parse().unwrap()));
    std::thread::spawn(move || lines.for_each(drop));
    Some((server, address.unwrap()))
}

/// Returns flows that try to cause effects while they are checked.
fn flows_with_effects(target: SocketAddr, canary: &Path) -> Vec<Value> {
    let (url, file) = (format!("http://{target}/x"), format!("file://{}", canary.display()));
    let of = |node: Value| json!({ "flow": { "name": "hostile" }, "nodes": [node] });
    let schema = |at: &str| {
        let input = json!({ "value": {}, "schema": { "$ref": at } });
        of(json!({ "id": "a", "type": "data.validate", "input": input }))
    };
    let asks = json!({ "$ref": url });
    vec![
        schema(&url),
        schema(&file),
        json!({ "flow": { "name": "hostile", "inputSchema": asks }, "nodes": [{ "id": "a", "type": "control.noop" }] }),
        of(json!({ "id": "a", "type": url })),
        of(json!({ "id": "a", "type": file })),
        of(json!({ "id": "a", "type": "control.subflow", "input": { "name": canary } })),
        of(json!({ "id": "a", "type": "control.subflow", "input": { "name": "../canary" } })),
        of(
            json!({ "id": "a", "type": "data.template", "input": { "template": format!("{{% include '{}' %}}", canary.display()) } }),
        ),
        of(json!({ "id": "a", "type": "agent.run", "input": { "prompt": "x", "promptFile": canary } })),
        of(
            json!({ "id": "a", "type": "http.request", "input": { "url": url }, "grants": { "http": [format!("http://{target}")] } }),
        ),
        of(json!({ "id": "a", "type": "agent.run", "input": { "prompt": "x" },
            "config": { "mcp": { "x": { "command": "touch", "args": [canary] } } } })),
        json!(format!("flow: !include {}\nnodes: []\n", canary.display())),
        json!(format!(
            "flow: {{ name: x }}\nnodes: [{{ id: a, type: control.noop, input: !!python/object/apply:os.system ['touch {}'] }}]\n",
            canary.display()
        )),
    ]
}

/// Returns flows that name a file outside their folder.
fn flows_outside_their_folder(canary: &Path) -> Vec<Value> {
    let paths =
        [canary.display().to_string(), "../../canary".into(), "./../../canary".into(), "x/../../../canary".into()];
    let of = |name: &str, node: Value| json!({ "flow": { "name": name }, "nodes": [node] });
    let named = |path: &String| {
        let gate = json!({ "id": "a", "type": "control.gate", "promptFile": path, "input": { "choices": ["yes"] } });
        [of("gate", gate), of("script", json!({ "id": "a", "type": "script.run", "input": { "file": path } }))]
    };
    paths.iter().flat_map(named).collect()
}

#[test]
fn y15_checking_a_flow_has_no_effects() {
    let folder = tempfile::tempdir().unwrap();
    let (log, canary) = (folder.path().join("trace"), folder.path().join("canary"));
    fs::write(&canary, "the-canary").unwrap();
    let place = folder.path().join("server");
    fs::create_dir(&place).unwrap();
    let Some((server, address)) = serve_traced(&place, &log) else {
        let skipped = std::env::var_os(WITHOUT).is_some();
        assert!(skipped, "the program `strace` is missing, or may not watch others: install it, or set {WITHOUT}=1");
        return;
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let check = |flow: &Value| {
        let answer = ask(address, "POST", "/v1/validate", &[], &json!({ "flow": flow }).to_string());
        assert!(!answer.body.contains("the-canary"), "{answer:?}");
        answer
    };
    // Warm up: complete the lazy initialization.
    check(&hello());
    check(&json!("flow: ["));
    let start = fs::read_to_string(&log).unwrap();
    assert!(start.contains("openat(") && start.contains("execve(") && start.contains("bind("), "{start}");
    for flow in flows_with_effects(listener.local_addr().unwrap(), &canary) {
        check(&flow);
    }
    assert!(check(&hello()).json()["valid"] == true);
    let traced = fs::read_to_string(&log).unwrap();
    // Meanwhile the server reads its own store and library, and its threads read facts about the machine.
    let place = place.to_string_lossy();
    let known = [&*place, "\"flows", ".flowcell", "\"/sys/devices/", "\"/proc/", "\"/sys/fs/cgroup/"];
    let own = |line: &str| known.iter().any(|known| line.contains(known));
    let acts = ["execve", "connect(", "bind(", "socket(", "O_CREAT", "unlink", "rename", "mkdir", "canary"];
    let wrong = traced[start.len()..].lines().find(|line| {
        let reads = line.contains("open") || line.contains("stat");
        line.contains("canary") || !own(line) && (reads || acts.iter().any(|act| line.contains(act)))
    });
    assert_eq!(wrong, None);
    // A stored flow may read files in its folder, and none outside.
    let before = fs::read_to_string(&log).unwrap().len();
    for flow in flows_outside_their_folder(&canary) {
        let answer = ask(address, "POST", "/v1/flows", &[], &json!({ "flow": flow }).to_string());
        assert!(answer.status == 422 && !answer.body.contains("the-canary"), "{flow}: {answer:?}");
    }
    let traced = fs::read_to_string(&log).unwrap();
    let wrong = traced[before..].lines().find(|line| {
        let reached = line.contains("canary") && !line.contains(" = -1 ");
        reached || ["execve", "connect(", "bind(", "socket("].iter().any(|act| line.contains(act))
    });
    assert_eq!(wrong, None);
    assert!(listener.accept().is_err(), "somebody has asked");
    assert_eq!(fs::read_to_string(&canary).unwrap(), "the-canary");
    server.end();
}
