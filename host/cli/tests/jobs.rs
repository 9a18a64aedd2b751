//! Tests jobs with the real program: `runs bulk` and `jobs`, killed processes, and shared stores.

#![cfg(target_os = "linux")]

use std::{collections::BTreeSet, fs, path::Path, sync::Arc};

use flowcell::{
    Filter, FlowLibrary, FlowVersion, Host, LoadedFlow, MoveOptions, RunOptions, RunRow, Source,
    contract::Tenant,
    jobs::{Creator, JobAction, JobFilter, JobParams, JobRequest, JobState, Jobs, worker::JobWorker},
    tenants::callers::Callers,
    versions,
};
use flowcell_runtime::sql::Dialect;
use serde_json::{Value, json};

use crate::{
    guests,
    kit::{self, flowcell, output_of, stderr, stdout},
    servers,
};

const ASKS: &str = "flow: { name: asks }
nodes: [{ id: ok, type: control.gate, input: { prompt: Go on? } }]
";

/// Returns the host of a store in a folder.
fn host(folder: &Path) -> Host {
    Host::builder().cache_dir(kit::CACHE).instances(4).state_dir(folder.join(".flowcell")).build().unwrap()
}

/// The number of runs that [`park`] drives at the same time.
const PARKED_AT_ONCE: usize = 500;

/// Starts runs that park at a gate.
fn park(host: &Host, runs: std::ops::Range<usize>) {
    let flow = host.load_source(Source { name: "asks.yaml".into(), text: ASKS.into() }).unwrap();
    park_runs_of(host, &flow, runs);
}

fn park_runs_of(host: &Host, flow: &LoadedFlow, runs: std::ops::Range<usize>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for part in runs.collect::<Vec<_>>().chunks(PARKED_AT_ONCE) {
        let mut parking = tokio::task::JoinSet::new();
        for run in part {
            let options = RunOptions { run_id: Some(format!("r{run}").into()), ..RunOptions::default() };
            parking.spawn_on(host.runner(flow, options).unwrap().run(), runtime.handle());
        }
        runtime.block_on(parking.join_all());
    }
}

/// Lists the runs of a store with this status.
fn list_runs(host: &Host, status: &str) -> Vec<RunRow> {
    let filter = Filter { status: Some(status.into()), limit: 1_000, ..Filter::default() };
    host.runs().unwrap().runs(&Tenant::local(), &filter).unwrap()
}

/// Returns a folder whose store has `runs` parked runs.
fn park_runs(runs: usize) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    park(&host(folder.path()), 0..runs);
    folder
}

/// Returns a folder whose store has `runs` parked runs of version 1 of a flow whose library has two versions.
fn park_runs_of_first_version(runs: usize) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let (host, library) = (host(folder.path()), FlowLibrary::open(folder.path().join("flows")));
    let version = |value: u32| {
        let gate = json!({ "id": "ok", "type": "control.gate", "input": { "prompt": "Go on?" } });
        let pay = json!({ "id": "pay", "type": "control.noop", "input": { "value": value } });
        let edges = json!([{ "from": "ok", "to": "pay" }]);
        json!({ "flow": { "name": "asks" }, "nodes": [gate, pay], "edges": edges }).to_string()
    };
    library.create(&host, &version(1)).unwrap();
    park_runs_of(&host, &library.load(&host, "asks", None).unwrap(), 0..runs);
    library.append(&host, &version(2)).unwrap();
    folder
}

/// Runs a command that ends with an exit code. Returns its output and its messages.
#[track_caller]
fn run_until_exit(folder: &Path, code: i32, arguments: &[&str]) -> (String, String) {
    let output = output_of(folder, arguments);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
    (stdout(&output), stderr(&output))
}

fn jobs(folder: &Path) -> Vec<Value> {
    serde_json::from_str(&run_until_exit(folder, 0, &["jobs", "list", "--json"]).0).unwrap()
}

