//! Tests the real program on a Restate cluster of one node, which is started from its npm package, with a PostgreSQL
//! server beside it. Without these the tests print their names and are skipped.

#![cfg(unix)]

#[path = "../../restate/tests/server.rs"]
#[allow(dead_code, reason = "the tests of the store use the rest")]
mod restate;

use std::{
    fs,
    path::Path,
    sync::{Arc, OnceLock},
};

use serde_json::{Value, json};

use self::restate::{free_port, post, tables, wait_until};
use crate::{
    kit::{flowcell, output_of, stderr, stdout},
    outside::server::{Server, answer},
    stores::{
        outages::{Serving, WAITS, start_body},
        run_ok,
    },
};

const KEY: &str = "env:KEY";
const VALUE: &str = "hunter2-hunter2";

/// Returns the status of each run in a list, by its id.
fn statuses(folder: &Path, url: &str, more: &[&str]) -> Vec<(String, String)> {
    let listed = run_ok(folder, &[&["runs", "list", "--json", "--store", url], more].concat());
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let text = |run: &Value, member: &str| run[member].as_str().unwrap().to_owned();
    listed.as_array().unwrap().iter().map(|run| (text(run, "runId"), text(run, "status"))).collect()
}

fn wait_for(folder: &Path, url: &str, run: &str, status: &str) {
    wait_until(&format!("the run `{run}` is {status}"), || {
        statuses(folder, url, &[]).iter().any(|(id, is)| id == run && is == status)
    });
}

#[test]
fn a_server_drives_runs_of_a_cluster_and_other_commands_reach_them() {
    let Some(cluster) = restate::server() else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("waits.yaml"), WAITS).unwrap();
    let (tables, port) = (tables().unwrap(), free_port());
    let url = cluster.url(&tables, port);
    let mut server = Serving::start(folder, &url);
    let started = server.ask("POST", "/v1/runs?wait=true", &json!({ "flow": WAITS, "runId": "a" }));
    assert!(started.contains("\"status\":\"parked\""), "{started}");
    assert_eq!(statuses(folder, &url, &[]), [("a".to_owned(), "parked".to_owned())]);
    // The address at which the cluster invokes the server is taken, so another process drives nothing.
    let refused = output_of(folder, &["run", "waits.yaml", "--run-id", "b", "--quiet", "--store", &url]);
    let told = stderr(&refused);
    assert!(refused.status.code() == Some(74) && told.contains("another process may listen there"), "{told}");
    assert!(!told.contains("postgres"), "the URL may have a password: {told}");
    let detached = run_ok(folder, &["run", "waits.yaml", "--run-id", "b", "--detach", "--quiet", "--store", &url]);
    assert_eq!(detached, "b\n");
    wait_for(folder, &url, "b", "parked");
    // A killed server leaves its runs to the next one.
    drop(server);
    server = Serving::start(folder, &url);
    run_ok(folder, &["answer", "a", "ask", "yes", "--store", &url]);
    run_ok(folder, &["runs", "cancel", "b", "--store", &url]);
    wait_for(folder, &url, "a", "succeeded");
    wait_for(folder, &url, "b", "cancelled");
    run_ok(folder, &["runs", "label", "a", "--set", "kept=yes", "--store", &url]);
    assert_eq!(statuses(folder, &url, &["--label", "kept=yes"]), [("a".to_owned(), "succeeded".to_owned())]);
    run_ok(folder, &["runs", "delete", "b", "--store", &url]);
    assert_eq!(statuses(folder, &url, &[]), [("a".to_owned(), "succeeded".to_owned())]);
    assert_eq!(server.end(), Some(0));
    // Another address takes the runs from the former one, which is said.
    let mut other = Serving::begin(folder, &cluster.url(&tables, free_port()), &[]);
    other.wait_for(&format!("and no longer to http://127.0.0.1:{port}"));
    other.wait_for("listening on http://");
    assert_eq!(other.end(), Some(0));
    // Without a server, a command drives its run itself.
    let run = ["run", "waits.yaml", "--run-id", "c", "--answer", "ask=no", "--quiet", "--store", &url];
    assert_eq!(serde_json::from_str::<Value>(&run_ok(folder, &run)).unwrap(), json!({ "said": "no" }));
}

