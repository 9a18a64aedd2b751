//! Tests a full disk and a failing one: only durable work is acknowledged, the process reports why it stops, and the
//! same command continues once the disk works again.

use std::{fs, process::Command, time::Duration};

use crate::faults::{
    kill_storm,
    killed_anywhere::{Case, RUN, cases, end},
    process::{Life, Project, scale},
};

/// Exit codes of a process that could not write or open its store.
const STOPPED: [i32; 2] = [74, 2];

fn case(flow: &str) -> Case {
    cases().into_iter().find(|case| case.flow == flow).unwrap()
}

/// Waits for the end of a process on a faulty disk, and then completes its run on a good disk. `hit` returns whether
/// the fault occurred. Returns the result of `hit`, and all violations.
fn complete_and_check(
    project: &mut Project,
    case: &Case,
    life: Life,
    hit: impl Fn(&Project) -> bool,
) -> (bool, Vec<String>) {
    let (code, lines, said) = life.end();
    project.note(&lines);
    let hit = hit(project);
    let mut wrong = Vec::new();
    match code {
        Some(0) if !hit => {}
        Some(3) if !hit => {}
        Some(code) if hit && STOPPED.contains(&code) && said.contains("the store") && !said.contains("panicked") => {}
        // The signal of a resource limit has killed the process.
        None if hit => {}
        other => wrong.push(format!("it ended with {other:?}: {said}")),
    }
    wrong.extend(end(project, case).err());
    wrong.extend(project.check());
    (hit, wrong)
}

#[cfg(target_os = "linux")]
fn run_with_each_fault(what: &str, case: &Case, step: usize) -> (usize, Vec<String>) {
    let library = crate::guests::bad_machine();
    let (mut faults, mut wrong) = (0, Vec::new());
    for number in (1..).step_by(step) {
        let mut project = Project::new(1, 0);
        let mut arguments = Project::watch_arguments(&case.flow, RUN);
        arguments.extend(case.arguments.iter().map(String::as_str));
        let bad = format!("{what}:{number}");
        let life = Life::of(project.flowcell(&arguments).env("LD_PRELOAD", &library).env("BAD_DISK", &bad));
        let (hit, found) =
            complete_and_check(&mut project, case, life, |project| project.folder().join("bad-disk").exists());
        wrong.extend(found.into_iter().map(|why| format!("{} with {bad}: {why}", case.flow)));
        if !hit {
            break;
        }
        faults += 1;
    }
    (faults, wrong)
}

#[cfg(target_os = "linux")]
fn run_flows_with_each_fault(what: &str, flows: [&str; 2], step: usize) -> (usize, Vec<String>) {
    let told = flows.map(|flow| run_with_each_fault(what, &case(flow), step));
    told.into_iter().fold((0, Vec::new()), |(faults, wrong), (more, found)| (faults + more, [wrong, found].concat()))
}