#[test]
fn a_command_shows_the_runs_and_needs_a_confirmation() {
    let folder = tempfile::tempdir().unwrap();
    (0..3).for_each(|run| park(&host(folder.path()), run..run + 1));
    let folder = folder.path();
    let (seen, why) = run_until_exit(folder, 2, &["runs", "bulk", "cancel", "--status", "parked"]);
    assert!(seen.starts_with("3 runs match\n       3  parked\n  r2\n  r1\n  r0\n"), "{seen}");
    assert!(why.contains("add `--yes` to do it"), "{why}");
    let (seen, _) = run_until_exit(folder, 0, &["runs", "bulk", "cancel", "--flow", "asks", "--preview", "--json"]);
    let seen: Value = serde_json::from_str(&seen).unwrap();
    assert_eq!((&seen["runs"], &seen["first"][0]), (&3.into(), &"r2".into()));
    assert_eq!((jobs(folder).len(), list_runs(&host(folder), "parked").len()), (0, 3));
    let none = run_until_exit(folder, 2, &["runs", "bulk", "delete", "--yes"]).1;
    assert!(none.contains("the filter is empty"), "{none}");
    let twice = run_until_exit(folder, 2, &["runs", "bulk", "cancel", "-l", "a=1", "-l", "a=2", "--preview"]).1;
    assert!(twice.contains("a label is given twice"), "{twice}");
    let detached = run_until_exit(folder, 2, &["runs", "bulk", "cancel", "--flow", "asks", "--yes", "--detach"]).1;
    assert!(detached.contains("no other process owns the store"), "{detached}");

    let (done, _) =
        run_until_exit(folder, 0, &["runs", "bulk", "cancel", "--flow", "asks", "--max-runs", "2", "--yes"]);
    assert!(done.contains("2 of 3 matched, 2 done, 0 skipped, 0 failed"), "{done}");
    assert!(done.contains("more runs match: the job has ended at its maximum of 2 runs"), "{done}");
    let unsure = run_until_exit(folder, 2, &["runs", "bulk", "delete", "--flow", "asks", "--json"]).1;
    assert!(unsure.contains("`--json` needs `--preview` or `--yes`"), "{unsure}");
    let missing = ["runs", "bulk", "cancel", "--flow", "none", "--yes", "--json"];
    let done: Value = serde_json::from_str(&run_until_exit(folder, 0, &missing).0).unwrap();
    assert_eq!((&done["state"], &done["matched"]), (&"done".into(), &0.into()), "{done}");
    let (done, _) = run_until_exit(folder, 0, &["runs", "bulk", "delete", "--flow", "asks", "--yes"]);
    assert!(done.contains("2 done, 1 skipped, 0 failed") && done.contains("skipped 1: run_not_ended"), "{done}");
    let known = jobs(folder);
    let id = known[0]["id"].as_str().unwrap();
    let (shown, _) = run_until_exit(folder, 0, &["jobs", "show", id]);
    assert!(shown.contains("delete   done"), "{shown}");
    let none = run_until_exit(folder, 2, &["runs", "bulk", "label", "--flow", "asks", "--preview"]).1;
    assert!(none.contains("--set"), "{none}");
    let nowhere =
        run_until_exit(folder, 2, &["runs", "bulk", "migrate", "--to", "2", "--status", "parked", "--preview"]).1;
    assert!(nowhere.contains("needs the member `flow` in the filter"), "{nowhere}");
    let ended = run_until_exit(folder, 2, &["jobs", "pause", id]).1;
    assert!(ended.contains("has ended"), "{ended}");
    let unknown = run_until_exit(folder, 2, &["jobs", "show", "000000000000000000000000"]).1;
    assert!(unknown.contains("does not exist"), "{unknown}");
    let entries: Value = serde_json::from_str(&run_until_exit(folder, 0, &["audit", "list", "local"]).0).unwrap();
    let ends = entries.as_array().unwrap().iter().filter(|entry| entry["action"] == "job.end");
    assert_eq!(ends.count(), 3, "{entries}");
}

