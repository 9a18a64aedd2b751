//! Tests the real program on shared database servers, and operations on whole stores. The servers are started from
//! installed programs. Without them the tests print their names and are skipped.

#![cfg(unix)]

mod backups;
mod credentials;
mod damaged;
pub(crate) mod outages;
mod paused;
mod removed;
mod replicas;

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use flowcell_runtime::sql::Dialect;
use serde_json::Value;

use crate::{
    called,
    kit::{events, flowcell, output_of, stderr, stdout},
    proxy::{Behaviour, Proxy},
    servers::{self, Server},
};

const ASKS: &str = "
flow: { name: asks, outputs: { said: '{{ ask.response.choice }}', count: '{{ set.version }}' } }
nodes:
  - { id: set, type: system.state.set, input: { key: count, value: 1 } }
  - { id: ask, type: control.gate, input: { prompt: 'Well?', choices: ['yes', 'no'] } }
edges: [{ from: set, to: ask }]
";

/// Runs a command that has to succeed. Returns its standard output.
#[track_caller]
pub(crate) fn run_ok(folder: &Path, arguments: &[&str]) -> String {
    let output = output_of(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    stdout(&output)
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Returns the first word of each line of a table.
fn names(table: &str) -> Vec<&str> {
    table.lines().filter_map(|line| line.split(' ').next()).collect()
}

/// Fills a new database with a run that has ended and one that asks. Returns its URL.
fn fill_database(server: &Server, folder: &Path) -> String {
    let url = server.url(&server.database());
    fs::write(folder.join("asks.yaml"), ASKS).unwrap();
    run_ok(folder, &["store", "migrate", "--store", &url]);
    let answered =
        run_ok(folder, &["run", "asks.yaml", "--run-id", "a", "--answer", "ask=no", "--quiet", "--store", &url]);
    assert_eq!(json(&answered), serde_json::json!({ "said": "no", "count": 1 }));
    let parked = output_of(folder, &["run", "asks.yaml", "--run-id", "b", "--quiet", "--store", &url]);
    assert_eq!(parked.status.code(), Some(3), "{}", stderr(&parked));
    // The URL may hold a password, so it is not printed.
    assert!(stderr(&parked).contains("--store URL") && !stderr(&parked).contains(&url), "{}", stderr(&parked));
    url
}

fn check_runs_on(dialect: Dialect) {
    let Some(server) = servers::server(dialect) else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let url = fill_database(server, folder);
    let listed = run_ok(folder, &["runs", "list", "--store", &url]);
    assert_eq!(names(&listed), ["b", "a"]);
    // The variable selects the same store. The folder gets no store of its own.
    let by_name = flowcell(folder).args(["runs", "show", "b"]).env("FLOWCELL_STORE", &url).output().unwrap();
    assert!(stdout(&by_name).contains("ask") && by_name.status.success(), "{}", stderr(&by_name));
    assert!(!folder.join(".flowcell").exists());
    let detached = run_ok(folder, &["run", "asks.yaml", "--run-id", "c", "--detach", "--quiet", "--store", &url]);
    assert_eq!(detached, "c\n");
    run_ok(folder, &["drive", "--once", "--store", &url]);
    for run in ["b", "c"] {
        run_ok(folder, &["answer", run, "ask", "yes", "--store", &url]);
    }
    run_ok(folder, &["drive", "--once", "--store", &url]);
    let listed = json(&run_ok(folder, &["runs", "list", "--json", "--store", &url]));
    let standings: Vec<_> = listed.as_array().unwrap().iter().map(|run| run["status"].as_str().unwrap()).collect();
    assert_eq!(standings, ["succeeded"; 3]);
    let refused = output_of(folder, &["run", "asks.yaml", "--run-id", "a", "-i", "other=1", "--store", &url]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("the run `a` exists, and its input is another"), "{}", stderr(&refused));
    let checked = json(&run_ok(folder, &["store", "check", "--store", &url]));
    assert_eq!(checked["damage"], serde_json::json!([]), "{checked}");
}

/// Moves a run on a server to another version of its flow.
fn check_move_on(dialect: Dialect) {
    let Some(server) = servers::server(dialect) else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let url = fill_database(server, folder);
    let changed = ASKS
        .replace("count: '{{ set.version }}'", "count: '{{ more.value }}'")
        .replace("edges: [", "  - { id: more, type: control.noop, input: { value: 5 } }\nedges: [");
    fs::write(folder.join("asks.yaml"), changed).unwrap();
    let plan = run_ok(folder, &["runs", "migrate", "b", "--to", "latest", "--check", "--store", &url]);
    assert_eq!(plan, "keep their outputs: set\ngo on: ask (waiting)\nstart anew:\n  more: it is new\n");
    let moved = ["runs", "migrate", "b", "--to", "latest", "--answer", "ask=yes", "--quiet", "--store", &url];
    assert_eq!(json(&run_ok(folder, &moved)), serde_json::json!({ "said": "yes", "count": 5 }));
    // An ended run does not move. A whole copy of the store has both versions.
    assert_eq!(output_of(folder, &[&moved[..5], &["--store", &url]].concat()).status.code(), Some(2));
    let checked = json(&run_ok(folder, &["store", "check", "--store", &url]));
    assert_eq!(checked["damage"], serde_json::json!([]), "{checked}");
    run_ok(folder, &["runs", "gc", "--keep", "10", "--store", &url]);
    let retried = ["runs", "retry", "b", "--from", "more", "--quiet", "--store", &url];
    assert_eq!(json(&run_ok(folder, &retried)), serde_json::json!({ "said": "yes", "count": 5 }));
}

/// Cuts the connection to the server for longer than a process waits for an answer. The process does not end, reports
/// the outage, and drives runs again afterwards.
fn check_outage_of(dialect: Dialect, command: &[&str]) {
    let Some(server) = servers::server(dialect) else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let database = server.database();
    let (url, proxy) = (server.url(&database), Proxy::to(server.port));
    fs::write(folder.join("asks.yaml"), ASKS).unwrap();
    run_ok(folder, &["store", "migrate", "--store", &url]);
    let mut driver = flowcell(folder);
    driver.args(command).args(["--store", &server.url_by(proxy.port, &database)]).stderr(Stdio::piped());
    let mut driver = driver.spawn().unwrap();
    let mut lines = BufReader::new(driver.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut wait_for = |text: &str| {
        let mut seen = Vec::new();
        let found = lines.by_ref().any(|line| {
            seen.push(line);
            seen.last().is_some_and(|line| line.contains(text))
        });
        assert!(found, "{command:?} has ended, and did not say `{text}`: {seen:?}");
        seen.pop().unwrap_or_default()
    };
    let address =
        command.contains(&"serve").then(|| wait_for("listening on http://").replace("listening on http://", ""));
    // A run that is driven shows that the process has begun.
    let begin = |run: &str| {
        run_ok(
            folder,
            &["run", "asks.yaml", "--run-id", run, "--answer", "ask=no", "--detach", "--quiet", "--store", &url],
        )
    };
    let ends = |run: &str| {
        let shown = || run_ok(folder, &["runs", "show", run, "--json", "--store", &url]);
        assert!((0..2_000).any(|_| shown().contains("\"succeeded\"")), "{run} is not driven");
    };
    begin("a");
    ends("a");
    proxy.set_behaviour(Behaviour::Hole);
    wait_for("the store cannot be read, so its runs wait");
    if let Some(address) = &address {
        let healthy = called::exchange(address, "GET", "/healthz", &Value::Null);
        assert!(healthy.starts_with("HTTP/1.1 200 "), "{healthy}");
        let start = serde_json::json!({ "flow": { "nodes": [{ "id": "n", "type": "control.noop" }] } });
        let refused = called::exchange(address, "POST", "/v1/runs", &start);
        let is_temporary = refused.starts_with("HTTP/1.1 503 ") && refused.to_lowercase().contains("\r\nretry-after: ");
        assert!(is_temporary && refused.contains("store_unavailable"), "{refused}");
    }
    proxy.set_behaviour(Behaviour::Carry);
    wait_for("the store can be read again");
    begin("b");
    ends("b");
    assert!(Command::new("kill").args(["-TERM", &driver.id().to_string()]).status().unwrap().success());
    assert_eq!(driver.wait().unwrap().code(), Some(0), "{command:?}");
}

/// Copies the secrets of a folder to a server, which encrypts them under another key.
fn check_secrets_on(dialect: Dialect) {
    let Some(server) = servers::server(dialect) else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let key = |digit: &str| digit.repeat(64);
    let secret = |arguments: &[&str]| {
        let mut command = flowcell(folder);
        command.arg("secret").args(arguments).env("VALUE", "hunter2-hunter2").env("ONE", key("1")).env("TWO", key("2"));
        command.output().unwrap()
    };
    let url = server.url(&server.database());
    run_ok(folder, &["store", "migrate", "--store", &url]);
    let refused = secret(&["set", "a", "--from-env", "VALUE", "--store", &url]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("secrets of a shared store need the same key"), "{}", stderr(&refused));
    for name in ["a", "A"] {
        let set = secret(&["set", name, "--from-env", "VALUE", "--store", &url, "--secret-key", "env:ONE"]);
        assert!(set.status.success(), "{}", stderr(&set));
    }
    let rotate =
        |from: &str| secret(&["rotate-key", "--store", &url, "--secret-key", from, "--new-secret-key", "env:TWO"]);
    let wrong = rotate("env:TWO");
    assert!(stderr(&wrong).contains("the secret is encrypted with the key"), "{}", stderr(&wrong));
    let rotated = rotate("env:ONE");
    assert_eq!(json(&stdout(&rotated))["secrets"], 2, "{}", stderr(&rotated));
    // A copy has the encrypted secrets but not their key.
    run_ok(folder, &["store", "copy", &url, "copied"]);
    let listed = |more: &[&str]| json(&stdout(&secret(&[&["list"], more].concat())));
    assert_eq!(listed(&["--state", "copied"]), listed(&["--store", &url]));
    assert!(!folder.join("copied/secret.key").exists());
    let unread = secret(&["rotate-key", "--state", "copied"]);
    assert!(stderr(&unread).contains("the secret is encrypted with the key"), "{}", stderr(&unread));
    let read = secret(&["rotate-key", "--state", "copied", "--secret-key", "env:TWO", "--new-secret-key", "env:ONE"]);
    assert_eq!(json(&stdout(&read))["secrets"], 2, "{}", stderr(&read));
}

#[test]
fn secrets_on_mariadb() {
    check_secrets_on(Dialect::MySql);
}

#[test]
fn secrets_on_postgres() {
    check_secrets_on(Dialect::Postgres);
}

/// Returns the events of a run in a store in a folder.
fn events_in(folder: &Path, state: &str, run: &str) -> Vec<Value> {
    let told = run_ok(folder, &["runs", "events", run, "--state", state]);
    told.lines().map(json).collect()
}

fn check_copy_from(dialect: Dialect) {
    let Some(server) = servers::server(dialect) else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let url = fill_database(server, folder);
    run_ok(folder, &["store", "copy", &url, ".flowcell"]);
    run_ok(folder, &["store", "backup", "saved", "--store", &url]);
    let told_there: Vec<Value> = run_ok(folder, &["runs", "events", "b", "--store", &url]).lines().map(json).collect();
    assert_eq!(events(folder, "b"), told_there);
    assert_eq!(events_in(folder, "saved", "b"), told_there);
    let full = output_of(folder, &["store", "copy", &url, ".flowcell"]);
    assert!(!full.status.success() && stderr(&full).contains("not empty"), "{}", stderr(&full));
    // A run is resumed in the copy, and from there in another database.
    run_ok(folder, &["answer", "b", "ask", "yes"]);
    let other = server.url(&server.database());
    let amount = json(&run_ok(folder, &["store", "copy", ".flowcell", &other]));
    assert_eq!(amount["runs"], 2, "{amount}");
    let ended = run_ok(folder, &["runs", "resume", "b", "--quiet", "--store", &other]);
    assert_eq!(json(&ended), serde_json::json!({ "said": "yes", "count": 2 }));
    // The original store is unaffected.
    let asked = output_of(folder, &["runs", "resume", "b", "--quiet", "--store", &url]);
    assert_eq!(asked.status.code(), Some(3), "{}", stderr(&asked));
    for store in [["--store", &other], ["--state", "saved"]] {
        let checked = json(&run_ok(folder, &["store", "check", store[0], store[1]]));
        assert_eq!(checked["damage"], serde_json::json!([]), "{checked}");
    }
}

#[test]
fn w5_a_driver_outlives_an_outage_of_mariadb() {
    check_outage_of(Dialect::MySql, &["drive"]);
}

#[test]
fn w5_a_server_outlives_an_outage_of_postgresql() {
    check_outage_of(Dialect::Postgres, &["serve", "--listen", "127.0.0.1:0"]);
}

#[test]
fn the_program_runs_on_mariadb() {
    check_runs_on(Dialect::MySql);
}

#[test]
fn a_run_moves_to_another_version_on_mariadb() {
    check_move_on(Dialect::MySql);
}

#[test]
fn the_program_runs_on_postgresql() {
    check_runs_on(Dialect::Postgres);
}

#[test]
fn a_run_moves_to_another_version_on_postgresql() {
    check_move_on(Dialect::Postgres);
}

#[test]
fn a_store_on_mariadb_is_copied_and_backed_up() {
    check_copy_from(Dialect::MySql);
}

#[test]
fn a_store_on_postgresql_is_copied_and_backed_up() {
    check_copy_from(Dialect::Postgres);
}

#[test]
fn a_store_in_a_folder_is_looked_after() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("asks.yaml"), ASKS).unwrap();
    run_ok(folder, &["store", "migrate"]);
    run_ok(folder, &["run", "asks.yaml", "--run-id", "a", "--answer", "ask=no", "--quiet"]);
    run_ok(folder, &["store", "backup", "saved"]);
    assert_eq!(events_in(folder, "saved", "a"), events(folder, "a"));
    let checked = json(&run_ok(folder, &["store", "check", "--state", "saved"]));
    assert_eq!(checked["damage"], serde_json::json!([]), "{checked}");
    // Change one byte of the journal.
    let database = folder.join("saved/flowcell.db");
    let mut bytes = fs::read(&database).unwrap();
    let at = bytes.windows(8).position(|window| window == b"\"RunStar").unwrap();
    bytes[at + 1] = b'X';
    fs::write(&database, bytes).unwrap();
    let checked = output_of(folder, &["store", "check", "--state", "saved"]);
    assert_eq!(checked.status.code(), Some(1), "{}", stderr(&checked));
    assert!(
        stderr(&checked).contains("the store is damaged") && stdout(&checked).contains("`a`"),
        "{}",
        stdout(&checked)
    );
    let memory = output_of(folder, &["store", "check", "--store", "memory:"]);
    assert!(stderr(&memory).contains("a store in memory needs no maintenance"), "{}", stderr(&memory));
}
