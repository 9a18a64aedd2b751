//! Outages of database servers: servers that are killed and started again, that accept no writes, and replicas.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use flowcell_runtime::sql::Dialect;
use serde_json::{Value, json};

use crate::{
    called,
    kit::{flowcell, output_of, stderr},
    servers::{self, Server},
    stores::run_ok,
};

/// Waits for an answer, so that a run is in flight when the server is killed.
pub(crate) const WAITS: &str = "
flow: { name: waits, outputs: { said: '{{ ask.response.choice }}' } }
nodes:
  - { id: ask, type: control.gate, input: { prompt: 'Well?', choices: ['yes', 'no'] } }
";

/// The longest time that a test waits for a server.
const PATIENCE: Duration = Duration::from_secs(90);
const STARTS_AWAY: &str = "the store cannot be read, so its runs wait";
const ENDS_AWAY: &str = "the store can be read again";

/// A process under test, with the lines of its standard error.
pub(crate) struct Serving {
    child: Child,
    lines: mpsc::Receiver<String>,
    seen: Vec<String>,
    pub(crate) address: String,
}

impl Serving {
    pub(crate) fn start(folder: &Path, url: &str) -> Serving {
        Serving::start_with(folder, url, &[])
    }

    pub(crate) fn start_with(folder: &Path, url: &str, more: &[&str]) -> Serving {
        let mut serving = Serving::begin(folder, url, more);
        serving.address = serving.wait_for("listening on http://").replace("listening on http://", "");
        serving
    }

    /// Starts the process, and does not wait until it serves.
    pub(crate) fn begin(folder: &Path, url: &str, more: &[&str]) -> Serving {
        let mut command = flowcell(folder);
        command.args(["serve", "--listen", "127.0.0.1:0", "--store", url]).args(more);
        Serving::spawn(command)
    }

    /// Starts a process, and collects the lines of its standard error.
    pub(crate) fn spawn(mut command: Command) -> Serving {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let read = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || read.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Serving { child, lines, seen: Vec::new(), address: String::new() }
    }