#[test]
fn a_server_executes_the_jobs_of_commands() {
    let folder = park_runs(60);
    let folder = folder.path();
    let _owner = kit::Owner::start(folder, &["drive"], "driving the runs");
    let (id, _) = run_until_exit(
        folder,
        0,
        &["runs", "bulk", "cancel", "--status", "parked", "--yes", "--detach", "--rate", "1"],
    );
    let id = id.trim();
    run_until_exit(folder, 0, &["jobs", "pause", id]);
    let shown: Value = serde_json::from_str(&run_until_exit(folder, 0, &["jobs", "show", id, "--json"]).0).unwrap();
    assert_eq!(shown["state"], "paused", "{shown}");
    run_until_exit(folder, 0, &["jobs", "cancel", id]);
    let (done, _) = run_until_exit(folder, 0, &["runs", "bulk", "answer", "ok", "yes", "--status", "parked", "--yes"]);
    assert!(done.contains(" 0 skipped, 0 failed"), "{done}");
    let (done, _) = run_until_exit(folder, 0, &["runs", "bulk", "retry", "--status", "cancelled", "--yes"]);
    assert!(done.contains(" 0 skipped, 0 failed"), "{done}");
    assert_eq!(jobs(folder).len(), 3);
}

/// Kills a job at its commits, and goes on with it. `expected` returns the problems of the store afterwards.
fn kill_at_commits(action: &[&str], problems: fn(&Host, &Value) -> Vec<String>) {
    let library = guests::bad_machine();
    let template = if action[0] == "migrate" { park_runs_of_first_version(6) } else { park_runs(6) };
    if action[0] == "retry" || action[0] == "delete" {
        run_until_exit(template.path(), 0, &["runs", "bulk", "cancel", "--status", "parked", "--yes"]);
    }
    let mut wrong = Vec::new();
    for number in 1.. {
        let copy = tempfile::tempdir().unwrap();
        let folder = copy.path();
        fs::create_dir(folder.join(".flowcell")).unwrap();
        for file in fs::read_dir(template.path().join(".flowcell")).unwrap().map(Result::unwrap) {
            if file.file_type().unwrap().is_file() {
                fs::copy(file.path(), folder.join(".flowcell").join(file.file_name())).unwrap();
            }
        }
        let mut command = flowcell(folder);
        command.args(["runs", "bulk"]).args(action).args(["--flow", "asks", "--yes"]);
        let output = command.env("LD_PRELOAD", &library).env("BAD_DISK", format!("die:{number}")).output().unwrap();
        if output.status.code().is_some() {
            assert!(output.status.success() && number > 3, "{number}: {}", stderr(&output));
            break;
        }
        let of_action = |job: &&Value| job["action"] == action[0];
        let Some(job) = jobs(folder).iter().find(of_action).cloned() else { continue };
        let id = job["id"].as_str().unwrap();
        if !["done", "cancelled"].contains(&job["state"].as_str().unwrap()) {
            run_until_exit(folder, 0, &["jobs", "resume", id]);
        }
        let job = jobs(folder).into_iter().find(|job| job["id"] == id).unwrap();
        if (&job["state"], &job["done"], &job["failed"]) != (&"done".into(), &6.into(), &0.into()) {
            wrong.push(format!("killed at commit {number}: {job}"));
        }
        wrong.extend(problems(&host(folder), &job).into_iter().map(|why| format!("killed at commit {number}: {why}")));
        let entries: Value = serde_json::from_str(&run_until_exit(folder, 0, &["audit", "list", "local"]).0).unwrap();
        let is_end =
            |entry: &&Value| entry["action"] == "job.end" && entry["subject"].as_str().unwrap().starts_with(id);
        let noted = entries.as_array().unwrap().iter().filter(is_end).count();
        // A job that was done before the kill is settled by the next worker.
        if noted > 1 {
            wrong.push(format!("killed at commit {number}: {noted} entries about the end"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn r1_a_killed_job_cancels_each_run_once() {
    kill_at_commits(&["cancel"], |host, _| {
        let left = list_runs(host, "cancelled").len();
        if left == 6 { Vec::new() } else { vec![format!("{left} runs are cancelled")] }
    });
}

#[test]
fn r1_a_killed_job_repeats_each_run_once() {
    kill_at_commits(&["retry"], |host, job| {
        let repeats: Vec<_> = list_runs(host, "active").into_iter().chain(list_runs(host, "parked")).collect();
        let of: BTreeSet<_> = repeats.iter().filter_map(|row| row.retry_of.clone()).collect();
        let own = format!("job.{}.", job["id"].as_str().unwrap());
        let are_own = repeats.iter().all(|row| row.run_id.as_str().starts_with(&own));
        match repeats.len() == 6 && of.len() == 6 && are_own {
            true => Vec::new(),
            false => vec![format!("{} runs repeat {} runs", repeats.len(), of.len())],
        }
    });
}

#[test]
fn r1_a_killed_job_deletes_each_run_once() {
    kill_at_commits(&["delete"], |host, _| {
        let left = list_runs(host, "cancelled").len();
        if left == 0 { Vec::new() } else { vec![format!("{left} runs are left")] }
    });
}

#[test]
fn r1_a_killed_job_labels_each_run() {
    kill_at_commits(&["label", "--set", "team=ops", "--remove", "tier"], |host, _| {
        let labels = vec![("team".to_owned(), "ops".to_owned())];
        let filter = Filter { labels, limit: 100, ..Filter::default() };
        let labelled = host.runs().unwrap().runs(&Tenant::local(), &filter).unwrap().len();
        if labelled == 6 { Vec::new() } else { vec![format!("{labelled} runs have the label")] }
    });
}

#[test]
fn r1_a_killed_job_moves_each_run_once() {
    kill_at_commits(&["migrate", "--to", "2"], |host, _| {
        let rows = list_runs(host, "parked");
        let moves = |row: &RunRow| host.record(&row.run_id).unwrap().unwrap().moves.len();
        let wrong = rows.iter().filter(|row| row.version != Some(2) || moves(row) != 1).count();
        if (rows.len(), wrong) == (6, 0) { Vec::new() } else { vec![format!("{wrong} of {} runs", rows.len())] }
    });
}

#[test]
fn a_preview_of_a_move_names_the_runs_that_would_not_move_and_moves_none() {
    let folder = park_runs_of_first_version(52);
    let folder = folder.path();
    let gate = json!({ "id": "ok", "type": "control.gate", "input": { "prompt": "Really?" } });
    let asks_otherwise = json!({ "flow": { "name": "asks" }, "nodes": [gate] }).to_string();
    FlowLibrary::open(folder.join("flows")).append(&host(folder), &asks_otherwise).unwrap();
    let migrate = |to: &str, options: &[&str]| {
        let arguments = ["runs", "bulk", "migrate", "--to", to, "--flow", "asks"];
        run_until_exit(folder, 0, &[&arguments, options].concat()).0
    };
    let seen = migrate("2", &["--preview"]);
    assert!(seen.ends_with("\n0 of 50 checked runs would not move\n2 others were not checked\n"), "{seen}");
    let seen = migrate("2", &["--preview", "--max-runs", "1"]);
    assert!(seen.ends_with("\n0 of 1 checked run would not move\n"), "{seen}");
    let seen = migrate("3", &["--preview"]);
    assert!(seen.contains("\n50 of 50 checked runs would not move\n      50  in_progress\n"), "{seen}");
    assert_eq!(seen.matches("`ok`: it is waiting and would have to start anew").count(), 20, "{seen}");
    assert!(seen.ends_with("\n  and 30 others\n2 others were not checked\n"), "{seen}");
    let seen: Value = serde_json::from_str(&migrate("3", &["--preview", "--json"])).unwrap();
    let moves = &seen["moves"];
    assert_eq!((&moves["checked"], &moves["unchecked"]), (&json!(50), &json!(2)), "{seen}");
    assert_eq!(moves["first"].as_array().unwrap().len(), 20, "{seen}");
    // The preview has moved no run, and holds none of them.
    assert!(list_runs(&host(folder), "parked").iter().all(|row| row.version == Some(1)));
    let done = migrate("2", &["--yes"]);
    assert!(done.contains("52 done, 0 skipped, 0 failed"), "{done}");
}

#[test]
fn a_command_repeats_runs_in_another_version_of_their_flow() {
    let folder = park_runs_of_first_version(3);
    let folder = folder.path();
    run_until_exit(folder, 0, &["runs", "bulk", "cancel", "--flow", "asks", "--yes"]);
    // `--flow-version` is the filter here, as for the other actions.
    let retry = |code: i32, options: &[&str]| {
        let arguments = ["runs", "bulk", "retry", "--flow", "asks", "--flow-version", "1"];
        run_until_exit(folder, code, &[&arguments, options].concat())
    };
    let seen = retry(0, &["--to", "latest", "--preview"]).0;
    assert!(seen.ends_with("\n0 of 3 checked runs would not be repeated\n"), "{seen}");
    let seen = retry(0, &["--to", "2", "--rename", "pay=charge", "--preview"]).0;
    assert!(seen.contains("\n3 of 3 checked runs would not be repeated\n       3  rename_missing\n  r"), "{seen}");
    let wrong = retry(2, &["--rename", "pay=charge", "--preview"]).1;
    assert!(wrong.contains("`--rename` needs `--to`"), "{wrong}");
    let nowhere = ["runs", "bulk", "retry", "--status", "cancelled", "--to", "2", "--preview"];
    let wrong = run_until_exit(folder, 2, &nowhere).1;
    assert!(wrong.contains("needs the member `flow` in the filter"), "{wrong}");
    assert!(list_runs(&host(folder), "active").is_empty(), "nothing has begun yet");
    let done = retry(0, &["--to", "2", "--yes"]).0;
    assert!(done.contains("3 done, 0 skipped, 0 failed"), "{done}");
    let begun = list_runs(&host(folder), "active");
    assert_eq!(begun.iter().map(|row| row.version).collect::<Vec<_>>(), [Some(2); 3]);
}

#[test]
fn a_migrate_job_waits_for_a_run_that_another_caller_has() {
    let folder = park_runs_of_first_version(3);
    let host = host(folder.path());
    // The row of the run stays `parked`, as after a process that was killed with its claim.
    let options = MoveOptions::default();
    let claimed = versions::migration(&host, &"r1".into(), FlowVersion::Number(2), &options).unwrap();
    let mut request = request(JobAction::Migrate);
    request.params.to = Some(2);
    let id = Jobs::of(&host).create(request, &Creator::Operator, flowcell::identity::Scopes::all()).unwrap().id;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let worker = JobWorker::new(host.clone(), Arc::new(Callers::of(&host).unwrap()));
    let (first, own, tenant) = (worker.clone(), id.clone(), Tenant::local());
    let waiting = runtime.spawn(async move { first.execute(&Tenant::local(), &own).await });
    let waits = runtime.block_on(async {
        loop {
            let job = Jobs::of(&host).show(&id).unwrap();
            if job.reason.is_some() || job.state != JobState::Running {
                return job;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    });
    assert_eq!((waits.state, waits.done, waits.skipped.len(), waits.failed), (JobState::Running, 2, 0, 0), "{waits:?}");
    waiting.abort();
    drop(claimed);
    let job = runtime.block_on(worker.execute(&tenant, &id)).unwrap();
    assert_eq!((job.state, job.done, job.skipped.len(), job.failed), (JobState::Done, 3, 0, 0), "{job:?}");
    assert!(list_runs(&host, "parked").iter().all(|row| row.version == Some(2)));
}

fn request(action: JobAction) -> JobRequest {
    let filter = JobFilter { flow: Some("asks".into()), ..JobFilter::default() };
    JobRequest { action, filter, params: JobParams::default(), max_runs: 1_000, rate_per_second: 10_000 }
}

/// Returns the number of audit entries about the end of a job.
fn ends(host: &Host, id: &str) -> usize {
    let entries = flowcell::tenants::Tenants::of(host).audit("local", 0, 100).unwrap();
    entries.iter().filter(|entry| entry.action == "job.end" && entry.subject.starts_with(id)).count()
}

/// R17: two processes execute the jobs of one store at the same time.
fn jobs_on(dialect: Dialect) {
    let Some(server) = servers::server(dialect) else { return };
    let url = server.url(&server.database());
    let folder = tempfile::tempdir().unwrap();
    run_until_exit(folder.path(), 0, &["store", "migrate", "--store", &url]);
    let process = || Host::builder().cache_dir(kit::CACHE).instances(4).server(&url).build().unwrap();
    let (one, other) = (process(), process());
    park(&one, 0..70);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let worker = |host: &Host| JobWorker::new(host.clone(), Arc::new(Callers::of(host).unwrap()));
    let (tenant, mut ids) = (Tenant::local(), Vec::new());
    for action in [JobAction::Label, JobAction::Cancel, JobAction::Delete] {
        let mut request = request(action);
        if action == JobAction::Label {
            request.params.set = [("team".to_owned(), "ops".to_owned())].into();
        } else {
            request.filter.labels = [("team".to_owned(), "ops".to_owned())].into();
        }
        let created = Jobs::of(&one).create(request, &Creator::Operator, flowcell::identity::Scopes::all());
        let id = created.unwrap().id;
        let (first, second) = (worker(&one), worker(&other));
        let attending = runtime.spawn(second.attend());
        runtime.block_on(async {
            // The process that does not get the job returns at once.
            while first.execute(&tenant, &id).await.unwrap().state == JobState::Running {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        });
        // One of the processes notes the end.
        runtime.block_on(async {
            while ends(&one, &id) == 0 {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        });
        attending.abort();
        let job = Jobs::of(&other).show(&id).unwrap();
        ids.push(id);
        assert_eq!((job.state, job.matched, job.done, job.failed), (JobState::Done, 70, 70, 0), "{job:?}");
    }
    assert!(list_runs(&other, "cancelled").is_empty() && list_runs(&other, "parked").is_empty());
    assert!(ids.iter().all(|id| ends(&one, id) == 1), "{ids:?}");
}

#[test]
fn r17_two_processes_execute_a_job_on_mariadb_once() {
    jobs_on(Dialect::MySql);
}

#[test]
fn r17_two_processes_execute_a_job_on_postgres_once() {
    jobs_on(Dialect::Postgres);
}

/// Cancels 200 runs, or 100,000 with `FLOWCELL_TEST_SCALE=500`, and prints the rate.
#[test]
fn r27_a_job_cancels_many_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (host, runs) = (host(folder.path()), 200 * kit::scale());
    park(&host, 0..runs);
    let most = runs as u64;
    let request = JobRequest { max_runs: most, ..request(JobAction::Cancel) };
    let began = std::time::Instant::now();
    let id = Jobs::of(&host).create(request, &Creator::Operator, flowcell::identity::Scopes::all()).unwrap().id;
    let worker = JobWorker::new(host.clone(), Arc::new(Callers::of(&host).unwrap()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let job = runtime.block_on(worker.execute(&Tenant::local(), &id)).unwrap();
    assert_eq!((job.state, job.done, job.failed, job.more), (JobState::Done, most, 0, false), "{job:?}");
    let seconds = began.elapsed().as_secs_f64();
    println!("{runs} parked runs cancelled in {seconds:.1} s, {:.0} in a second", runs as f64 / seconds);
}

/// Another process takes a job over when the time of the first one is up.
#[test]
fn a_job_of_a_dead_process_goes_on_in_another() {
    let Some(server) = servers::server(Dialect::Postgres) else { return };
    let url = server.url(&server.database());
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    run_until_exit(folder, 0, &["store", "migrate", "--store", &url]);
    let host = Host::builder().cache_dir(kit::CACHE).instances(4).server(&url).build().unwrap();
    park(&host, 0..60);
    let mut command = flowcell(folder);
    // After its first batch of 50 runs the job waits for 5 s.
    command.args(["runs", "bulk", "cancel", "--flow", "asks", "--yes", "--rate", "10", "--store", &url]);
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
    let line = lines.find(|line| line.as_ref().unwrap().contains("job ")).unwrap().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let id = line.trim().strip_prefix("job ").unwrap().to_owned();
    let worker = JobWorker::new(host.clone(), Arc::new(Callers::of(&host).unwrap()));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.spawn(worker.attend());
    let (_, said) = run_until_exit(folder, 0, &["jobs", "resume", &id, "--store", &url]);
    let job = Jobs::of(&host).show(&id).unwrap();
    assert_eq!((job.state, job.matched, job.done, job.failed), (JobState::Done, 60, 60, 0), "{job:?} {said}");
    fs::remove_dir_all(folder).unwrap();
}
