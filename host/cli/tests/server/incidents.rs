//! Makes the incidents of the page `runbook` on a real server, and ends each with the commands of the page.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::Path,
    process::{Child, Output},
};

use flowcell_runtime::sql::Dialect;
use serde_json::{Value, json};

use crate::{
    client::ask,
    kit::{Disk, flowcell, output_of, stderr, stdout},
    proxy::{Behaviour, Proxy},
    samples::{asks, hello},
    server::process::{serve, serve_with_output, stop},
    servers,
    triggers::hooks::{headers_signed_by, now},
};

/// The number of checks after which the test stops waiting for a state.
const MAX_TRIES: usize = 100_000;
/// The maximum number of processes that a run kills before it is parked.
const MAX_LIVES: usize = 6;

/// Returns the commands of a section of the page.
fn commands(section: &str) -> Vec<&'static str> {
    let page = flowcell_server::manual::page("runbook").unwrap().text;
    let (_, text) = page.split_once(&format!("\n## {section}\n")).unwrap_or_else(|| panic!("no section {section}"));
    let text = text.split("\n## ").next().unwrap();
    let commands: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    assert!(!commands.is_empty(), "{section}");
    commands
}

/// Runs the commands of a section beside the server, with its words in capital letters replaced. Returns their outputs.
#[track_caller]
fn follow(folder: &Path, section: &str, words: &[(&str, &str)], environment: &[(&str, &str)]) -> Vec<Output> {
    let run = |command: &str| {
        let words_of = command.split(' ').skip(1);
        let arguments = words_of.map(|word| words.iter().find(|(name, _)| *name == word).map_or(word, |(_, own)| own));
        let output = flowcell(folder).args(arguments).envs(environment.iter().copied()).output().unwrap();
        // 3: the run waits.
        assert!(matches!(output.status.code(), Some(0 | 3)), "{command}: {}", stderr(&output));
        output
    };
    commands(section).into_iter().map(run).collect()
}

fn post(address: SocketAddr, path: &str, body: &Value) -> (u16, Value) {
    let answer = ask(address, "POST", path, &[], &body.to_string());
    (answer.status, answer.json())
}

fn status(address: SocketAddr, run: &str) -> String {
    let run = ask(address, "GET", &format!("/v1/runs/{run}"), &[], "").json();
    run["status"].as_str().unwrap_or_default().to_owned()
}

#[track_caller]
fn wait_until(what: &str, mut is_there: impl FnMut() -> bool) {
    assert!((0..MAX_TRIES).any(|_| is_there()), "never: {what}");
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_question_that_nobody_answers() {
    let folder = tempfile::tempdir().unwrap();
    let (child, address) = serve(folder.path(), &[]);
    let (started, _) = post(address, "/v1/runs?wait=true", &json!({ "flow": asks(), "runId": "stuck" }));
    assert!(started < 300);
    let words = [("2h", "0.001s"), ("RUN", "stuck"), ("GATE", "ok"), ("VALUE", "yes")];
    let outputs = follow(folder.path(), "Nobody answers a question", &words, &[]);
    assert!(stdout(&outputs[0]).starts_with("stuck "), "{}", stdout(&outputs[0]));
    assert!(stdout(&outputs[1]).contains("Go on?"), "{}", stdout(&outputs[1]));
    wait_until("the end of the run", || status(address, "stuck") == "succeeded");
    assert_eq!(stop(child), Some(0));
}

#[test]
fn a_version_of_a_flow_that_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let (child, address) = serve(folder.path(), &[]);
    let gate = json!({ "id": "ok", "type": "control.gate", "input": { "prompt": "Go on?", "choices": ["yes", "no"] } });
    let about = json!({ "name": "order", "policy": { "failFast": false } });
    let flow = |node: Value| json!({ "flow": { "flow": &about, "nodes": [node, &gate] } });
    let wrong = json!({ "id": "a", "type": "control.fail", "input": { "message": "out of stock" } });
    let (stored, answer) = post(address, "/v1/flows", &flow(wrong));
    assert_eq!(stored, 201, "{answer}");
    for run in ["bad", "parked"] {
        let (_, waits) = post(address, "/v1/runs?wait=true", &json!({ "flow": "order", "runId": run }));
        assert_eq!(waits["status"], "parked", "{waits}");
    }
    assert!(post(address, "/v1/runs/bad/gates/ok/reply", &json!({ "answer": "yes" })).0 < 300);
    wait_until("the failure of the run", || status(address, "bad") == "failed");
    assert!(post(address, "/v1/flows", &flow(json!({ "id": "a", "type": "control.noop" }))).0 < 300);
    let words = [("FLOW", "order"), ("RUN", "bad"), ("PARKED", "parked")];
    let outputs = follow(folder.path(), "A version of a flow is wrong", &words, &[]);
    assert!(stdout(&outputs[0]).contains('1') && stdout(&outputs[1]).contains("version: 2"), "{outputs:?}");
    let repeated = ask(address, "GET", "/v1/runs?retryOf=bad", &[], "").json();
    assert_eq!(repeated["runs"][0]["status"], "succeeded", "{repeated}");
    // The run that waited goes on in the new version, and its question is still open.
    assert!(
        stdout(&outputs[4]).contains("version: 1 to 2\ngo on: ok (waiting)\nstart anew:\n  a: the type"),
        "{outputs:?}"
    );
    assert!(post(address, "/v1/runs/parked/gates/ok/reply", &json!({ "answer": "yes" })).0 < 300);
    wait_until("the end of the run that moved", || status(address, "parked") == "succeeded");
    let moved = ask(address, "GET", "/v1/runs/parked", &[], "").json();
    assert_eq!(moved["version"], 2, "{moved}");
    assert_eq!(stop(child), Some(0));
}