#[cfg(target_os = "linux")]
#[test]
fn r7_a_disk_that_becomes_full_loses_nothing() {
    let (faults, wrong) = run_flows_with_each_fault("write", ["ask.yaml", "pay.yaml"], 9_usize.div_ceil(scale()));
    println!("{faults} processes with a disk that became full, {} violations", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(faults > 10);
}

#[cfg(target_os = "linux")]
#[test]
fn r8_a_disk_that_fails_to_make_durable_loses_nothing() {
    let (faults, wrong) = run_flows_with_each_fault("sync", ["ask.yaml", "send.yaml"], 1);
    println!("{faults} processes with a disk that failed, {} violations", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(faults > 10);
}

/// R8: failing reads. A process that cannot read its history does not continue from it.
#[cfg(target_os = "linux")]
#[test]
fn r8_a_disk_that_cannot_be_read_loses_nothing() {
    let step = 11_usize.div_ceil(scale());
    let (mut faults, mut wrong) = (0, Vec::new());
    for flow in ["send.yaml", "ask.yaml"] {
        // From the start of the run, and from a later point.
        for left in [false, true] {
            let (found, why) = run_with_failing_reads(&case(flow), left, step);
            faults += found;
            wrong.extend(why);
        }
    }
    println!("{faults} processes with a disk that could not be read, {} violations", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(faults > 20);
}

/// Runs a flow repeatedly, each time with a new store, on a disk that fails after some number of reads. This number
/// grows by `step` each time, until the run needs fewer reads. If `left` is true, each run was begun on a good disk by
/// another process, which was killed. Returns the number of faults, and all violations.
#[cfg(target_os = "linux")]
fn run_with_failing_reads(case: &Case, left: bool, step: usize) -> (usize, Vec<String>) {
    let library = crate::guests::bad_machine();
    let (mut faults, mut wrong) = (0, Vec::new());
    for number in (1..).step_by(step) {
        let mut project = Project::new(1, 0);
        if left {
            let mut arguments = Project::watch_arguments(&case.flow, RUN);
            arguments.extend(case.arguments.iter().map(String::as_str));
            let life = project.start(&arguments);
            project.ledger.await_arrivals(1, Duration::from_secs(60));
            project.kill(life);
        }
        let mut arguments = Project::watch_arguments(&case.flow, RUN);
        arguments.extend(case.arguments.iter().map(String::as_str));
        let bad = format!("read:{number}");
        let life = Life::of(project.flowcell(&arguments).env("LD_PRELOAD", &library).env("BAD_DISK", &bad));
        let (code, lines, said) = life.end();
        project.note(&lines);
        let hit = project.folder().join("bad-disk").exists();
        // SQLite may have all needed pages in memory.
        let clean = matches!(code, Some(0 | 3)) || (hit && said.contains("store") && matches!(code, Some(1 | 2 | 74)));
        let mut found = Vec::new();
        if !clean || said.contains("panicked") {
            found.push(format!("it ended with {code:?}: {said}"));
        }
        found.extend(end(&mut project, case).err());
        found.extend(project.check());
        wrong.extend(found.into_iter().map(|why| format!("{} (left {left}) with {bad}: {why}", case.flow)));
        if !hit {
            break;
        }
        faults += 1;
    }
    (faults, wrong)
}

/// Runs that are accepted at the same time share one wait for the disk for all their commits. If each commit waited on
/// its own, this test would take minutes.
#[cfg(target_os = "linux")]
#[test]
fn r9_a_slow_disk_delays_runs_and_loses_none() {
    let mut project = Project::new(1, 0);
    let mut command = project.flowcell(&kill_storm::serves());
    command.env("LD_PRELOAD", crate::guests::bad_machine()).env("BAD_DISK", "slow:200");
    let serving = Life::of(&mut command);
    let address = kill_storm::address(&serving);
    let flow = kill_storm::flow(&project.ledger.origin());
    let runs = 32 * scale().max(1);
    let accepted: Vec<_> = std::thread::scope(|threads| {
        let posts = (0..runs).map(|run| {
            let run = format!("r{run}");
            let body = serde_json::json!({ "flow": flow, "runId": run, "input": { "errand": run } }).to_string();
            let address = &address;
            threads.spawn(move || kill_storm::post(address, &body).then_some(run))
        });
        let posts: Vec<_> = posts.collect();
        posts.into_iter().filter_map(|post| post.join().unwrap()).collect()
    });
    assert_eq!(accepted.len(), runs, "every run is accepted");
    project.claims.accepted.extend(accepted);
    assert!(project.ledger.await_arrivals(2 * runs, Duration::from_secs(120)), "{:?}", serving.errors());
    serving.signal("TERM");
    let (code, _, said) = serving.end();
    assert_eq!(code, Some(0), "{said}");
    let driven = project.done(&["drive", "--once"]);
    assert!(driven.status.success(), "{}", crate::faults::process::stderr(&driven));
    let wrong = project.check();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(project.ledger.arrived(), 2 * runs, "no call is made twice because the disk is slow");
}

#[test]
fn files_that_may_not_grow_lose_nothing() {
    let case = case("wait.yaml");
    let (mut faults, mut wrong) = (0, Vec::new());
    // Blocks of 512 bytes. With a higher limit, the store would fit while the memory of the sandboxes, which are files
    // too, would not.
    for (blocks, ignored) in (1..150).step_by(12).flat_map(|blocks| [(blocks, true), (blocks, false)]) {
        let mut project = Project::new(1, 0);
        let script = format!("{} ulimit -f {blocks}; exec \"$@\"", if ignored { "trap '' XFSZ;" } else { "" });
        let mut command = Command::new("sh");
        project.prepare(&mut command).args(["-c", &script, "sh", env!("CARGO_BIN_EXE_flowcell")]);
        command.args(Project::watch_arguments(&case.flow, RUN));
        command.args(&case.arguments);
        let (_, found) = complete_and_check(&mut project, &case, Life::of(&mut command), |_| true);
        wrong.extend(found.into_iter().map(|why| format!("{blocks} blocks, ignored {ignored}: {why}")));
        faults += 1;
    }
    println!("{faults} processes whose files could not grow, {} violations", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_store_that_cannot_be_opened_is_left_as_it_is() {
    let mut project = Project::new(1, 0);
    let case = case("pay.yaml");
    let database = project.store().join("flowcell.db");
    fs::create_dir_all(&database).unwrap();
    let refused = project.done(&["run", &case.flow, "--run-id", RUN, "--quiet"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        crate::faults::process::stderr(&refused).contains("cannot use the store"),
        "{}",
        crate::faults::process::stderr(&refused)
    );
    fs::remove_dir(&database).unwrap();
    end(&mut project, &case).unwrap();
    assert_eq!(project.check(), Vec::<String>::new());
}
