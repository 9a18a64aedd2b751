//! Starts, controls and kills the real program.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{Arc, Condvar, LazyLock, Mutex},
    thread,
    time::Duration,
};

use serde_json::Value;

use crate::{
    faults::{
        checker::{self, Calls, Claims, Run},
        ledger::Ledger,
    },
    guests,
};

/// The folder with the pack `courier`.
pub(crate) static PACKS: LazyLock<PathBuf> = LazyLock::new(|| guests::build("courier", ""));

pub(crate) fn scale() -> usize {
    std::env::var("FLOWCELL_TEST_SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1)
}

/// A folder with flows, their store, and the server that they call.
pub(crate) struct Project {
    folder: tempfile::TempDir,
    pub(crate) ledger: Ledger,
    pub(crate) claims: Claims,
    pub(crate) kills: usize,
    /// Environment variables of the processes.
    pub(crate) settings: Vec<(&'static str, &'static str)>,
}

impl Project {
    /// Copies the flows with the server's address in place of `ORIGIN`.
    pub(crate) fn new(seed: u64, trouble: u64) -> Project {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::new(&folder.path().join(".flowcell"), seed, trouble);
        for flow in flows() {
            let text = fs::read_to_string(&flow).unwrap().replace("ORIGIN", &ledger.origin());
            fs::write(folder.path().join(flow.file_name().unwrap()), text).unwrap();
        }
        Project { folder, ledger, claims: Claims::default(), kills: 0, settings: Vec::new() }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.folder().join(".flowcell")
    }

    pub(crate) fn flowcell(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowcell"));
        self.prepare(&mut command).args(arguments);
        command
    }

    /// Sets the environment of a command that runs the program.
    pub(crate) fn prepare<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
        command.current_dir(self.folder()).env("FLOWCELL_CACHE", cache).stdin(Stdio::null());
        let providers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../flows/agents/providers.yaml");
        command.env("FLOWCELL_PROVIDERS", providers).env_remove("FLOWCELL_STORE").env_remove("FLOWCELL_STATE");
        command.envs(self.settings.iter().copied());
        command.env("FLOWCELL_ALLOW_PRIVATE", self.ledger.address())
    }

    pub(crate) fn done(&self, arguments: &[&str]) -> Output {
        self.flowcell(arguments).output().unwrap()
    }

    /// Starts a process that the test kills, and counts its lines of output.
    pub(crate) fn start(&self, arguments: &[&str]) -> Life {
        Life::of(&mut self.flowcell(arguments))
    }

    /// Returns the arguments of a run that prints its events.
    pub(crate) fn watch_arguments<'a>(flow: &'a str, run: &'a str) -> Vec<&'a str> {
        vec!["run", flow, "--run-id", run, "--quiet", "--events", "-", "--packs", PACKS.to_str().unwrap()]
    }

    /// Kills a process. Records the events that it has printed, and returns them.
    pub(crate) fn kill(&mut self, life: Life) -> Vec<Value> {
        self.kills += 1;
        let lines = life.kill();
        self.ledger.await_quiet();
        self.note(&lines)
    }

    /// Records printed events.
    pub(crate) fn note(&mut self, lines: &[String]) -> Vec<Value> {
        // The last line of a killed process may be incomplete.
        let events: Vec<Value> = lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
        events.iter().for_each(|event| self.claims.record_event(event.clone()));
        events
    }

    /// Returns the unfinished top runs.
    pub(crate) fn unfinished_runs(&self) -> Vec<Run> {
        let mut runs = checker::runs(&self.store());
        runs.retain(|run| run.parent.is_none() && !run.has_ended());
        runs
    }

    /// Resolves ambiguous calls as the records of the server require. Returns the number of calls.
    pub(crate) fn resolve(&self) -> usize {
        let runs = checker::runs(&self.store());
        let mut resolved = 0;
        for run in runs.iter().filter(|run| !run.has_ended()) {
            for (address, key) in blocked_tasks(self, run) {
                let (top, address) = top_run_and_address(&runs, run, address);
                let reply = self.ledger.answer_to(&key);
                let decision = match &reply {
                    Some(answer) => vec!["--reply".to_owned(), response(answer)],
                    None => vec!["--repeat".to_owned()],
                };
                if reply.is_none() {
                    self.ledger.allow_again(&key);
                }
                let mut arguments = vec!["runs", "resolve", top, &address];
                arguments.extend(decision.iter().map(String::as_str));
                let output = self.done(&arguments);
                let known = output.status.success() || stderr(&output).contains("not_blocked");
                assert!(known || !stderr(&output).contains("is not JSON"), "{}", stderr(&output));
                resolved += usize::from(output.status.success());
            }
        }
        resolved
    }

    /// Reads all events of all runs in the store.
    pub(crate) fn events(&self) -> BTreeMap<(String, u64), Value> {
        let mut events = BTreeMap::new();
        for run in checker::runs(&self.store()) {
            let output = self.done(&["runs", "events", &run.name]);
            assert!(output.status.success(), "{}: {}", run.name, stderr(&output));
            for line in String::from_utf8(output.stdout).unwrap().lines() {
                let event: Value = serde_json::from_str(line).unwrap();
                events.insert((run.name.clone(), event["seq"].as_u64().unwrap()), event);
            }
        }
        events
    }

    /// Returns all violations.
    pub(crate) fn check(&self) -> Vec<String> {
        self.ledger.await_quiet();
        checker::check(&self.store(), &self.claims, &self.ledger.book(), &self.events())
    }
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the flows of these tests, sorted by name.
pub(crate) fn flows() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faults/flows");
    let mut flows: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    flows.sort();
    flows
}

