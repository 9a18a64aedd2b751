//! Tests flows that are posted to a shared store, with the real program and real database servers: two servers that
//! have only the store in common, each with a folder of its own.

#![cfg(unix)]

mod beside;
mod packs;
mod pushed;

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use flowcell_runtime::sql::Dialect;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    client::{Answer, ask},
    kit::{flowcell, output_of, stderr, stdout},
    proxy::{Behaviour, Proxy},
    servers,
};

/// The promised time until all processes have a posted flow.
const PROMISED: Duration = Duration::from_secs(2);
/// The longest time until a run has done a step, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server with a folder of its own.
struct Process {
    folder: TempDir,
    child: Child,
    address: SocketAddr,
}

impl Process {
    fn start(url: &str) -> Process {
        Process::start_in(tempfile::tempdir().unwrap(), url)
    }

    fn start_in(folder: TempDir, url: &str) -> Process {
        let mut command = flowcell(folder.path());
        command.args(["serve", "--listen", "127.0.0.1:0", "--store", url]).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let listens = lines.by_ref().find_map(|line| Some(line.split_once("listening on http://")?.1.to_owned()));
        let address = listens.expect("it listens").parse().unwrap();
        // Read the later output, so that the process does not block.
        thread::spawn(move || lines.count());
        Process { folder, child, address }
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Answer {
        ask(self.address, method, path, &[], &body.to_string())
    }

    fn get(&self, path: &str) -> Answer {
        ask(self.address, "GET", path, &[], "")
    }

    fn post(&self, flow: &Value, files: &Value) -> Answer {
        self.ask("POST", "/v1/flows", &json!({ "flow": flow, "files": files }))
    }

    /// Posts a flow, and returns the number of its version.
    #[track_caller]
    fn post_version(&self, flow: &Value, files: &Value) -> u64 {
        let answer = self.post(flow, files);
        assert_eq!((answer.status, &answer.json()["source"]), (201, &json!("store")), "{answer:?}");
        answer.json()["version"].as_u64().unwrap()
    }

    /// Starts a run and waits until it ends or waits for a person.
    #[track_caller]
    fn run(&self, flow: &str, run: &str) -> Value {
        let answer = self.ask("POST", "/v1/runs?wait=true", &json!({ "flow": flow, "runId": run }));
        assert!(answer.status < 300, "{answer:?}");
        answer.json()
    }

    /// Waits for an answer that fits. Returns the time that it took.
    #[track_caller]
    fn wait_for(&self, path: &str, most: Duration, fits: impl Fn(&Answer) -> bool) -> Duration {
        let began = Instant::now();
        loop {
            let answer = self.get(path);
            if fits(&answer) {
                return began.elapsed();
            }
            assert!(began.elapsed() < most, "{path} after {most:?}: {answer:?}");
        }
    }

    /// Waits until the server has a version of a flow, at most for the promised time.
    #[track_caller]
    fn wait_for_version(&self, flow: &str, version: Option<u64>) {
        self.wait_for(&format!("/v1/flows/{flow}"), PROMISED, |answer| match version {
            Some(version) => answer.status == 200 && answer.json()["version"] == version,
            None => answer.status == 404,
        });
    }

    fn stop(mut self) -> TempDir {
        assert!(Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap().success());
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap())
    }

