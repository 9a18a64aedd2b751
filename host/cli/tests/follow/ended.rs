//! Commands whose owner ends while it drives their runs, or before it takes them.

use std::{
    collections::HashSet,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Output, Stdio},
    sync::{Arc, Condvar, Mutex},
    thread,
    time::Duration,
};

use crate::kit::{events, flowcell, stderr};

/// The longest time for which a test waits for a request.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server that answers some requests only when the test releases them. It ends with the process of the tests.
#[derive(Clone)]
struct SlowServer(Arc<(Mutex<Requests>, Condvar)>, String);

#[derive(Default)]
struct Requests {
    arrived: Vec<String>,
    released: HashSet<String>,
}

impl SlowServer {
    fn start() -> SlowServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = SlowServer(Arc::default(), listener.local_addr().unwrap().to_string());
        let serving = server.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let serving = serving.clone();
                thread::spawn(move || serving.serve(&stream.unwrap()));
            }
        });
        server
    }

    fn serve(&self, mut stream: &TcpStream) {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        // A client that connects and sends nothing has no request.
        if reader.read_line(&mut line).is_ok_and(|length| length == 0) {
            return;
        }
        let path = line.split(' ').nth(1).unwrap().to_owned();
        let mut length = 0;
        loop {
            line.clear();
            reader.read_line(&mut line).unwrap();
            match line.trim_end().to_ascii_lowercase().split_once(": ") {
                Some(("content-length", value)) => length = value.parse().unwrap(),
                Some(_) => {}
                None => break,
            }
        }
        reader.read_exact(&mut vec![0; length]).unwrap();
        let (requests, changed) = &*self.0;
        let mut requests = requests.lock().unwrap();
        // The first request of `/r1` has no answer.
        let is_lost = path == "/r1" && !requests.arrived.contains(&path);
        requests.arrived.push(path.clone());
        changed.notify_all();
        let is_held = |requests: &mut Requests| is_lost || path == "/r0" && !requests.released.contains(&path);
        drop(changed.wait_while(requests, is_held).unwrap());
        // The client may have gone.
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-type: text/plain\r\n\r\nok");
    }

    fn release(&self, path: &str) {
        self.0.0.lock().unwrap().released.insert(path.into());
        self.0.1.notify_all();
    }

    fn await_request(&self, path: &str) {
        let has_not = |requests: &mut Requests| !requests.arrived.iter().any(|arrived| arrived == path);
        let waited = self.0.1.wait_timeout_while(self.0.0.lock().unwrap(), PATIENCE, has_not).unwrap();
        assert!(!waited.1.timed_out(), "no request for {path}: {:?}", waited.0.arrived);
    }

    fn count(&self, path: &str) -> usize {
        self.0.0.lock().unwrap().arrived.iter().filter(|arrived| *arrived == path).count()
    }

    /// Starts `flowcell run` with a flow that makes one request.
    fn run(&self, folder: &Path, run: &str, method: &str) -> Child {
        let origin = format!("http://{}", self.1);
        let flow = format!(
            "flow: {{ name: {run}, outputs: {{ body: '{{{{ r.body }}}}' }} }}\n\
             nodes: [{{ id: r, type: http.request, input: {{ method: {method}, url: '{origin}/{run}' }}, \
             grants: {{ http: ['{origin}'] }} }}]\n"
        );
        std::fs::write(folder.join(format!("{run}.yaml")), flow).unwrap();
        let mut command = flowcell(folder);
        command.args(["run", &format!("{run}.yaml"), "--run-id", run]).env("FLOWCELL_ALLOW_PRIVATE", &self.1);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }
}

#[track_caller]
fn check(run: &str, output: &Output) {
    assert!(output.status.success(), "{run}: {}", stderr(output));
    let outputs: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(outputs, serde_json::json!({ "body": "ok" }), "{run}");
}

#[test]
fn commands_whose_owner_ends_all_succeed_and_repeat_no_call_that_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let server = SlowServer::start();
    let owner = server.run(folder.path(), "r0", "POST");
    server.await_request("/r0");
    // The owner drives this run. Its call has no end when the owner ends.
    let cut = server.run(folder.path(), "r1", "GET");
    server.await_request("/r1");
    server.release("/r0");
    // The owner waits for the call of the other run, and takes no more runs.
    let late = ["r2", "r3", "r4", "r5"].map(|run| (run, server.run(folder.path(), run, "POST")));
    check("r0", &owner.wait_with_output().unwrap());
    check("r1", &cut.wait_with_output().unwrap());
    for (run, command) in late {
        check(run, &command.wait_with_output().unwrap());
    }
    assert_eq!(server.count("/r1"), 2, "the call that was cut is made again");
    for run in ["r0", "r2", "r3", "r4", "r5"] {
        assert_eq!(server.count(&format!("/{run}")), 1, "{run}");
        let ended = events(folder.path(), run).iter().any(|event| event["type"] == "call:error");
        assert!(!ended, "{run} has recorded a failure that only the end of a process has caused");
    }
}