    /// Waits for a line with this text.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        while let Ok(line) = self.lines.recv() {
            self.seen.push(line.clone());
            if line.contains(text) {
                return line;
            }
        }
        panic!("the server has ended, and did not say `{text}`: {:?}", self.seen);
    }

    pub(crate) fn ask(&self, method: &str, path: &str, body: &Value) -> String {
        called::exchange(&self.address, method, path, body)
    }

    /// Waits until the server is ready. A server that was away may be away once more for a moment, until all sessions are
    /// new.
    pub(crate) fn wait_until_ready(&self) {
        let since = Instant::now();
        loop {
            let ready = self.ask("GET", "/readyz", &Value::Null);
            if ready.starts_with("HTTP/1.1 200 ") {
                return;
            }
            assert!(since.elapsed() < PATIENCE, "{ready}");
        }
    }

    /// Asserts that the server says 503 `store_unavailable`, with the time after which to repeat the request.
    pub(crate) fn assert_unavailable(&self, method: &str, path: &str, body: &Value) {
        let answer = self.ask(method, path, body);
        let is_temporary = answer.starts_with("HTTP/1.1 503 ") && answer.to_lowercase().contains("\r\nretry-after: ");
        assert!(is_temporary && answer.contains("store_unavailable"), "{method} {path}: {answer}");
    }

    /// Asks the process to stop, and waits for its end. Returns its exit code.
    pub(crate) fn end(&mut self) -> Option<i32> {
        assert!(Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap().success());
        self.child.wait().unwrap().code()
    }

    pub(crate) fn stop(mut self) -> Vec<String> {
        assert_eq!(self.end(), Some(0), "{:?}", self.seen);
        self.seen.extend(self.lines.iter());
        std::mem::take(&mut self.seen)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn start_body() -> Value {
    json!({ "flow": { "flow": { "name": "noop" }, "nodes": [{ "id": "n", "type": "control.noop" }] } })
}

pub(crate) fn check_end(folder: &Path, url: &str, run: &str) {
    let shown = || run_ok(folder, &["runs", "show", run, "--json", "--store", url]);
    assert!((0..2_000).any(|_| shown().contains("\"succeeded\"")), "{run} does not end");
}

/// Kills the server while a run waits. Processes stay, say so, and go on when the server is back.
fn check_kill_of(dialect: Dialect) {
    let Some(mut server) = servers::own_server(dialect) else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let url = server.url(&server.database());
    fs::write(folder.join("waits.yaml"), WAITS).unwrap();
    run_ok(folder, &["store", "migrate", "--store", &url]);
    let mut serving = Serving::start(folder, &url);
    run_ok(folder, &["run", "waits.yaml", "--run-id", "a", "--detach", "--quiet", "--store", &url]);
    server.kill();
    serving.wait_for(STARTS_AWAY);
    serving.assert_unavailable("GET", "/readyz", &Value::Null);
    serving.assert_unavailable("POST", "/v1/runs", &start_body());
    let healthy = serving.ask("GET", "/healthz", &Value::Null);
    assert!(healthy.starts_with("HTTP/1.1 200 "), "{healthy}");
    // A command says at once what it waits for, and then ends with the documented code.
    let listed = output_of(folder, &["runs", "list", "--store", &url]);
    assert_eq!(listed.status.code(), Some(74), "{}", stderr(&listed));
    let said = stderr(&listed);
    assert!(said.contains("waiting for the database server 127.0.0.1:"), "{said}");
    assert!(said.contains("the server cannot be reached"), "{said}");
    // A server that starts meanwhile waits, and says so.
    let mut late = Serving::begin(folder, &url, &[]);
    late.wait_for("waiting for the database server 127.0.0.1:");
    server.start();
    serving.wait_for(ENDS_AWAY);
    late.address = late.wait_for("listening on http://").replace("listening on http://", "");
    [&serving, &late].into_iter().for_each(Serving::wait_until_ready);
    // The run asks as soon as it is driven.
    let answered = || output_of(folder, &["answer", "a", "ask", "yes", "--store", &url]).status.success();
    assert!((0..200).any(|_| answered()), "{}", run_ok(folder, &["runs", "show", "a", "--store", &url]));
    check_end(folder, &url, "a");
    late.stop();
    let seen = serving.stop();
    // The outage has one line at its begin and one at its end.
    let lines: Vec<_> = seen.iter().filter(|line| line.contains(" WARN ") || line.contains(" ERROR ")).collect();
    assert_eq!(lines.iter().filter(|line| line.contains(STARTS_AWAY)).count(), 1, "{lines:?}");
    assert!(lines.len() <= 3, "{lines:?}");
}

/// A server that refuses writes, as with a full disk, keeps its processes alive. Reads succeed meanwhile.
#[test]
fn w5_runs_wait_while_postgresql_accepts_no_writes() {
    let Some(server) = servers::own_server(Dialect::Postgres) else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let database = server.database();
    let url = server.url(&database);
    run_ok(folder, &["store", "migrate", "--store", &url]);
    let mut serving = Serving::start(folder, &url);
    let set = |value: &str| {
        server.execute(&database, &[&format!("ALTER SYSTEM SET default_transaction_read_only = {value}")]);
        server.execute(&database, &["SELECT pg_reload_conf()"]);
    };
    set("on");
    serving.wait_for("the store cannot be written, so its runs wait");
    serving.assert_unavailable("GET", "/readyz", &Value::Null);
    serving.assert_unavailable("POST", "/v1/runs", &start_body());
    let listed = serving.ask("GET", "/v1/runs", &Value::Null);
    assert!(listed.starts_with("HTTP/1.1 200 "), "{listed}");
    set_writable(&server, &database);
    serving.wait_for("the store can be written again");
    let started = serving.ask("POST", "/v1/runs", &start_body());
    assert!(started.starts_with("HTTP/1.1 201 "), "{started}");
    serving.stop();
}

fn set_writable(server: &Server, database: &str) {
    let writable = "SET default_transaction_read_only = off";
    server.execute(database, &[writable, "ALTER SYSTEM RESET default_transaction_read_only"]);
    server.execute(database, &["SELECT pg_reload_conf()"]);
}

/// A URL with several hosts: one does not answer, one is a replica, and one is the primary. When the primary becomes a
/// replica and another host the primary, the process follows.
#[test]
fn w5_the_primary_of_several_hosts_is_found_and_followed() {
    let (Some(mut one), Some(two)) = (servers::own_server(Dialect::MySql), servers::server(Dialect::MySql)) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let database = two.database();
    one.execute("mysql", &[&format!("CREATE DATABASE IF NOT EXISTS {database}")]);
    let hosts = |ports: &[u16]| {
        let hosts: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("mysql://root@{}/{database}?ssl-mode=disabled&failover=lossy", hosts.join(","))
    };
    // The replica is skipped, although this user could write to it.
    one.execute("mysql", &["SET GLOBAL read_only = 1"]);
    let url = hosts(&[closed, one.port, two.port]);
    run_ok(folder, &["store", "migrate", "--store", &url]);
    assert!(two.number(&database, "SELECT count(*) FROM flowcell_version") > 0);
    let in_replica = format!("SELECT count(*) FROM information_schema.tables WHERE table_schema = '{database}'");
    assert_eq!(one.number("mysql", &in_replica), 0);
    // The first host is the primary now, and dies.
    one.execute("mysql", &["SET GLOBAL read_only = 0"]);
    let url = hosts(&[one.port, two.port]);
    run_ok(folder, &["store", "migrate", "--store", &url]);
    let mut serving = Serving::start(folder, &url);
    one.kill();
    serving.wait_for(&format!("the store uses the database server 127.0.0.1:{} from now on", two.port));
    let started = (0..100).any(|_| serving.ask("POST", "/v1/runs", &start_body()).starts_with("HTTP/1.1 201 "));
    assert!(started, "{:?}", serving.seen);
    assert!(two.number(&database, "SELECT count(*) FROM flowcell_runs") > 0);
    serving.stop();
}

/// The primary dies while runs are started, and its synchronous replica is promoted. The process goes on there, with
/// every run that it has acknowledged.
#[test]
fn w5_a_promoted_synchronous_replica_has_all_acknowledged_runs() {
    let Some(mut primary) = servers::own_server(Dialect::Postgres) else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let database = primary.database();
    let replica = servers::replica_of(&primary);
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", primary.port, replica.port);
    let url = format!("postgres://flowcell@{hosts}/{database}?sslmode=disable");
    let migrate = || output_of(folder, &["store", "migrate", "--store", &url]);
    let refused = migrate();
    assert!(stderr(&refused).contains("`synchronous_standby_names` is ``"), "{}", stderr(&refused));
    let synchronous = ["ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"];
    synchronous.iter().for_each(|statement| primary.execute(&database, &[statement]));
    // The server reads its settings again a moment later.
    assert!((0..1_000).any(|_| migrate().status.success()), "{}", stderr(&migrate()));
    fs::write(folder.join("waits.yaml"), WAITS).unwrap();
    let mut serving = Serving::start_with(folder, &url, &["--epoch-file", "epoch"]);
    run_ok(folder, &["run", "waits.yaml", "--run-id", "a", "--detach", "--quiet", "--store", &url]);
    let (sender, acknowledged) = mpsc::channel();
    let address = serving.address.clone();
    let starting = thread::spawn(move || {
        for number in 0.. {
            let run = format!("r{number}");
            let body = json!({ "flow": start_body()["flow"], "runId": run });
            let answer = called::exchange(&address, "POST", "/v1/runs", &body);
            if !answer.starts_with("HTTP/1.1 201 ") || sender.send(run).is_err() {
                return answer;
            }
        }
        String::new()
    });
    let mut runs: Vec<String> = acknowledged.iter().take(10).collect();
    primary.kill();
    runs.extend(acknowledged.iter());
    // The request that the outage has interrupted is not acknowledged.
    assert!(!starting.join().unwrap().starts_with("HTTP/1.1 201 "));
    replica.execute("postgres", &["SELECT pg_promote()"]);
    serving.wait_for(&format!("the store uses the database server 127.0.0.1:{} from now on", replica.port));
    let url = replica.url(&database);
    let answered = || output_of(folder, &["answer", "a", "ask", "yes", "--store", &url]).status.success();
    assert!((0..200).any(|_| answered()), "{}", run_ok(folder, &["runs", "show", "a", "--store", &url]));
    runs.push("a".into());
    runs.iter().for_each(|run| check_end(folder, &url, run));
    let seen = serving.stop();
    assert!(!seen.iter().any(|line| line.contains("older copy")), "{seen:?}");
}

/// Restores an older copy of a database, first while no process runs, and then under a running process. Both times the
/// live runs are parked, once.
#[test]
fn t11_an_older_copy_of_a_shared_store_is_recognised() {
    let Some(server) = servers::server(Dialect::Postgres) else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let database = server.database();
    let url = server.url(&database);
    let system = |statements: &[&str]| server.execute("postgres", statements);
    let copy = |name: &str| system(&[&format!("CREATE DATABASE {name} TEMPLATE {database}")]);
    let bring_back = |name: &str| {
        system(&[
            &format!("DROP DATABASE {database} WITH (FORCE)"),
            &format!("ALTER DATABASE {name} RENAME TO {database}"),
        ]);
    };
    let start = |run: &str| {
        run_ok(folder, &["run", "waits.yaml", "--run-id", run, "--detach", "--quiet", "--store", &url]);
    };
    let parked = || run_ok(folder, &["runs", "list", "--status", "needs_attention", "--store", &url]);
    let serve = || Serving::start_with(folder, &url, &["--epoch-file", "epoch"]);
    fs::write(folder.join("waits.yaml"), WAITS).unwrap();
    start("a");
    let (early, late) = (format!("{database}_early"), format!("{database}_late"));
    copy(&early);
    let started = serve().stop();
    assert!(!started.iter().any(|line| line.contains("older copy")), "{started:?}");
    start("b");
    // The process reads the number of the database when it starts.
    serve().stop();
    bring_back(&early);
    let restored = serve().stop();
    assert!(restored.iter().any(|line| line.contains("older copy, so 1 unfinished runs are parked")), "{restored:?}");
    assert!(parked().contains('a') && !parked().contains("b  "), "{}", parked());
    let again = serve().stop();
    assert!(!again.iter().any(|line| line.contains("older copy")), "{again:?}");
    // A person has examined the run, and allows it to go on.
    let resumed = output_of(folder, &["runs", "resume", "a", "--answer", "ask=yes", "--quiet", "--store", &url]);
    assert!(resumed.status.success(), "{}", stderr(&resumed));
    start("c");
    copy(&late);
    let mut serving = serve();
    let started = serving.ask("POST", "/v1/runs", &start_body());
    assert!(started.starts_with("HTTP/1.1 201 "), "{started}");
    bring_back(&late);
    serving.wait_for("older copy, so 1 unfinished runs are parked");
    assert!(parked().contains('c'), "{}", parked());
    serving.stop();
}

/// Kills one of two processes on this machine while it drives a run. The other one says that it takes the run over before
/// the lease has ended, and ends it.
fn check_kill_of_one_process(dialect: Dialect) {
    let Some(server) = servers::server(dialect) else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let url = server.url(&server.database());
    let (mut one, mut other) = (Serving::start(folder, &url), Serving::start(folder, &url));
    let flow =
        json!({ "flow": { "name": "slow" }, "nodes": [{ "id": "w", "type": "control.wait", "input": { "ms": 900 } }] });
    let started = one.ask("POST", "/v1/runs", &json!({ "flow": flow, "runId": "a" }));
    assert!(started.starts_with("HTTP/1.1 201 "), "{started}");
    one.child.kill().unwrap();
    one.child.wait().unwrap();
    other.wait_for("on this machine has died before its lease ended: its runs are taken over now");
    check_end(folder, &url, "a");
    other.stop();
}

/// A run of a process that was killed in another container is resumed by hand as soon as the lease of that process has
/// ended.
#[test]
fn w5_resume_waits_for_the_claim_of_a_dead_process() {
    let Some(server) = servers::server(Dialect::Postgres) else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let url = server.url(&server.database());
    let flow = "flow: { name: slow }\nnodes: [{ id: w, type: control.wait, input: { ms: 900 } }]\n";
    fs::write(folder.join("slow.yaml"), flow).unwrap();
    let mut running = flowcell(folder);
    running
        .env("TMPDIR", folder)
        .args(["run", "slow.yaml", "--run-id", "a", "--events", "-", "--store", &url])
        .stdout(Stdio::piped());
    let mut running = running.spawn().unwrap();
    let mut events = BufReader::new(running.stdout.take().unwrap()).lines();
    assert!(events.any(|line| line.unwrap().contains("\"w\"")), "the task does not begin");
    running.kill().unwrap();
    running.wait().unwrap();
    let resumed = output_of(folder, &["runs", "resume", "a", "--store", &url]);
    assert!(resumed.status.success(), "{}", stderr(&resumed));
    assert!(stderr(&resumed).contains("another process has claimed the run `a`; waiting"), "{}", stderr(&resumed));
}

#[test]
fn w5_another_process_on_mariadb_takes_runs_over_at_once() {
    check_kill_of_one_process(Dialect::MySql);
}

#[test]
fn w5_another_process_on_postgresql_takes_runs_over_at_once() {
    check_kill_of_one_process(Dialect::Postgres);
}

#[test]
fn w5_runs_wait_while_mariadb_is_killed() {
    check_kill_of(Dialect::MySql);
}

#[test]
fn w5_runs_wait_while_postgresql_is_killed() {
    check_kill_of(Dialect::Postgres);
}