#[test]
fn jobs_and_triggers_work_on_a_cluster() {
    let Some(cluster) = restate::server() else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("waits.yaml"), WAITS).unwrap();
    let url = cluster.url(&tables().unwrap(), free_port());
    let run = |arguments: &[&str]| run_ok(folder, &[arguments, &["--store", &url]].concat());
    let mut server = Serving::start(folder, &url);
    // The end of a run starts another one.
    let after = json!({
        "flow": { "name": "reports", "triggers": [{ "id": "after", "event": { "flow": "waits" } }] },
        "nodes": [{ "id": "say", "type": "control.noop" }],
    });
    for flow in [json!(WAITS), after] {
        let stored = server.ask("POST", "/v1/flows", &json!({ "flow": flow }));
        assert!(stored.starts_with("HTTP/1.1 201 "), "{stored}");
    }
    // The cluster has runs of other tests.
    let ids = ["j1", "j2", "j3"];
    ids.iter().for_each(|id| _ = run(&["run", "waits.yaml", "--run-id", id, "--detach", "--quiet"]));
    ids.iter().for_each(|id| wait_for(folder, &url, id, "parked"));
    let count = |filter: &[&str]| statuses(folder, &url, filter).len();
    run(&["runs", "bulk", "cancel", "--flow", "waits", "--yes"]);
    ids.iter().for_each(|id| wait_for(folder, &url, id, "cancelled"));
    wait_until("each end starts a run", || count(&["--flow", "reports", "--status", "succeeded"]) == ids.len());
    run(&["runs", "bulk", "delete", "--flow", "waits", "--status", "cancelled", "--yes"]);
    wait_until("the cancelled runs are gone", || count(&["--flow", "waits"]) == 0);
    assert_eq!(server.end(), Some(0));
}

#[test]
fn a_server_says_that_the_cluster_is_away_and_goes_on_with_it() {
    let Some(mut cluster) = restate::own_server() else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("waits.yaml"), WAITS).unwrap();
    let url = cluster.url(&tables().unwrap(), free_port());
    let server = Serving::start(folder, &url);
    run_ok(folder, &["run", "waits.yaml", "--run-id", "a", "--detach", "--quiet", "--store", &url]);
    wait_for(folder, &url, "a", "parked");
    let is_ready = || server.ask("GET", "/readyz", &Value::Null).starts_with("HTTP/1.1 200 ");
    assert!(is_ready());
    cluster.kill();
    wait_until("the server notices that the cluster is away", || !is_ready());
    server.assert_unavailable("GET", "/readyz", &Value::Null);
    server.assert_unavailable("POST", "/v1/runs", &start_body());
    // Lists are in the database.
    assert_eq!(statuses(folder, &url, &[]), [("a".to_owned(), "parked".to_owned())]);
    cluster.start();
    wait_until("the server notices that the cluster is back", is_ready);
    run_ok(folder, &["answer", "a", "ask", "yes", "--store", &url]);
    wait_for(folder, &url, "a", "succeeded");
}

