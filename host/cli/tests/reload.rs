//! Tests that packs, flows and triggers are read again without a restart, with the real program: at a command, at SIGHUP,
//! under load, and with packs and locks that are broken.

#![cfg(unix)]

use std::{
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, channel},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    client::{Answer, ask},
    distribution::pack::{self, Version, acme},
    kit::{self, flowcell, output_of, stderr, stdout},
};

/// The longest time until a process has done a step, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A flow that asks first, and then greets with a node of the pack `acme`.
const GREETING: &str = "
flow: { name: greeting, outputs: { text: '{{ greet.text }}' } }
nodes:
  - { id: ask, type: control.gate, input: { prompt: 'Go on?', choices: ['yes'] } }
  - { id: greet, type: acme.greet@0.1, input: { name: Ada } }
edges: [{ from: ask, to: greet }]
";

/// A process that owns the store of its folder.
pub(crate) struct Process {
    folder: TempDir,
    child: Child,
    lines: Mutex<Receiver<String>>,
    address: Option<SocketAddr>,
}

impl Process {
    /// Starts a server. Its packs are in `packs`, and its flows in `flows`.
    fn serve(arguments: &[&str]) -> Process {
        let folder = tempfile::tempdir().unwrap();
        ["packs", "flows"].iter().for_each(|name| fs::create_dir(folder.path().join(name)).unwrap());
        let mut process = Process::start(folder, &[&["serve", "--listen", "127.0.0.1:0"], arguments].concat());
        process.address = Some(process.hears("listening on http://").parse().unwrap());
        process
    }

    pub(crate) fn start(folder: TempDir, arguments: &[&str]) -> Process {
        let mut child = flowcell(folder.path()).args(arguments).stderr(Stdio::piped()).spawn().unwrap();
        let (tell, lines) = channel();
        let printed = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        thread::spawn(move || printed.for_each(|line| _ = tell.send(line)));
        Process { folder, child, lines: Mutex::new(lines), address: None }
    }