#[test]
fn a_run_that_ends_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let options = ["--allow-private", &*target];
    let (mut child, mut address) = serve(folder.path(), &options);
    let url = format!("http://{target}/");
    let node = json!({ "id": "send", "type": "http.request", "input": { "url": url }, "grants": { "http": [url] } });
    let flow = json!({ "flow": { "name": "poison" }, "nodes": [node] });
    let (started, answer) = post(address, "/v1/runs", &json!({ "flow": flow, "runId": "poison" }));
    assert_eq!(started, 201, "{answer}");
    listener.set_nonblocking(true).unwrap();
    // Each process dies during the request, until one finds the run parked.
    let mut lives = 0;
    loop {
        let mut request = None;
        wait_until("a request or a parked run", || {
            request = listener.accept().ok();
            request.is_some() || status(address, "poison") == "needs_attention"
        });
        if request.is_none() {
            break;
        }
        lives += 1;
        assert!(lives <= MAX_LIVES, "the run ended {lives} processes");
        kill(child);
        (child, address) = serve(folder.path(), &options);
    }
    assert!(lives >= 2, "a single death parks no run");
    let outputs = follow(folder.path(), "A run ends the process", &[("RUN", "poison")], &[]);
    assert!(stdout(&outputs[0]).starts_with("poison "), "{}", stdout(&outputs[0]));
    assert!(stdout(&outputs[1]).contains("its process ended repeatedly"), "{}", stdout(&outputs[1]));
    wait_until("the end of the run", || status(address, "poison") == "cancelled");
    let (_, after) = post(address, "/v1/runs?wait=true", &json!({ "flow": hello() }));
    assert_eq!(after["status"], "succeeded", "{after}");
    assert_eq!(stop(child), Some(0));
}

#[test]
fn a_tenant_that_takes_too_much() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let [hot, calm] = ["hot", "calm"].map(|name| tenant(folder, name));
    let (child, address) = serve(folder, &[]);
    let start = |token: &str, flow: &Value, run: &str| {
        let body = json!({ "flow": flow, "runId": run }).to_string();
        ask(address, "POST", "/v1/runs?wait=true", &[("Authorization", token)], &body)
    };
    for run in 0..12 {
        let started = start(&hot, &asks(), &format!("hot-{run}"));
        assert!(started.status < 300, "{started:?}");
    }
    fs::write(folder.join("limits.yaml"), "maxLiveRuns: 10\n").unwrap();
    let outputs = follow(folder, "A tenant takes too much", &[("TENANT", "hot"), ("RUN", "hot-0")], &[]);
    assert_eq!(outputs.len(), 4);
    wait_until("the limit", || start(&hot, &asks(), "one-more").fault() == (429, "quota_exceeded".into()));
    assert_eq!(start(&calm, &hello(), "calm").json()["status"], "succeeded");
    let cancelled = || ask(address, "GET", "/v1/runs/hot-0", &[("Authorization", &*hot)], "").json();
    wait_until("the end of the run", || cancelled()["status"] == "cancelled");
    assert_eq!(stop(child), Some(0));
}