    fn kill(mut self) -> TempDir {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the URL of a new database with tables. Returns `None` if the server is not installed.
fn store(dialect: Dialect) -> Option<String> {
    let server = servers::server(dialect)?;
    let url = server.url(&server.database());
    let migrated = output_of(&std::env::temp_dir(), &["store", "migrate", "--store", &url]);
    assert!(migrated.status.success(), "{}", stderr(&migrated));
    Some(url)
}

/// A flow that asks twice. The second question is the text of a file beside the flow.
fn asking_flow() -> Value {
    json!({
        "flow": { "name": "asks", "outputs": { "said": "{{ late.response.content }}" } },
        "nodes": [
            { "id": "early", "type": "control.gate", "input": { "prompt": "Go on?", "choices": ["yes"] } },
            { "id": "late", "type": "control.gate", "promptFile": "./prompts/late.md", "input": { "choices": ["yes"] } },
        ],
        "edges": [{ "from": "early", "to": "late" }],
    })
}

fn late(prompt: &str) -> Value {
    json!({ "prompts/late.md": prompt })
}

fn saying_flow(name: &str, text: &str) -> Value {
    json!({
        "flow": { "name": name, "outputs": { "said": "{{ say.value }}" } },
        "nodes": [{ "id": "say", "type": "control.noop", "input": { "value": text } }],
    })
}

/// Posts flows at one server and runs them at the other: their versions, files, triggers and deletion.
fn check_two_processes_on(dialect: Dialect) {
    let Some(url) = store(dialect) else { return };
    let (a, b) = (Process::start(&url), Process::start(&url));
    assert_eq!(a.post_version(&asking_flow(), &late("First?")), 1);
    b.wait_for_version("asks", Some(1));
    assert!(!a.folder.path().join("flows/asks.json").exists(), "a posted flow is in the store only");
    assert_eq!(b.run("asks", "one")["status"], "parked");

    // The run goes on with its version and its file, in another process, after a newer version.
    assert_eq!(a.post_version(&asking_flow(), &late("Second?")), 2);
    assert_eq!(a.post_version(&asking_flow(), &late("Second?")), 2, "the same text adds no version");
    b.wait_for_version("asks", Some(2));
    let history = b.get("/v1/flows/asks/versions").json();
    assert_eq!((&history["versions"], history["history"][1]["by"].as_str()), (&json!([1, 2]), Some("local")));
    assert_ne!(history["history"][0]["digest"], history["history"][1]["digest"]);
    b.stop();
    let answered = a.ask("POST", "/v1/runs/one/gates/early/reply", &json!({ "answer": "yes" }));
    assert_eq!(answered.status, 200, "{answered:?}");
    let asks_for = |run: &str, prompt: &str| {
        let prompt = prompt.to_owned();
        a.wait_for(&format!("/v1/runs/{run}/gates"), PATIENCE, move |answer| answer.body.contains(&prompt));
    };
    asks_for("one", "First?");
    assert_eq!(a.run("asks", "two")["status"], "parked");
    assert_eq!(a.ask("POST", "/v1/runs/two/gates/early/reply", &json!({ "answer": "yes" })).status, 200);
    asks_for("two", "Second?");

    // A flow that comes in a request calls a posted flow, which has the file beside it.
    let mut called = asking_flow();
    called["flow"] = json!({ "name": "late" });
    called["nodes"].as_array_mut().unwrap().remove(0);
    called["edges"] = json!([]);
    a.post_version(&called, &late("Called?"));
    let sub = json!({ "id": "sub", "type": "control.subflow", "input": { "name": "late", "input": {} } });
    let text = json!({ "flow": { "name": "text" }, "nodes": [sub] });
    let checked = a.ask("POST", "/v1/validate", &json!({ "flow": text })).json();
    assert_eq!(checked, json!({ "valid": true, "diagnostics": [] }));
    let begun = a.ask("POST", "/v1/runs?wait=true", &json!({ "flow": text, "runId": "three" }));
    assert_eq!((begun.status, &begun.json()["status"]), (201, &json!("parked")), "{begun:?}");
    asks_for("three", "Called?");

    // A trigger of a posted flow starts its flow once, whichever process ends the run that it waits for.
    let b = Process::start(&url);
    a.post_version(&saying_flow("greet", "hello"), &json!({}));
    let mut after = saying_flow("after", "done");
    after["flow"]["triggers"] = json!([{ "id": "ended", "event": { "flow": "greet" } }]);
    a.post_version(&after, &json!({}));
    b.wait_for_version("after", Some(1));
    b.wait_for("/v1/triggers", PROMISED, |answer| answer.body.contains("\"ended\""));
    let started = |process: &Process, count: usize| {
        process.wait_for("/v1/runs?flow=after", PATIENCE, |answer| {
            let runs = answer.json()["runs"].as_array().unwrap().len();
            assert!(runs <= count, "{answer:?}");
            runs == count
        });
    };
    assert_eq!(b.run("greet", "g1")["outputs"]["said"], "hello");
    started(&a, 1);
    assert_eq!(a.run("greet", "g2")["outputs"]["said"], "hello");
    started(&b, 2);

    // A killed server has the flows again after its start, and a deletion reaches it.
    let folder = b.kill();
    assert_eq!(a.ask("DELETE", "/v1/flows/after", &Value::Null).status, 204);
    a.post_version(&saying_flow("greet", "hi"), &json!({}));
    let b = Process::start_in(folder, &url);
    assert_eq!((b.get("/v1/flows/after").status, b.get("/v1/flows/greet").json()["version"].as_u64()), (404, Some(2)));
    assert_eq!(b.ask("DELETE", "/v1/flows/greet", &Value::Null).status, 204);
    a.wait_for_version("greet", None);
    assert_eq!(a.ask("DELETE", "/v1/flows/greet", &Value::Null).fault(), (404, "flow_not_found".into()));
    assert_eq!(a.post_version(&saying_flow("greet", "again"), &json!({})), 4, "a number is not used again");
}

#[test]
fn a_flow_that_is_posted_at_one_process_runs_at_another_on_mariadb() {
    check_two_processes_on(Dialect::MySql);
}

#[test]
fn a_flow_that_is_posted_at_one_process_runs_at_another_on_postgresql() {
    check_two_processes_on(Dialect::Postgres);
}

/// Posts versions of one flow at both servers at the same time.
fn check_posts_at_once_on(dialect: Dialect) {
    const POSTS: u64 = 8;
    let Some(url) = store(dialect) else { return };
    let (a, b) = (Process::start(&url), Process::start(&url));
    let numbers: BTreeSet<u64> = thread::scope(|scope| {
        let writers: Vec<_> = [&a, &b]
            .map(|process| {
                let text = move |index| saying_flow("busy", &format!("{} {index}", process.address));
                scope.spawn(move || {
                    (0..POSTS).map(|index| process.post_version(&text(index), &json!({}))).collect::<Vec<_>>()
                })
            })
            .into();
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    assert_eq!(numbers, (1..=2 * POSTS).collect());
    for process in [&a, &b] {
        process.wait_for_version("busy", Some(2 * POSTS));
    }
    let versions = b.get("/v1/flows/busy/versions").json()["versions"].clone();
    assert_eq!(versions, json!((1..=2 * POSTS).collect::<Vec<_>>()));
    let texts =
        (1..=2 * POSTS).map(|number| a.get(&format!("/v1/flows/busy/versions/{number}")).json()["text"].clone());
    assert_eq!(texts.map(|text| text.to_string()).collect::<BTreeSet<_>>().len(), 2 * POSTS as usize);
}

#[test]
fn posts_at_once_are_versions_in_order_on_mariadb() {
    check_posts_at_once_on(Dialect::MySql);
}

#[test]
fn posts_at_once_are_versions_in_order_on_postgresql() {
    check_posts_at_once_on(Dialect::Postgres);
}

/// Holds back the database during a post. The post is refused, and can be repeated without a second version.
fn check_outage_on(dialect: Dialect) {
    let Some(server) = servers::server(dialect) else { return };
    let (database, proxy) = (server.database(), Proxy::to(server.port));
    let a = Process::start(&server.url_by(proxy.port, &database));
    a.post_version(&saying_flow("known", "1"), &json!({}));
    proxy.set_behaviour(Behaviour::Hole);
    let refused = a.post(&saying_flow("new", "1"), &json!({}));
    assert_eq!(refused.fault(), (503, "store_unavailable".into()), "{refused:?}");
    assert!(refused.header("retry-after").is_some());
    proxy.set_behaviour(Behaviour::Carry);
    let began = Instant::now();
    let posted = std::iter::repeat_with(|| a.post(&saying_flow("new", "1"), &json!({})))
        .inspect(|answer| assert!(answer.status == 201 || began.elapsed() < PATIENCE, "{answer:?}"))
        .find(|answer| answer.status == 201);
    assert_eq!(posted.unwrap().json()["version"], 1, "the repeated post adds no second version");
    let b = Process::start(&server.url(&database));
    assert_eq!(b.get("/v1/flows/new/versions").json()["versions"], json!([1]));
}

#[test]
fn w5_a_post_during_an_outage_of_mariadb_is_refused_and_repeated() {
    check_outage_on(Dialect::MySql);
}

#[test]
fn w5_a_post_during_an_outage_of_postgresql_is_refused_and_repeated() {
    check_outage_on(Dialect::Postgres);
}

#[test]
fn the_folder_wins_over_the_store() {
    let Some(url) = store(Dialect::Postgres) else { return };
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("flows")).unwrap();
    fs::write(folder.path().join("flows/deployed.json"), saying_flow("deployed", "folder").to_string()).unwrap();
    let (a, b) = (Process::start_in(folder, &url), Process::start(&url));
    let refused = a.post(&saying_flow("deployed", "posted"), &json!({}));
    assert_eq!(refused.fault(), (409, "flow_deployed".into()));
    assert!(refused.body.contains("`deployed.json`"), "{refused:?}");
    assert_eq!(a.ask("DELETE", "/v1/flows/deployed", &Value::Null).fault(), (409, "flow_deployed".into()));
    assert_eq!(b.post_version(&saying_flow("deployed", "posted"), &json!({})), 1);
    a.wait_for("/v1/flows", PROMISED, |answer| answer.json()["flows"][0]["hides"] == 1);
    assert_eq!(a.get("/v1/flows").json()["flows"][0]["source"], "folder");
    assert_eq!(a.run("deployed", "a")["outputs"]["said"], "folder");
    assert_eq!(b.run("deployed", "b")["outputs"]["said"], "posted");
    let listed = output_of(a.folder.path(), &["flows", "list", "--store", &url]);
    assert!(stdout(&listed).contains("folder") && stdout(&listed).contains("hides version 1"), "{}", stdout(&listed));
    // A new file in the folder is used at once.
    fs::create_dir_all(b.folder.path().join("flows")).unwrap();
    fs::write(b.folder.path().join("flows/deployed.json"), saying_flow("deployed", "new").to_string()).unwrap();
    assert_eq!(b.run("deployed", "c")["outputs"]["said"], "new");
}

#[test]
fn t3_a_tenant_does_not_see_the_posted_flows_of_another() {
    let Some(url) = store(Dialect::Postgres) else { return };
    let folder = tempfile::tempdir().unwrap();
    let done = |arguments: &[&str]| {
        let output = output_of(folder.path(), &[arguments, &["--store", &url]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        stdout(&output)
    };
    let token = |tenant: &str| {
        done(&["tenant", "create", tenant]);
        let token: Value = serde_json::from_str(&done(&["token", "create", tenant])).unwrap();
        format!("Bearer {}", token["token"].as_str().unwrap())
    };
    let (one, other) = (token("a"), token("ab"));
    fs::write(folder.path().join("mine.json"), saying_flow("mine", "of a").to_string()).unwrap();
    done(&["flows", "push", "mine.json", "--tenant", "a"]);
    let server = Process::start(&url);
    let by = |token: &str, method: &str, path: &str, body: &Value| {
        ask(server.address, method, path, &[("Authorization", token)], &body.to_string())
    };
    assert_eq!(by(&one, "GET", "/v1/flows/mine", &Value::Null).status, 200);
    for path in ["/v1/flows/mine", "/v1/flows/mine/versions", "/v1/flows/mine/versions/1"] {
        assert_eq!(by(&other, "GET", path, &Value::Null).fault(), (404, "flow_not_found".into()), "{path}");
    }
    assert_eq!(by(&other, "GET", "/v1/flows", &Value::Null).json()["flows"], json!([]));
    assert_eq!(by(&other, "DELETE", "/v1/flows/mine", &Value::Null).status, 404);
    assert_eq!(by(&other, "POST", "/v1/runs", &json!({ "flow": "mine" })).status, 404);
    // The same name is another flow. Its author is the token.
    let posted = by(&other, "POST", "/v1/flows", &json!({ "flow": saying_flow("mine", "of ab") }));
    assert_eq!((posted.status, posted.json()["version"].as_u64()), (201, Some(1)));
    let run = |token| by(token, "POST", "/v1/runs?wait=true", &json!({ "flow": "mine" })).json()["outputs"].clone();
    assert_eq!((run(&one), run(&other)), (json!({ "said": "of a" }), json!({ "said": "of ab" })));
    let history = |token| by(token, "GET", "/v1/flows/mine/versions", &Value::Null).json()["history"][0]["by"].clone();
    assert_eq!(history(&one), "operator");
    assert!(history(&other).as_str().is_some_and(|by| by != "operator" && by != "local"));
}

#[test]
fn h9_hostile_names_paths_and_sizes_of_posts_are_refused() {
    let Some(url) = store(Dialect::Postgres) else { return };
    let a = Process::start(&url);
    for path in ["../late.md", "/etc/passwd", "a/../../b", "", "a\\b", "a\u{0}b", &"x".repeat(256)] {
        let refused = a.post(&saying_flow("hostile", "1"), &json!({ path: "text" }));
        assert_eq!(refused.fault(), (422, "invalid_file".into()), "{path:?}");
    }
    let many: serde_json::Map<_, _> = (0..257).map(|index| (format!("f{index}"), json!(""))).collect();
    assert_eq!(a.post(&saying_flow("hostile", "1"), &Value::Object(many)).fault(), (422, "invalid_file".into()));
    let twice = json!({ "a.md": "1", "./a.md": "2" });
    assert_eq!(a.post(&saying_flow("hostile", "1"), &twice).fault(), (422, "invalid_file".into()));
    let large = json!({ "a.md": "x".repeat(9 << 20) });
    assert_eq!(a.post(&saying_flow("hostile", "1"), &large).status, 413);
    for name in ["../hostile", "a/b", "", &"n".repeat(65)] {
        assert_eq!(a.post(&saying_flow(name, "1"), &json!({})).status, 422, "{name:?}");
    }
    // A file that was not posted is not read from the folder of the server.
    fs::create_dir_all(a.folder.path().join("flows/prompts")).unwrap();
    fs::write(a.folder.path().join("flows/prompts/late.md"), "of the folder").unwrap();
    let refused = a.post(&asking_flow(), &json!({}));
    assert_eq!(refused.fault(), (422, "invalid_flow".into()));
    assert!(refused.body.contains("posted without this file"), "{refused:?}");
    assert_eq!(a.get("/v1/flows").json()["flows"], json!([]));
}

/// Runs a command that has to succeed. Returns its standard output.
#[track_caller]
fn done(folder: &Path, arguments: &[&str]) -> String {
    let output = output_of(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    stdout(&output)
}

#[test]
fn flows_are_pushed_with_the_files_and_flows_beside_them() {
    let Some(url) = store(Dialect::Postgres) else { return };
    let (place, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (folder, elsewhere) = (place.path(), elsewhere.path());
    let parent = json!({
        "flow": { "name": "parent", "outputs": { "said": "{{ sub.outputs.said }}" } },
        "nodes": [{ "id": "sub", "type": "control.subflow", "input": { "name": "child", "input": {} } }],
    });
    fs::create_dir_all(folder.join("prompts")).unwrap();
    fs::write(folder.join("parent.json"), parent.to_string()).unwrap();
    fs::write(folder.join("child.json"), saying_flow("child", "beside").to_string()).unwrap();
    fs::write(folder.join("asks.json"), asking_flow().to_string()).unwrap();
    fs::write(folder.join("prompts/late.md"), "Pushed?").unwrap();
    let pushed = done(folder, &["flows", "push", "parent.json", "asks.json", "--store", &url]);
    let names: Vec<_> = pushed.lines().map(|line| line.split_once("  ").unwrap().0).collect();
    assert_eq!(names, ["child", "parent", "asks"], "{pushed}");
    let again = done(folder, &["flows", "push", "parent.json", "asks.json", "--json", "--store", &url]);
    let again: Value = serde_json::from_str(&again).unwrap();
    assert!(again.as_array().unwrap().iter().all(|flow| flow["version"] == 1), "{again}");
    let listed = done(elsewhere, &["flows", "list", "--store", &url]);
    assert_eq!(listed.lines().filter(|line| line.contains("v1  store")).count(), 3, "{listed}");
    let run = done(elsewhere, &["flows", "run", "parent", "--quiet", "--store", &url]);
    assert_eq!(serde_json::from_str::<Value>(&run).unwrap(), json!({ "said": "beside" }));

    fs::write(folder.join("child.json"), saying_flow("child", "changed").to_string()).unwrap();
    done(folder, &["flows", "push", "child.json", "--store", &url]);
    let versions = done(elsewhere, &["flows", "versions", "child", "--store", &url]);
    assert!(versions.starts_with("v1  ") && versions.contains("\nv2  ") && versions.contains("operator"), "{versions}");
    let shown = done(elsewhere, &["flows", "show", "child", "--version", "1", "--store", &url]);
    assert_eq!(shown, saying_flow("child", "beside").to_string());
    assert_eq!(done(elsewhere, &["flows", "remove", "asks", "--store", &url]), "asks\n");
    let missing = output_of(elsewhere, &["flows", "show", "asks", "--store", &url]);
    assert_eq!(missing.status.code(), Some(2));

    let unshared = output_of(folder, &["flows", "push", "child.json"]);
    assert_eq!(unshared.status.code(), Some(2));
    assert!(stderr(&unshared).contains("a shared store, and none is named"), "{}", stderr(&unshared));
    fs::write(
        folder.join("broken.json"),
        r#"{ "flow": { "name": "broken" }, "nodes": [{ "id": "a", "type": "x.y" }] }"#,
    )
    .unwrap();
    let broken = output_of(folder, &["flows", "push", "broken.json", "--store", &url]);
    assert_eq!(broken.status.code(), Some(2), "{}", stderr(&broken));
    assert!(!done(elsewhere, &["flows", "list", "--store", &url]).contains("broken"));
}
