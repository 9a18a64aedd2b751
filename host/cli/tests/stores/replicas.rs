//! Database servers whose commits wait for a synchronous replica that is away.

use std::{fs, thread};

use flowcell_runtime::sql::Dialect;
use serde_json::{Value, json};

use crate::{
    called,
    kit::{self, output_of},
    servers::{self, Server},
    stores::{
        outages::{self, Serving, WAITS},
        run_ok,
    },
};

/// Maximum number of sessions of the server that wait: of each of three processes the commit of a run, the renewal of the
/// lease and the test.
const MAX_WAITING: i64 = 9;

/// A server whose commits begin to wait while a run is live and another one is started. `end` lets them return.
fn check_waiting_commits(server: &Server, begin: impl FnOnce(), waiting: &str, cause: &str, end: impl FnOnce()) {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let database = server.database();
    let url = server.url(&database);
    fs::write(folder.join("waits.yaml"), WAITS).unwrap();
    run_ok(folder, &["store", "migrate", "--store", &url]);
    let mut serving = Serving::start(folder, &url);
    let mut other = (kit::scale() > 1).then(|| Serving::start(folder, &url));
    run_ok(folder, &["run", "waits.yaml", "--run-id", "a", "--detach", "--quiet", "--store", &url]);
    begin();
    let address = serving.address.clone();
    let body = json!({ "flow": outages::start_body()["flow"], "runId": "b" });
    let starting = thread::spawn(move || called::exchange(&address, "POST", "/v1/runs", &body));
    let line = serving.wait_for("the store cannot be written, so its runs wait");
    assert!(line.contains("the server answers, but a commit has not returned for ") && line.contains(cause), "{line}");
    serving.assert_unavailable("GET", "/readyz", &Value::Null);
    serving.assert_unavailable("POST", "/v1/runs", &outages::start_body());
    // A server that starts meanwhile waits, and says so.
    let mut late = Serving::begin(folder, &url, &[]);
    late.wait_for(": it answers, but a commit has not returned; a synchronous replica may be away");
    for path in ["/healthz", "/v1/runs"] {
        let answer = serving.ask("GET", path, &Value::Null);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
    }
    if let Some(other) = &mut other {
        // It renews its lease, and so notices the outage. Then it can be stopped, and the outage outlasts the lease.
        other.wait_for("the store cannot be written, so its runs wait");
        other.end();
        let interrupted = output_of(folder, &["runs", "cancel", "a", "--store", &url]);
        assert_eq!(interrupted.status.code(), Some(74), "{interrupted:?}");
    }
    let waiting = server.number(&database, waiting);
    assert!((1..=MAX_WAITING).contains(&waiting), "{waiting} sessions wait");
    end();
    serving.wait_for("the store can be written again, after ");
    late.address = late.wait_for("listening on http://").replace("listening on http://", "");
    [&serving, &late].into_iter().for_each(Serving::wait_until_ready);
    late.stop();
    // The start that was interrupted is acknowledged, or is refused and can be repeated.
    let interrupted = starting.join().unwrap();
    assert!(["HTTP/1.1 201 ", "HTTP/1.1 503 "].iter().any(|status| interrupted.starts_with(status)), "{interrupted}");
    let repeated = serving.ask("POST", "/v1/runs", &json!({ "flow": outages::start_body()["flow"], "runId": "b" }));
    assert!(["HTTP/1.1 200 ", "HTTP/1.1 201 "].iter().any(|status| repeated.starts_with(status)), "{repeated}");
    let answered = || output_of(folder, &["answer", "a", "ask", "yes", "--store", &url]).status.success();
    assert!((0..200).any(|_| answered()), "{}", run_ok(folder, &["runs", "show", "a", "--store", &url]));
    ["a", "b"].iter().for_each(|run| outages::check_end(folder, &url, run));
    let tests = "SELECT count(*) FROM flowcell_owners WHERE name = 'test'";
    assert_eq!(server.number(&database, tests), 0);
    let seen = serving.stop();
    // In a long outage there is also one about the run, which the process has given up.
    let lines: Vec<_> = seen.iter().filter(|line| line.contains(" WARN ") || line.contains(" ERROR ")).collect();
    let about_store = lines.iter().filter(|line| line.contains("the store can")).count();
    // A busy machine may stop the server a second time, and a long outage ends the claims on runs.
    assert!((2..=4).contains(&about_store) && lines.len() <= 6, "{lines:?}");
}

#[test]
fn w5_a_commit_that_waits_for_a_replica_of_postgresql_is_an_outage() {
    let Some(primary) = servers::own_server(Dialect::Postgres) else { return };
    let mut replica = servers::replica_of(&primary);
    let set = ["ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"];
    set.iter().for_each(|statement| primary.execute("postgres", &[statement]));
    let synchronous = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
    assert!((0..1_000).any(|_| primary.number("postgres", synchronous) == 1), "the replica is not synchronous");
    let replica = std::cell::RefCell::new(&mut replica);
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    let cause =
        "it waits for a synchronous replica; start it, or connect another one that `synchronous_standby_names`, `*`";
    check_waiting_commits(&primary, || replica.borrow_mut().pause(), waiting, cause, || replica.borrow_mut().go_on());
}

#[test]
fn w5_a_commit_that_waits_for_a_replica_of_mariadb_is_an_outage() {
    let Some(primary) = servers::own_mysql_with_log() else { return };
    // The server waits although no replica is connected.
    for setting in ["wait_point = AFTER_SYNC", "wait_no_slave = ON", "timeout = 4294967295"] {
        primary.execute("mysql", &[&format!("SET GLOBAL rpl_semi_sync_master_{setting}")]);
    }
    let enable =
        |value: &str| primary.execute("mysql", &[&format!("SET GLOBAL rpl_semi_sync_master_enabled = {value}")]);
    let waiting = "SELECT CAST(variable_value AS SIGNED) FROM information_schema.global_status
        WHERE variable_name = 'rpl_semi_sync_master_wait_sessions'";
    let cause = "it waits for a semi-synchronous replica";
    check_waiting_commits(&primary, || enable("ON"), waiting, cause, || enable("OFF"));
}