#[test]
fn a_key_that_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let environment = [("VALUE", "hunter2-hunter2")];
    let set = ["secret", "set", "old", "--for", "https://api.example.com", "--from-env", "VALUE"];
    assert!(flowcell(folder).args(set).envs(environment).status().unwrap().success());
    fs::remove_file(folder.join(".flowcell/secret.key")).unwrap();
    let (child, _, said) = serve_with_output(folder, &[]);
    let words = [("TENANT", "local"), ("NAME", "new")];
    let outputs = follow(folder, "The key of the secrets is lost", &words, &environment);
    assert!(stdout(&outputs[0]).contains("old"), "{}", stdout(&outputs[0]));
    let secrets: Value = serde_json::from_str(&stdout(&output_of(folder, &["secret", "list"]))).unwrap();
    assert!(secrets.to_string().contains("new") && !secrets.to_string().contains("old"), "{secrets}");
    assert_eq!(stop(child), Some(0));
    drop(said);
}

#[test]
fn a_store_that_was_restored() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (child, address) = serve(folder, &[]);
    for run in ["first", "second"] {
        assert!(post(address, "/v1/runs?wait=true", &json!({ "flow": asks(), "runId": run })).0 < 300);
    }
    assert!(output_of(folder, &["store", "backup", "saved"]).status.success());
    let (_, after) = post(address, "/v1/runs?wait=true", &json!({ "flow": hello() }));
    assert_eq!(after["status"], "succeeded", "{after}");
    assert_eq!(stop(child), Some(0));
    for file in ["flowcell.db-wal", "flowcell.db-shm"] {
        // A process that ends in order may have removed the file.
        let _ = fs::remove_file(folder.join(".flowcell").join(file));
    }
    fs::copy(folder.join("saved/flowcell.db"), folder.join(".flowcell/flowcell.db")).unwrap();
    let (child, address) = serve(folder, &[]);
    let words = [("RUN", "first"), ("OTHER", "second")];
    let outputs = follow(folder, "The store was restored from a copy", &words, &[]);
    assert!(stdout(&outputs[0]).contains("first ") && stdout(&outputs[1]).contains("restored"), "{outputs:?}");
    wait_until("the end of the run", || status(address, "first") == "cancelled");
    // The other run waits for the answer to its question again.
    assert_eq!(outputs[3].status.code(), Some(3), "{}", stderr(&outputs[3]));
    assert_eq!(post(address, "/v1/runs/second/gates/ok/reply", &json!({ "answer": "yes" })).0, 200);
    wait_until("the end of the run", || status(address, "second") == "succeeded");
    assert_eq!(stop(child), Some(0));
}

/// Runs a command that must succeed. Returns its output.
#[track_caller]
fn done(folder: &Path, arguments: &[&str]) -> String {
    let output = output_of(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    stdout(&output)
}

/// Creates a tenant. Returns the header with its token.
fn tenant(folder: &Path, name: &str) -> String {
    done(folder, &["tenant", "create", name]);
    let created: Value = serde_json::from_str(&done(folder, &["token", "create", name])).unwrap();
    format!("Bearer {}", created["token"].as_str().unwrap())
}

#[test]
fn a_server_that_does_not_answer() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (child, address) = serve(folder, &[]);
    assert!(post(address, "/v1/runs?wait=true", &json!({ "flow": asks(), "runId": "asks" })).0 < 300);
    kill(child);
    let outputs = follow(folder, "The server does not answer", &[], &[]);
    assert!(outputs.iter().all(|output| output.status.success()), "{outputs:?}");
    let (child, address) = serve(folder, &[]);
    wait_until("the run", || status(address, "asks") == "parked");
    assert_eq!(stop(child), Some(0));
}