/// Returns the blocked tasks of a run, and the keys of their ambiguous calls.
fn blocked_tasks(project: &Project, run: &Run) -> Vec<(String, String)> {
    let facts = run.facts();
    let calls = Calls::of(facts.clone());
    let mut open: BTreeMap<String, Option<String>> = BTreeMap::new();
    for (name, fact) in &facts {
        let task = &fact["task"];
        match name.as_str() {
            "TaskBlocked" => {
                let call = &fact["reason"]["Ambiguous"];
                let number = |name: &str| call[name].as_u64().unwrap_or_default();
                let key = calls.ambiguous(task, number("attempt"), number("ordinal"));
                open.insert(task.to_string(), key.map(str::to_owned));
            }
            "TaskResolved" | "TaskCancelled" => _ = open.remove(&task.to_string()),
            _ => {}
        }
    }
    if open.is_empty() {
        return Vec::new();
    }
    // Records name nodes by index, while events have the names.
    let output = project.done(&["runs", "events", &run.name]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let events: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let address = |key: &str| {
        let event = events.iter().find(|event| event["type"] == "call:start" && event["key"] == key)?;
        let node = event["taskId"].as_str()?;
        Some(event["scope"].as_str().map_or(node.to_owned(), |scope| format!("{scope}.{node}")))
    };
    let open = open.into_values().flatten();
    open.filter_map(|key| Some((address(&key)?, key))).collect()
}

/// Returns the top run above `run`, and the address of the task in that run.
fn top_run_and_address<'a>(runs: &'a [Run], run: &'a Run, mut address: String) -> (&'a str, String) {
    let mut run = run;
    while let Some(parent) = &run.parent {
        let call = run.name.strip_prefix(parent).unwrap().trim_start_matches('.');
        let (node, _) = call.rsplit_once('.').unwrap();
        address = format!("{node}/{address}");
        run = runs.iter().find(|other| other.name == *parent).unwrap();
    }
    (&run.name, address)
}

/// Converts a response of the server to the result of the capability `http`.
fn response(answer: &Value) -> String {
    let headers = [["content-type", "application/json"]];
    serde_json::json!({ "status": 200, "headers": headers, "body": { "text": answer.to_string() } }).to_string()
}

/// A process under test.
pub(crate) struct Life {
    child: Killer,
    said: Arc<(Mutex<Said>, Condvar)>,
    readers: Vec<thread::JoinHandle<()>>,
}

/// A handle that can kill a process until its end is awaited.
#[derive(Clone)]
pub(crate) struct Killer(Arc<Mutex<Child>>);

impl Killer {
    pub(crate) fn kill(&self) {
        let _ = self.0.lock().unwrap().kill();
    }

    fn wait(&self) -> Option<i32> {
        self.0.lock().unwrap().wait().unwrap().code()
    }
}

#[derive(Default)]
struct Said {
    out: Vec<String>,
    err: Vec<String>,
    closed: usize,
}

impl Life {
    pub(crate) fn of(command: &mut Command) -> Life {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let said: Arc<(Mutex<Said>, Condvar)> = Arc::default();
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let readers = vec![
            listen(BufReader::new(out), said.clone(), |said| &mut said.out),
            listen(BufReader::new(err), said.clone(), |said| &mut said.err),
        ];
        Life { child: Killer(Arc::new(Mutex::new(child))), said, readers }
    }

    /// Sends a signal, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.0.lock().unwrap().id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }

    /// Returns the process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.0.lock().unwrap().id()
    }

    pub(crate) fn killer(&self) -> Killer {
        self.child.clone()
    }

    /// Sends SIGKILL.
    pub(crate) fn send_sigkill(&self) {
        self.child.kill();
    }

    /// Waits until the process has printed `count` lines, has ended, or `patience` is over. Returns true if it has
    /// printed them.
    pub(crate) fn await_lines(&self, count: usize, patience: Duration) -> bool {
        let (said, changed) = &*self.said;
        let waiting = |said: &mut Said| said.out.len() + said.err.len() < count && said.closed < 2;
        let said = changed.wait_timeout_while(said.lock().unwrap(), patience, waiting).unwrap().0;
        said.out.len() + said.err.len() >= count
    }

    /// Returns whether both outputs are closed.
    pub(crate) fn is_silent(&self) -> bool {
        self.said.0.lock().unwrap().closed == 2
    }

    /// Returns the lines of standard error so far.
    pub(crate) fn errors(&self) -> Vec<String> {
        self.said.0.lock().unwrap().err.clone()
    }

    /// Sends SIGKILL. Returns the lines of standard output.
    fn kill(mut self) -> Vec<String> {
        self.child.kill();
        self.child.wait();
        self.readers.drain(..).for_each(|reader| reader.join().unwrap());
        std::mem::take(&mut self.said.0.lock().unwrap().out)
    }

    /// Waits for the end of the process. Returns its exit code, the lines of standard output, and the text of standard
    /// error.
    pub(crate) fn end(mut self) -> (Option<i32>, Vec<String>, String) {
        // A process with closed outputs has ended or is about to end.
        self.readers.drain(..).for_each(|reader| reader.join().unwrap());
        let code = self.child.wait();
        let mut said = self.said.0.lock().unwrap();
        (code, std::mem::take(&mut said.out), said.err.join("\n"))
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        // Leave no process behind after a failed test.
        self.child.kill();
        self.child.wait();
    }
}

fn listen(
    reader: impl BufRead + Send + 'static,
    said: Arc<(Mutex<Said>, Condvar)>,
    project: fn(&mut Said) -> &mut Vec<String>,
) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        for line in reader.lines() {
            let Ok(line) = line else { break };
            project(&mut said.0.lock().unwrap()).push(line);
            said.1.notify_all();
        }
        said.0.lock().unwrap().closed += 1;
        said.1.notify_all();
    })
}