#[test]
fn no_secret_is_in_the_state_or_the_journal_of_a_cluster() {
    let Some(cluster) = restate::server() else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let url = cluster.url(&tables().unwrap(), free_port());
    let admin = cluster.admin;
    let query = move |sql: &str| post(admin, "/query", &json!({ "query": sql }).to_string());
    // The journal of an invocation is gone once it ends, so the second request of the run reads it.
    let journal = Arc::new(OnceLock::new());
    let read = journal.clone();
    let outside = Server::start(move |_, before| {
        if before == 1 {
            read.set(query("SELECT * FROM sys_journal")).unwrap();
        }
        answer("200 OK", &[("content-type", "text/plain")], "a plain answer")
    });
    let origin = outside.origin();
    let with_key = |arguments: &[&str]| {
        let mut command = flowcell(folder);
        command.args(arguments).args(["--secret-key", KEY, "--store", &url]);
        let output = command.env("KEY", "1".repeat(64)).env("VALUE", VALUE).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        stdout(&output)
    };
    with_key(&["secret", "set", "token", "--for", &origin, "--from-env", "VALUE"]);
    let asks = |id: &str, more: &str| {
        format!(
            "  - {{ id: {id}, type: http.request, {more} input: {{ url: '{origin}/{id}' }}, grants: {{ http: ['{origin}'], \
             secrets: [{{ name: token, header: authorization, prefix: 'Bearer ' }}] }} }}\n"
        )
    };
    let flow = format!("flow: {{ name: asks }}\nnodes:\n{}{}", asks("a", ""), asks("b", "after: [a],"));
    fs::write(folder.join("asks.yaml"), flow).unwrap();
    let allowed = outside.address.to_string();
    with_key(&["run", "asks.yaml", "--run-id", "secretive", "--quiet", "--allow-private", &allowed]);
    let seen: Vec<_> = outside.seen().iter().map(|seen| seen.header("authorization").map(str::to_owned)).collect();
    assert_eq!(seen, vec![Some(format!("Bearer {VALUE}")); 2]);
    let state = query("SELECT service_key, key, value_utf8 FROM state WHERE service_key LIKE '%secretive%'");
    // The columns of bytes are hexadecimal.
    let in_hex = |text: &str| text.bytes().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    for (name, table) in [("state", &state), ("journal", journal.get().unwrap())] {
        let has = |text: &str| table.contains(text) || table.contains(&in_hex(text));
        assert!(has("a plain answer"), "the {name} shows the values of runs: {table}");
        assert!(!has(VALUE), "the {name} has a secret: {table}");
    }
}

#[test]
fn what_a_cluster_does_not_have_is_refused_by_name() {
    let Some(cluster) = restate::server() else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("waits.yaml"), WAITS).unwrap();
    let url = cluster.url(&tables().unwrap(), free_port());
    run_ok(folder, &["tenant", "create", "shop", "--store", &url]);
    run_ok(folder, &["tenant", "disable", "shop", "--store", &url]);
    let flows = folder.join(".flowcell/flows");
    fs::create_dir_all(&flows).unwrap();
    fs::copy(crate::kit::root().join("flows/agentic/improve-text.yaml"), flows.join("improve-text.yaml")).unwrap();
    // A command names the work that it leaves out.
    let swept = output_of(folder, &["runs", "gc", "--keep", "0", "--store", &url]);
    assert!(
        swept.status.success() && stderr(&swept).contains("warning: a store on a Restate cluster removes no files")
    );
    let in_tables = tables().unwrap();
    let other = |query: &str| format!("restate://127.0.0.1:{},127.0.0.1:{}{query}", cluster.ingress, cluster.admin);
    let (no_tables, mysql) = (other(""), other("?tables=mysql://root:hunter2@127.0.0.1/t"));
    let open = other(&format!("?tables={in_tables}&listen=0.0.0.0:{}", free_port()));
    for (arguments, named) in [
        (&["store", "check", "--store", &url][..], "no checks and no copies"),
        (&["store", "copy", &url, "copied"], "no checks and no copies"),
        (&["store", "backup", "saved", "--store", &url], "no checks and no copies"),
        (&["tenant", "delete", "shop", "--yes", "--store", &url], "does not remove tenants"),
        (
            &["--flow", "improve-text", "-s", "p", "-p", "A text.", "--store", &url],
            "does not keep the sessions of agentic flows",
        ),
        (&["runs", "list", "--store", &no_tables], "add `?tables=postgres://"),
        (&["runs", "list", "--store", &mysql], "it is the URL of a PostgreSQL database"),
        (&["serve", "--store", &open], "only with the public key of the cluster"),
        (&["run", "waits.yaml", "--store", &in_tables.replace("postgres:", "restate:")], "`restate://INGRESS"),
    ] {
        let refused = output_of(folder, arguments);
        let told = stderr(&refused);
        assert!(!refused.status.success() && told.contains(named), "{arguments:?}: {told}");
        assert!(!told.contains("hunter2"), "{told}");
    }
}