#[test]
fn a_run_that_needs_a_decision() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (child, address) = serve(folder, &[]);
    let flow = json!({
        "flow": { "name": "pay" },
        "nodes": [
            { "id": "book", "type": "control.noop", "undo": "unbook" },
            { "id": "unbook", "type": "control.fail", "input": { "message": "closed" } },
            { "id": "no", "type": "control.fail", "input": { "message": "no" } },
        ],
        "edges": [{ "from": "book", "to": "no" }],
    });
    let (_, blocked) = post(address, "/v1/runs?wait=true", &json!({ "flow": flow, "runId": "pay" }));
    assert_eq!(blocked["status"], "needs_attention", "{blocked}");
    let metrics = ask(address, "GET", "/metrics", &[], "").body;
    let series = r#"flowcell_runs_parked{tenant="local",flow="pay",reason="undo_failed"} 1"#;
    assert!(metrics.lines().any(|line| line == series), "{metrics}");
    let words = [("TENANT", "local"), ("RUN", "pay"), ("TASK", "unbook"), ("WHY", "unclear")];
    let outputs = follow(folder, "A run needs a decision", &words, &[]);
    assert!(stdout(&outputs[0]).contains("undo_failed unbook"), "{}", stdout(&outputs[0]));
    wait_until("the end of the run", || status(address, "pay") == "failed");
    assert_eq!(stop(child), Some(0));
}

#[test]
fn a_quota_that_pauses_runs() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let token = tenant(folder, "hot");
    let headers = [("Authorization", &*token)];
    fs::write(folder.join("quota.yaml"), "perDay: { events: 5, onExhausted: pause }\n").unwrap();
    done(folder, &["tenant", "policy", "hot", "--set", "quota.yaml"]);
    let (child, address) = serve(folder, &[]);
    let run = || ask(address, "GET", "/v1/runs/asks", &headers, "").json();
    let start = json!({ "flow": asks(), "runId": "asks" }).to_string();
    assert!(ask(address, "POST", "/v1/runs?wait=true", &headers, &start).status < 300);
    let answer = json!({ "answer": "yes" }).to_string();
    assert_eq!(ask(address, "POST", "/v1/runs/asks/gates/ok/reply", &headers, &answer).status, 200);
    wait_until("the pause", || run()["reason"] == "quota_exceeded");
    fs::write(folder.join("limits.yaml"), "perDay: { events: 1000, onExhausted: pause }\n").unwrap();
    let outputs = follow(folder, "A quota pauses runs", &[("TENANT", "hot")], &[]);
    assert!(stdout(&outputs[0]).starts_with("asks "), "{}", stdout(&outputs[0]));
    wait_until("the end of the run", || run()["status"] == "succeeded");
    assert_eq!(stop(child), Some(0));
}

#[test]
fn posts_that_are_refused_and_a_trigger_that_is_fired_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let token = tenant(folder, "shop");
    let headers = [("Authorization", &*token)];
    let set = ["secret", "set", "hook-key", "--tenant", "shop", "--for", "webhook", "--from-env", "VALUE"];
    let old = [("VALUE", "an-old-key-of-many-characters")];
    assert!(flowcell(folder).args(set).envs(old).status().unwrap().success());
    let (child, address) = serve(folder, &[]);
    let triggers =
        json!([{ "id": "hook", "webhook": { "secret": "hook-key" } }, { "id": "nightly", "cron": "0 2 * * *" }]);
    let flow = json!({
        "flow": { "name": "posted", "triggers": triggers },
        "nodes": [{ "id": "say", "type": "control.noop" }],
    });
    let stored = ask(address, "POST", "/v1/flows", &headers, &json!({ "flow": flow }).to_string());
    assert_eq!(stored.status, 201, "{stored:?}");
    let key = "the-key-of-the-sender-itself";
    let post = || {
        let signed = headers_signed_by(key, "m1", now(), "{}");
        let signed: Vec<_> = signed.iter().map(|(name, value)| (*name, value.as_str())).collect();
        ask(address, "POST", "/v1/hooks/shop/posted/hook", &signed, "{}").status
    };
    assert_eq!(post(), 401);
    let words = [("TENANT", "shop"), ("FLOW", "posted"), ("ID", "hook"), ("NAME", "hook-key")];
    let outputs = follow(folder, "Posts to a trigger are refused", &words, &[("VALUE", key)]);
    assert!(stdout(&outputs[0]).contains("/v1/hooks/shop/posted/hook"), "{}", stdout(&outputs[0]));
    wait_until("an accepted post", || post() == 202);
    let words = [("TENANT", "shop"), ("FLOW", "posted"), ("ID", "nightly")];
    let outputs = follow(folder, "A trigger is late", &words, &[]);
    assert!(stdout(&outputs[0]).contains("nightly"), "{}", stdout(&outputs[0]));
    let fired: Value = serde_json::from_str(&stdout(&outputs[2])).unwrap();
    let path = format!("/v1/runs/{}", fired["runId"].as_str().unwrap());
    wait_until("the run", || ask(address, "GET", &path, &headers, "").json()["status"] == "succeeded");
    assert_eq!(stop(child), Some(0));
}

