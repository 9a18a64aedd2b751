//! Tests the deletion of runs, by hand and by rules, with the real program and real stores.

#![cfg(unix)]

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::Stdio,
};

use flowcell::{
    Filter, Host, RunOptions, Source, contract::Tenant, policy::Policy, retention::RetentionRule, tenants::Tenants,
    tenants::retention::Retention,
};
use rusqlite::Connection;
use serde_json::Value;

use crate::kit::{self, flowcell, output_of, stderr, stdout};

const ASKS: &str = "flow: { name: asks }
nodes:
  - { id: ok, type: control.gate, input: { prompt: Go on?, choices: ['yes', 'no'] } }
  - { id: call, type: control.subflow, input: { name: child } }
edges: [{ from: ok, to: call }]
";
const CHILD: &str = "flow: { name: child, input: { big: '' } }
nodes: [{ id: add, type: control.noop, input: { value: '{{ flow.input.big }}' } }]
";
const PARENT: &str = "flow: { name: parent, input: { big: '' } }
nodes: [{ id: call, type: control.subflow, input: { name: child, input: { big: '{{ flow.input.big }}' } } }]
";

/// Returns a folder with the flows of these tests, and an input that is too large for its row.
fn place() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [("asks.yaml", ASKS), ("child.yaml", CHILD), ("parent.yaml", PARENT)] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    fs::write(folder.path().join("big.json"), format!(r#"{{ "big": "{}" }}"#, "x".repeat(100_000))).unwrap();
    folder
}

/// Runs a command that succeeds. Returns its output.
fn done(folder: &Path, arguments: &[&str]) -> String {
    let output = output_of(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    stdout(&output)
}

/// Runs a command that ends with an exit code. Returns its messages.
fn run_until_exit(folder: &Path, code: i32, arguments: &[&str]) -> String {
    let output = output_of(folder, arguments);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
    stderr(&output)
}

/// Counts the rows of a query in the database.
fn count(folder: &Path, sql: &str) -> u64 {
    let database = Connection::open(folder.join(".flowcell/flowcell.db")).unwrap();
    database.query_row(sql, [], |row| row.get(0)).unwrap()
}

fn list_runs(folder: &Path) -> Vec<String> {
    let runs: Value = serde_json::from_str(&done(folder, &["runs", "list", "--json"])).unwrap();
    runs.as_array().unwrap().iter().map(|run| run["runId"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn ended_runs_are_deleted_with_everything_that_only_they_had() {
    let folder = place();
    let folder = folder.path();
    done(folder, &["run", "parent.yaml", "--run-id", "p", "--input-file", "big.json", "--quiet"]);
    done(folder, &["run", "child.yaml", "--run-id", "r", "--quiet"]);
    done(folder, &["run", "child.yaml", "--run-id", "s", "--quiet"]);
    run_until_exit(folder, 3, &["run", "asks.yaml", "--run-id", "q", "--quiet"]);
    let several = run_until_exit(folder, 2, &["runs", "delete", "p", "q", "none"]);
    let reasons =
        "nothing was deleted: the run `none` does not exist; the run `q` has not ended; its status is `parked`";
    assert!(several.contains(reasons), "{several}");
    assert_eq!(list_runs(folder).len(), 4, "one that cannot be deleted keeps all");
    let parked = run_until_exit(folder, 2, &["runs", "delete", "q"]);
    assert!(parked.contains("its status is `parked`") && parked.contains("flowcell runs cancel RUN"), "{parked}");
    let called = run_until_exit(folder, 2, &["runs", "delete", "p.call.1"]);
    assert!(called.contains("the run `p.call.1` was called by the run `p`; delete that one"), "{called}");
    let removed: Value = serde_json::from_str(&done(folder, &["runs", "delete", "r", "p", "r", "--json"])).unwrap();
    assert_eq!(removed["runs"], serde_json::json!(["p", "r"]), "{removed}");
    assert!(removed["bytes"].as_u64().unwrap() > 100_000, "{removed}");
    assert_eq!(list_runs(folder), ["q", "s"]);
    let left = "SELECT count(*) FROM runs WHERE run LIKE 'p%' OR run = 'r'";
    assert_eq!(count(folder, left), 2, "only the two ids stay reserved");
    assert_eq!(count(folder, "SELECT count(*) FROM blobs WHERE CAST(bytes AS TEXT) LIKE '%xxxxxxxx%'"), 0);
    let gone = run_until_exit(folder, 2, &["runs", "delete", "p"]);
    assert!(gone.contains("the run `p` does not exist"), "{gone}");
    let taken = output_of(folder, &["run", "parent.yaml", "--run-id", "p", "--quiet"]);
    assert!(!taken.status.success());
    assert!(stderr(&taken).contains("was removed, and its id cannot be used again"), "{}", stderr(&taken));
    done(folder, &["runs", "show", "s"]);
}

#[test]
fn a_run_is_deleted_beside_the_owner_and_the_log_of_its_tenant_says_so() {
    let folder = place();
    let folder = folder.path();
    done(folder, &["tenant", "create", "local"]);
    done(folder, &["run", "child.yaml", "--run-id", "r", "--quiet"]);
    run_until_exit(folder, 3, &["run", "asks.yaml", "--run-id", "q", "--quiet"]);
    let _owner = kit::Owner::start(folder, &["drive"], "driving the runs");
    let parked = run_until_exit(folder, 2, &["runs", "delete", "q", "r"]);
    assert!(parked.contains("has not ended") && parked.contains("flowcell runs cancel RUN"), "{parked}");
    let unknown = run_until_exit(folder, 2, &["runs", "delete", "none"]);
    assert!(unknown.contains("does not exist") && unknown.contains("flowcell runs list"), "{unknown}");
    assert!(
        run_until_exit(folder, 2, &["runs", "delete", "r", "--tenant", "b"]).contains("the tenant `b` does not exist")
    );
    assert_eq!(done(folder, &["runs", "delete", "r"]), "r\n");
    assert_eq!(list_runs(folder), ["q"]);
    let entries: Value = serde_json::from_str(&done(folder, &["audit", "list", "local"])).unwrap();
    let last = entries.as_array().unwrap().last().unwrap();
    assert_eq!((&last["action"], &last["subject"]), (&"run.delete".into(), &"r".into()), "{entries}");
}

/// The owner of the store changes the labels, whether the run goes on or has ended. The tenant's log has it.
#[test]
fn labels_of_a_run_are_changed_beside_the_owner() {
    let folder = place();
    let folder = folder.path();
    done(folder, &["tenant", "create", "local"]);
    done(folder, &["run", "child.yaml", "--run-id", "r", "--quiet", "-l", "tier=gold", "-l", "team=it"]);
    run_until_exit(folder, 3, &["run", "asks.yaml", "--run-id", "q", "--quiet"]);
    let _owner = kit::Owner::start(folder, &["drive"], "driving the runs");
    for run in ["r", "q"] {
        done(folder, &["runs", "label", run, "--set", "team=billing", "--remove", "tier", "--remove", "absent"]);
        let shown: Value = serde_json::from_str(&done(folder, &["runs", "show", run, "--json"])).unwrap();
        assert_eq!(shown["labels"], serde_json::json!({ "team": "billing" }), "{shown}");
    }
    let many: Vec<String> = (0..16).map(|label| format!("--set=l{label}=x")).collect();
    let many: Vec<_> = ["runs", "label", "q"].into_iter().chain(many.iter().map(String::as_str)).collect();
    for (wrong, why) in [
        (&["runs", "label", "none", "--set", "a=b"][..], "the run `none` does not exist"),
        (&["runs", "label", "q", "--set", "a=b", "--set", "a=c"], "a label is set twice"),
        (&["runs", "label", "q", "--set", "a=b", "--remove", "a"], "both name the label `a`"),
        (&["runs", "label", "q", "--remove", "a b"], "a b"),
        (&["runs", "label", "q"], "--set"),
        (&many, "at most 16"),
        (&["runs", "label", "q", "--set", "a=b", "--tenant", "b"], "the tenant `b` does not exist"),
    ] {
        let refused = run_until_exit(folder, 2, wrong);
        assert!(refused.contains(why), "{why}: {refused}");
    }
    let shown: Value = serde_json::from_str(&done(folder, &["runs", "show", "q", "--json"])).unwrap();
    assert_eq!(shown["labels"], serde_json::json!({ "team": "billing" }), "a refused change changes nothing");
    let entries: Value = serde_json::from_str(&done(folder, &["audit", "list", "local"])).unwrap();
    let of_labels = entries.as_array().unwrap().iter().filter(|entry| entry["action"] == "run.label");
    assert_eq!(of_labels.map(|entry| entry["subject"].clone()).collect::<Vec<_>>(), ["r", "q"], "{entries}");
}

#[test]
fn a_run_stays_while_a_run_that_repeats_it_goes_on() {
    let folder = place();
    let folder = folder.path();
    done(folder, &["run", "asks.yaml", "--run-id", "a", "--answer", "ok=yes", "--quiet"]);
    run_until_exit(folder, 3, &["runs", "retry", "a", "--run-id", "b", "--quiet"]);
    let needed = run_until_exit(folder, 2, &["runs", "delete", "a"]);
    assert!(needed.contains("the run `a` is still needed, because the run `b` repeats it"), "{needed}");
    assert_eq!(done(folder, &["runs", "gc", "--keep", "0"]), "");
    done(folder, &["runs", "cancel", "b"]);
    done(folder, &["drive", "--once"]);
    assert_eq!(done(folder, &["runs", "delete", "a"]), "a\n");
    done(folder, &["runs", "show", "b"]);
    // `b` never called the flow, and `a`, which did, is gone.
    done(folder, &["runs", "retry", "b", "--run-id", "c", "--answer", "ok=yes", "--quiet"]);
    assert_eq!(list_runs(folder), ["c", "b"]);
}

/// A day in milliseconds.
const DAY: u64 = 24 * 3_600 * 1_000;

/// A store whose runs retention removes.
struct Kept {
    host: Host,
    folder: tempfile::TempDir,
}

impl Kept {
    fn new() -> Kept {
        let folder = tempfile::tempdir().unwrap();
        let host =
            Host::builder().cache_dir(kit::CACHE).instances(4).state_dir(folder.path().join("state")).build().unwrap();
        Kept { host, folder }
    }

    /// Executes a run of a flow to its end.
    fn run(&self, tenant: &str, flow: &str, run: &str, fails: bool) {
        let kind = if fails { "control.fail, input: { message: no }" } else { "control.noop" };
        let text = format!("flow: {{ name: {flow} }}\nnodes: [{{ id: a, type: {kind} }}]\n");
        self.execute(tenant, flow, text, run);
    }

    fn execute(&self, tenant: &str, flow: &str, text: String, run: &str) {
        let host = self.host.for_tenant(Tenant::from(tenant));
        let flow = host.load_source(Source { name: format!("{flow}.yaml"), text }).unwrap();
        let runner = host.runner(&flow, RunOptions { run_id: Some(run.into()), ..RunOptions::default() }).unwrap();
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(runner.run());
    }

    fn retention(&self, rules: &[&str]) -> Retention {
        let rules = rules.iter().map(|rule| rule.parse::<RetentionRule>().unwrap()).collect();
        Retention::new(&self.host, rules, Some(self.folder.path().join("flows")))
    }

    /// Returns the runs of a tenant, sorted by their ids.
    fn left(&self, tenant: &str) -> Vec<String> {
        let rows = self.host.runs().unwrap().runs(&Tenant::from(tenant), &Filter { limit: 100, ..Filter::default() });
        let mut left: Vec<_> = rows.unwrap().iter().map(|row| row.run_id.to_string()).collect();
        left.sort();
        left
    }
}

#[test]
fn the_first_rule_that_fits_a_run_decides() {
    let kept = Kept::new();
    for (flow, run, fails) in [
        ("report", "r1", false),
        ("report", "r2", false),
        ("order", "o1", false),
        ("order", "o2", true),
        ("order", "o3", false),
    ] {
        kept.run("local", flow, run, fails);
    }
    let waits = "flow: { name: asks }\nnodes: [{ id: ok, type: control.gate, input: { prompt: Go? } }]\n";
    kept.execute("local", "asks", waits.into(), "parked");
    let (now, all) = (kept.host.now(), ["o1", "o2", "o3", "parked", "r1", "r2"]);
    let rules = ["flow=report,olderThan=30d", "status=failed,olderThan=90d", "keepLatest=1"];
    let retention = kept.retention(&rules);
    retention.pass(now + 9 * 60_000).unwrap();
    assert_eq!(kept.left("local"), all, "all have ended a short time ago");
    retention.pass(now + DAY).unwrap();
    assert_eq!(kept.left("local"), ["o2", "o3", "parked", "r1", "r2"], "the rule without a flow counts the others");
    retention.pass(now + 31 * DAY).unwrap();
    assert_eq!(kept.left("local"), ["o2", "o3", "parked"]);
    retention.pass(now + 365 * DAY).unwrap();
    assert_eq!(kept.left("local"), ["o3", "parked"], "a run that has not ended stays");
}

#[test]
fn the_policy_of_a_tenant_replaces_the_rules_of_the_server() {
    let kept = Kept::new();
    let tenants = Tenants::of(&kept.host);
    for tenant in ["a", "b", "c"] {
        tenants.create(tenant).unwrap();
        kept.run(tenant, "f", "r", false);
    }
    let policy = |text: &str| serde_json::from_str::<Policy>(text).unwrap();
    tenants.set_policy("a", &policy(r#"{ "retention": [{ "olderThan": "60d" }] }"#)).unwrap();
    tenants.set_policy("b", &policy(r#"{ "retention": [] }"#)).unwrap();
    let refused = tenants.set_policy("c", &policy(r#"{ "retention": [{ "status": "failed" }] }"#)).unwrap_err();
    assert!(refused.to_string().contains("`retention[0]`: needs `olderThan` or `keepLatest`"), "{refused}");
    tenants.enable("c", false).unwrap();
    let (now, retention) = (kept.host.now(), kept.retention(&["olderThan=30d"]));
    retention.pass(now + 31 * DAY).unwrap();
    assert_eq!([kept.left("a"), kept.left("b"), kept.left("c")], [vec!["r".to_owned()], vec!["r".to_owned()], vec![]]);
    retention.pass(now + 61 * DAY).unwrap();
    assert_eq!([kept.left("a"), kept.left("b")], [vec![], vec!["r".to_owned()]]);
    let noted = tenants.audit("a", 0, 100).unwrap();
    let last = noted.last().unwrap();
    assert_eq!((&*last.actor, &*last.action, &*last.subject), ("retention", "runs.collect", "1"));
    assert!(tenants.verify_audit("a", None).unwrap().damage.is_empty());
}

#[test]
fn a_run_stays_for_a_day_if_a_trigger_waits_for_its_end() {
    let kept = Kept::new();
    fs::create_dir(kept.folder.path().join("flows")).unwrap();
    let text = "flow: { name: after, triggers: [{ id: t, event: { flow: waited, status: succeeded } }] }\n\
                nodes: [{ id: a, type: control.noop }]\n";
    fs::write(kept.folder.path().join("flows/after.yaml"), text).unwrap();
    kept.run("local", "waited", "w", false);
    kept.run("local", "waited", "x", true);
    kept.run("local", "other", "y", false);
    let (now, retention) = (kept.host.now(), kept.retention(&["keepLatest=0"]));
    retention.pass(now + 3_600_000).unwrap();
    assert_eq!(kept.left("local"), ["w"]);
    retention.pass(now + DAY + 60_000).unwrap();
    assert_eq!(kept.left("local"), [""; 0]);
}

#[test]
fn large_values_of_removed_runs_are_swept_a_day_later() {
    let kept = Kept::new();
    let bytes = || {
        let database = Connection::open(kept.folder.path().join("state/flowcell.db")).unwrap();
        database
            .query_row("SELECT count(*) FROM blobs WHERE length(bytes) > 90000", [], |row| row.get::<_, u64>(0))
            .unwrap()
    };
    let text = format!(
        "flow: {{ name: big, input: {{ b: '{}' }} }}\nnodes: [{{ id: a, type: control.noop }}]\n",
        "x".repeat(100_000)
    );
    kept.execute("local", "big", text, "b");
    assert!(bytes() > 0);
    // A store spares the blobs that its own process has put, so another process removes them.
    let Kept { host, folder } = kept;
    let now = host.now();
    drop(host);
    let host =
        Host::builder().cache_dir(kit::CACHE).instances(4).state_dir(folder.path().join("state")).build().unwrap();
    let kept = Kept { host, folder };
    let bytes = || {
        let database = Connection::open(kept.folder.path().join("state/flowcell.db")).unwrap();
        database
            .query_row("SELECT count(*) FROM blobs WHERE length(bytes) > 90000", [], |row| row.get::<_, u64>(0))
            .unwrap()
    };
    let retention = kept.retention(&["olderThan=1d"]);
    retention.pass(now + DAY + 60_000).unwrap();
    assert_eq!((kept.left("local"), bytes() > 0), (vec![], true));
    retention.pass(now + 2 * DAY + 120_000).unwrap();
    assert_eq!(bytes(), 0);
}

#[test]
fn a_server_removes_old_runs_by_itself() {
    let folder = place();
    let folder = folder.path();
    let run_old = |run: &str| {
        done(folder, &["run", "child.yaml", "--run-id", run, "--quiet"]);
        let database = Connection::open(folder.join(".flowcell/flowcell.db")).unwrap();
        let sql = "UPDATE runs SET updated = updated - 86400000 * 31 WHERE run = ?";
        assert_eq!(database.execute(sql, [run]).unwrap(), 1);
    };
    done(folder, &["run", "child.yaml", "--run-id", "new", "--quiet"]);
    let rule = run_until_exit(folder, 2, &["drive", "--retention", "flow=child"]);
    assert!(rule.contains("needs `olderThan` or `keepLatest`"), "{rule}");
    let unused = ["serve", "--check", "--retention", "keepLatest=1", "--retention", "olderThan=1d"];
    assert!(run_until_exit(folder, 2, &unused).contains("would never be used"));
    for process in [&["drive"][..], &["serve", "--listen", "127.0.0.1:0"]] {
        run_old(process[0]);
        let mut command = flowcell(folder);
        command.args(process).args(["--retention", "olderThan=30d", "--log-format", "text"]);
        let mut child = command.env("FLOWCELL_TEST_RETENTION_MS", "20").stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let said = lines.find(|line| line.contains("removed old runs"));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(said.as_ref().is_some_and(|line| line.contains("runs=1")), "{process:?}: {said:?}");
        assert_eq!(list_runs(folder), ["new"], "{process:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn old_runs_are_removed_on_a_full_disk() {
    let folder = place();
    let folder = folder.path();
    let Some(disk) = kit::Disk::mount(40) else { return };
    let state = disk.path().join("state");
    let state = state.to_str().unwrap();
    done(folder, &["run", "parent.yaml", "--run-id", "p", "--input-file", "big.json", "--quiet", "--state", state]);
    let owner = kit::Owner::start(folder, &["drive", "--state", state, "--min-free", "1"], "driving the runs");
    let reserve = Path::new(state).join("flowcell.reserve");
    assert_eq!(reserve.metadata().unwrap().len(), 8 << 20);
    drop(owner);
    let mut filler = fs::File::create(disk.path().join("filler")).unwrap();
    let full = std::iter::repeat_with(|| std::io::Write::write_all(&mut filler, &[7; 4096])).find_map(Result::err);
    assert_eq!(full.unwrap().kind(), std::io::ErrorKind::StorageFull);
    let output = output_of(folder, &["runs", "gc", "--keep", "0", "--state", state]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "p\n"), "{}", stderr(&output));
    assert!(stderr(&output).contains("the reserve of the store was used"), "{}", stderr(&output));
    assert!(!reserve.exists());
}

#[test]
fn an_owner_without_room_refuses_new_runs() {
    let folder = place();
    let folder = folder.path();
    let _owner = kit::Owner::start(folder, &["drive", "--min-free", "1000000000"], "driving the runs");
    let told = run_until_exit(folder, 2, &["run", "child.yaml", "--run-id", "r", "--detach"]);
    assert!(told.contains("new runs need 1000000000 MiB"), "{told}");
    assert!(!folder.join(".flowcell/reserve").exists(), "a disk without room gets no reserve");
}