    /// Waits for a line with these words. Returns the text after them.
    #[track_caller]
    pub(crate) fn hears(&self, words: &str) -> String {
        loop {
            let line =
                self.lines.lock().unwrap().recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("it never said {words:?}"));
            if let Some((_, rest)) = line.split_once(words) {
                return rest.to_owned();
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    fn write(&self, file: &str, content: impl AsRef<[u8]>) {
        // A file appears whole, as an installation writes it.
        let (path, new) = (self.path().join(file), self.path().join(".new"));
        fs::write(&new, content).unwrap();
        fs::rename(new, path).unwrap();
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        ask(self.address.unwrap(), method, path, &[], &body)
    }

    /// Runs `flowcell reload`.
    pub(crate) fn reload(&self) -> Output {
        output_of(self.path(), &["reload", "--json"])
    }

    /// Reloads with an exit code. Returns what the command has printed.
    #[track_caller]
    pub(crate) fn reloaded(&self, code: i32) -> Value {
        let output = self.reload();
        assert_eq!(output.status.code(), Some(code), "{}{}", stdout(&output), stderr(&output));
        serde_json::from_str(&stdout(&output)).unwrap()
    }

    pub(crate) fn hang_up(&self) {
        let sent = Command::new("kill").args(["-HUP", &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Starts a run of the flow `greeting`, which then waits for an answer.
    #[track_caller]
    fn begin(&self, run: &str) {
        let answer = self.ask("POST", "/v1/runs?wait=true", &json!({ "flow": "greeting", "runId": run }));
        assert_eq!((answer.status, &answer.json()["status"]), (201, &json!("parked")), "{answer:?}");
    }

    /// Answers a run, and waits until it has greeted.
    #[track_caller]
    fn finish(&self, run: &str) {
        let answered = self.ask("POST", &format!("/v1/runs/{run}/gates/ask/reply"), &json!({ "answer": "yes" }));
        assert_eq!(answered.status, 200, "{answered:?}");
        let began = Instant::now();
        loop {
            let answer = self.ask("GET", &format!("/v1/runs/{run}"), &Value::Null).json();
            if answer["status"] == "succeeded" {
                assert_eq!(answer["outputs"], json!({ "text": "Hello Ada" }));
                return;
            }
            let waits = ["running", "parked", "queued"].iter().any(|status| answer["status"] == *status);
            assert!(waits && began.elapsed() < PATIENCE, "{answer}");
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the packs of a list of changes, by their names and versions.
fn names(packs: &Value) -> Vec<&str> {
    packs.as_array().unwrap().iter().map(|pack| pack["pack"].as_str().unwrap()).collect()
}

#[test]
fn a_server_uses_new_packs_and_runs_keep_theirs() {
    let process = Process::serve(&["--packs", "packs"]);
    process.write("flows/greeting.yaml", GREETING);
    let refused = process.ask("POST", "/v1/runs", &json!({ "flow": "greeting" }));
    assert_eq!(refused.json()["error"]["code"], "invalid_flow", "{refused:?}");
    process.write("packs/acme.wasm", acme(Version::First));
    let reloaded = process.reloaded(0);
    assert_eq!(names(&reloaded["packs"]["added"]), ["acme@0.1.0"], "{reloaded}");
    assert_eq!((&reloaded["flows"]["added"], &reloaded["triggers"]), (&json!(["greeting.yaml"]), &json!(0)));
    process.begin("first");

    // Other bytes of the same version, and then none: the run goes on with those that it began with.
    process.write("packs/acme.wasm", acme(Version::Altered));
    process.write("flows/greeting.yaml", format!("{GREETING}\n# changed\n"));
    let reloaded = process.reloaded(0);
    assert_eq!(names(&reloaded["packs"]["replaced"]), ["acme@0.1.0"], "{reloaded}");
    assert_eq!(reloaded["flows"]["changed"], json!(["greeting.yaml"]));
    let digest = reloaded["packs"]["replaced"][0]["digest"].as_str().unwrap();
    assert_eq!(digest, format!("sha256:{}", pack::digest(&acme(Version::Altered))));
    process.begin("second");
    fs::remove_file(process.path().join("packs/acme.wasm")).unwrap();
    let reloaded = process.reloaded(2);
    assert_eq!(names(&reloaded["packs"]["gone"]), ["acme@0.1.0"], "{reloaded}");
    let broken = &reloaded["flows"]["broken"][0];
    assert!(broken["flow"] == "greeting" && broken["error"].as_str().unwrap().contains("acme.greet"), "{reloaded}");
    assert_eq!(process.ask("POST", "/v1/runs", &json!({ "flow": "greeting" })).status, 422);
    ["first", "second"].iter().for_each(|run| process.finish(run));

    // A trigger counts at once.
    let shown = process.ask("GET", "/v1/nodes/acme.greet", &Value::Null);
    assert_eq!(shown.status, 404, "{shown:?}");
    let greets = GREETING.replace("name: greeting,", "name: greeting, triggers: [{ id: morning, cron: '0 7 * * *' }],");
    process.write("flows/greeting.yaml", greets);
    process.write("packs/acme.wasm", acme(Version::First));
    let shown = output_of(process.path(), &["reload"]);
    assert!(shown.status.success(), "{}", stderr(&shown));
    let shown = stdout(&shown);
    for part in ["packs: 1 added, 0 replaced, 0 gone, 0 unchanged", "acme@0.1.0", "greeting.yaml", "triggers: 1"] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
}

#[test]
fn broken_packs_keep_the_earlier_ones_in_use() {
    let process = Process::serve(&["--packs", "packs"]);
    process.write("flows/greeting.yaml", GREETING);
    process.write("packs/acme.wasm", acme(Version::First));
    process.reloaded(0);
    // A build with packs of a folder has the built-in ones at hand.
    let catalog = std::env::var_os("FLOWCELL_CATALOG").unwrap_or_default();
    let reserved = fs::read(Path::new(&catalog).join("flowcell_control.wasm")).ok();
    let half = acme(Version::Second)[..2_000].to_vec();
    let cases = [
        (Some(half), "broken.wasm", "broken.wasm"),
        (Some(b"no pack".to_vec()), "broken.wasm", "not a WebAssembly component"),
        (Some(acme(Version::Altered)), "twin.wasm", "which another pack has in the same version"),
        (reserved, "reserved.wasm", "is reserved"),
    ];
    for (bytes, file, words) in cases {
        let Some(bytes) = bytes else { continue };
        // Beside the broken one there is a good one, which is not used either.
        process.write(&format!("packs/{file}"), bytes);
        process.write("packs/second.wasm", acme(Version::Second));
        let reloaded = process.reloaded(2);
        let error = reloaded["errors"][0].as_str().unwrap();
        assert!(error.contains(words) && error.ends_with("the packs are as before"), "{words}: {reloaded}");
        assert_eq!((&reloaded["packs"], &reloaded["flows"]["broken"]), (&Value::Null, &json!([])));
        let answered = process.ask("POST", "/v1/admin/reload", &Value::Null);
        assert_eq!((answered.status, answered.json()), (200, reloaded));
        assert_eq!(process.ask("GET", "/v1/nodes/acme.greet@0.2", &Value::Null).status, 404);
        process.hears(words);
        ["second.wasm", file].iter().for_each(|file| fs::remove_file(process.path().join("packs").join(file)).unwrap());
    }
    let good = process.ask("POST", "/v1/admin/reload", &Value::Null).json();
    assert_eq!((&good["packs"]["unchanged"], &good["errors"]), (&json!(1), &Value::Null), "{good}");
    process.begin("one");
    process.finish("one");
    fs::rename(process.path().join("packs"), process.path().join("elsewhere")).unwrap();
    assert!(process.reloaded(2)["errors"][0].as_str().unwrap().contains("cannot read packs"));
    process.begin("two");
}

#[test]
fn an_installed_pack_is_used_from_the_next_sighup() {
    let process = Process::serve(&[]);
    process.write("flows/greeting.yaml", GREETING);
    process.write("acme.wasm", acme(Version::First));
    let installed = output_of(process.path(), &["node", "install", "./acme.wasm"]);
    assert!(installed.status.success(), "{}", stderr(&installed));
    assert_eq!(process.ask("POST", "/v1/runs", &json!({ "flow": "greeting" })).status, 422);
    process.hang_up();
    assert_eq!(process.hears("packs: "), "1 added, 0 replaced, 0 gone, 0 unchanged");
    process.begin("one");

    // A lock that is broken or lost, and a file of trust that appears, keep the earlier packs in use.
    let lock = fs::read(process.path().join("flowcell.lock")).unwrap();
    process.write("flowcell.lock", "version: 9\npacks: {}\n");
    process.hang_up();
    assert!(process.hears("error: ").contains("this program reads version 1"));
    fs::remove_file(process.path().join("flowcell.lock")).unwrap();
    process.hang_up();
    assert!(process.hears("error: ").contains("cannot read flowcell.lock"));
    process.write("flowcell.lock", lock);
    process.write("flowcell.trust.yaml", "unsigned: refuse\n");
    process.hang_up();
    assert!(process.hears("error: ").contains("acme@0.1.0 is not trusted"));
    process.begin("two");
    ["one", "two"].iter().for_each(|run| process.finish(run));
}

#[test]
fn runs_go_on_while_two_callers_reload() {
    let process = Process::serve(&["--packs", "packs"]);
    process.write("flows/greeting.yaml", GREETING);
    process.write("packs/acme.wasm", acme(Version::First));
    process.reloaded(0);
    let rounds = 4 * kit::scale();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for caller in 0..2 {
            let (process, done) = (&process, &done);
            scope.spawn(move || {
                let mut run = 0;
                while !done.load(Ordering::Relaxed) {
                    let id = format!("{caller}-{run}");
                    process.begin(&id);
                    process.finish(&id);
                    run += 1;
                }
                assert!(run > 0);
            });
        }
        for round in 0..rounds {
            let version = if round % 2 == 0 { Version::Altered } else { Version::First };
            process.write("packs/acme.wasm", acme(version));
            // One of two reloads at once finds the change, and the other one finds none.
            let reloads = [(); 2].map(|()| scope.spawn(|| process.reloaded(0)));
            let counts = reloads.map(|reload| reload.join().unwrap()["packs"]["replaced"].as_array().unwrap().len());
            assert_eq!(counts.iter().sum::<usize>(), 1, "{counts:?}");
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn drive_reads_packs_again() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("packs")).unwrap();
    let process = Process::start(folder, &["drive", "--packs", "packs"]);
    process.hears("driving the runs");
    process.write("greeting.yaml", GREETING);
    let run = || output_of(process.path(), &["run", "greeting.yaml", "--answer", "ask=yes", "--quiet"]);
    let refused = run();
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    process.write("packs/acme.wasm", acme(Version::First));
    process.hang_up();
    assert_eq!(process.hears("packs: "), "1 added, 0 replaced, 0 gone, 0 unchanged");
    let output = run();
    assert!(output.status.success() && stdout(&output).contains("Hello Ada"), "{}", stderr(&output));
    let reloaded = process.reloaded(0);
    assert_eq!((&reloaded["packs"]["unchanged"], &reloaded["flows"]), (&json!(1), &Value::Null));
}

#[test]
fn a_reload_needs_a_process_that_serves() {
    let folder = tempfile::tempdir().unwrap();
    let nobody = output_of(folder.path(), &["reload"]);
    assert_ne!(nobody.status.code(), Some(0));
    assert!(stderr(&nobody).contains("cannot reach the process that owns the store"), "{}", stderr(&nobody));
    let shared = output_of(folder.path(), &["reload", "--store", "postgres://127.0.0.1:1/none"]);
    assert_eq!(shared.status.code(), Some(2));
    assert!(stderr(&shared).contains("kill -HUP"), "{}", stderr(&shared));
}