#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_is_full() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = Disk::mount(256) else { return };
    let state = disk.path().join("state").display().to_string();
    let options = ["--state", &*state, "--min-free", "100"];
    let (child, address) = serve(folder.path(), &options);
    let ready = || ask(address, "GET", "/readyz", &[], "").status;
    assert_eq!(ready(), 200);
    let mut runs = 0;
    let full = std::iter::repeat_with(|| {
        runs += 1;
        let big = format!("{runs}{}", "x".repeat(1 << 20));
        let flow = json!({ "flow": { "name": "big" }, "nodes": [{ "id": "keep", "type": "control.noop", "input": { "value": big } }] });
        ask(address, "POST", "/v1/runs?wait=true", &[], &json!({ "flow": flow }).to_string())
    });
    let full = full.take(200).find(|answer| answer.status >= 300).unwrap();
    assert_eq!(full.fault(), (503, "store_full".into()), "{full:?}");
    // A sweep spares values that the same process has stored a short time ago.
    assert_eq!(stop(child), Some(0));
    let (child, address) = serve(folder.path(), &options);
    let ready = || ask(address, "GET", "/readyz", &[], "").status;
    assert_eq!(ready(), 503);
    follow(folder.path(), "The disk is full", &[("N", "0")], &[("FLOWCELL_STATE", &state)]);
    wait_until("free room", || ready() == 200);
    let (_, after) = post(address, "/v1/runs?wait=true", &json!({ "flow": hello() }));
    assert_eq!(after["status"], "succeeded", "{after}");
    assert_eq!(stop(child), Some(0));
}

#[test]
fn a_database_that_is_away() {
    let Some(server) = servers::server(Dialect::Postgres) else { return };
    let folder = tempfile::tempdir().unwrap();
    let database = server.database();
    let (url, proxy) = (server.url(&database), Proxy::to(server.port));
    let (child, address) = serve(folder.path(), &["--store", &server.url_by(proxy.port, &database)]);
    let (_, asked) = post(address, "/v1/runs?wait=true", &json!({ "flow": asks(), "runId": "asks" }));
    assert_eq!(asked["status"], "parked", "{asked}");
    proxy.set_behaviour(Behaviour::Hole);
    let start = || post(address, "/v1/runs", &json!({ "flow": hello(), "runId": "later" }));
    let (refused, why) = start();
    assert_eq!((refused, &why["error"]["code"]), (503, &"store_unavailable".into()));
    assert_eq!(ask(address, "GET", "/healthz", &[], "").status, 200);
    proxy.set_behaviour(Behaviour::Carry);
    wait_until("a start", || start().0 < 300);
    let outputs = follow(folder.path(), "The database is away", &[], &[("FLOWCELL_STORE", &url)]);
    assert!(!stdout(&outputs[0]).contains("asks"), "{}", stdout(&outputs[0]));
    assert_eq!(post(address, "/v1/runs/asks/gates/ok/reply", &json!({ "answer": "yes" })).0, 200);
    wait_until("the end of the run", || status(address, "asks") == "succeeded");
    assert_eq!(stop(child), Some(0));
}
