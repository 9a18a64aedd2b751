//! A run that repeatedly kills its process is parked, and the other runs continue.

use std::time::Duration;

use serde_json::json;

use crate::faults::{
    checker,
    kill_storm::{address, flow, post, serves},
    process::{PACKS, Project, stderr},
};

/// The flows of the healthy runs. For each of these flows, the test starts a healthy run of the flow, and then a
/// process that has this run and the run that kills every process. A run that makes no progress is driven twice
/// together with other runs, then twice alone, and is then parked.
const FLOWS_BESIDE: [&str; 4] = ["each", "send", "wait", "each"];
/// The index in [`FLOWS_BESIDE`] of the first process that drives the killing run alone.
const FIRST_ALONE: usize = 2;
const TIMEOUT: Duration = Duration::from_secs(60);

fn accept(project: &mut Project, run: &str, flow: &str) {
    let (flow, errand) = (format!("{flow}.yaml"), format!("errand={run}"));
    let packs = PACKS.to_str().unwrap();
    let output = project.done(&["run", &flow, "--run-id", run, "-i", &errand, "--detach", "--quiet", "--packs", packs]);
    assert!(output.status.success(), "{}", stderr(&output));
    project.claims.accepted.insert(run.to_owned());
}

/// R25: a run kills every process that drives it. It is parked, and the other runs complete.
#[test]
fn r25_a_run_that_kills_its_process_is_parked_and_the_others_complete() {
    let mut project = Project::new(1, 0);
    let packs = PACKS.to_str().unwrap();
    accept(&mut project, "poison", "send");
    // Its request never gets a response, and the test kills each process that drives it.
    project.ledger.hold(Some("poison"));
    let poisoned =
        |project: &Project| project.ledger.book().arrivals.iter().filter(|one| one.errand == "poison/send").count();
    for (life, other) in FLOWS_BESIDE.iter().enumerate() {
        accept(&mut project, &format!("{other}{life}"), other);
        let driving = project.start(&["drive", "--packs", packs]);
        // One line reports the start, and one the end of the other run, unless the poisoned run is driven alone.
        let told = if life < FIRST_ALONE { 2 } else { 1 };
        assert!(driving.await_lines(told, TIMEOUT), "{:?}", driving.errors());
        let arrivals = |count: usize| project.ledger.await_arrivals(count, Duration::from_millis(50));
        while poisoned(&project) <= life {
            assert!(!driving.is_silent(), "{:?}", driving.errors());
            arrivals(project.ledger.arrived() + 1);
        }
        project.kill(driving);
    }
    accept(&mut project, "last", "pay");
    let driven = project.done(&["drive", "--once", "--packs", packs]);
    assert!(driven.status.success(), "{}", stderr(&driven));
    assert_eq!(poisoned(&project), FLOWS_BESIDE.len());
    for run in checker::runs(&project.store()) {
        let expected = if run.name == "poison" { ("parked", true) } else { ("succeeded", false) };
        assert_eq!((run.standing.as_str(), run.attention), expected, "{}", run.name);
    }
    let listed = project.done(&["runs", "list", "--status", "needs_attention"]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.starts_with("poison "), "{listed}");
    let events = project.events();
    let parked = events.values().rfind(|event| event["type"] == "harness:parked").unwrap();
    assert_eq!((&parked["runId"], &parked["reason"]), (&"poison".into(), &"crash_loop".into()));
    // A person has repaired the cause, so the run works now.
    project.ledger.hold(None);
    let resumed = project.done(&["runs", "resume", "poison", "--quiet"]);
    assert!(resumed.status.success(), "{}", stderr(&resumed));
    let wrong = project.check();
    println!("{} processes killed by one run, {} violations", project.kills, wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// R25: two runs are driven together, and one of them kills the process. Only this one is parked.
#[test]
fn r25_a_healthy_run_is_not_parked_with_the_one_that_kills_its_process() {
    let mut project = Project::new(1, 0);
    let packs = PACKS.to_str().unwrap();
    accept(&mut project, "poison", "send");
    accept(&mut project, "beside", "send");
    // No request gets a response before the process dies.
    project.ledger.hold(Some(""));
    let arrived = |project: &Project, errand: &str| {
        project.ledger.book().arrivals.iter().filter(|one| one.errand == format!("{errand}/send")).count()
    };
    for life in 0..FLOWS_BESIDE.len() {
        let driving = project.start(&["drive", "--packs", packs]);
        let both = life < FIRST_ALONE;
        while arrived(&project, "poison") <= life || (both && arrived(&project, "beside") <= life) {
            assert!(!driving.is_silent(), "{:?}", driving.errors());
            project.ledger.await_arrivals(project.ledger.arrived() + 1, Duration::from_millis(20));
        }
        project.kill(driving);
    }
    assert_eq!(arrived(&project, "beside"), 2, "it began while the other was tried alone");
    project.ledger.hold(None);
    let driven = project.done(&["drive", "--once", "--packs", packs]);
    assert!(driven.status.success(), "{}", stderr(&driven));
    let standings: Vec<_> =
        checker::runs(&project.store()).into_iter().map(|run| (run.name, run.standing, run.attention)).collect();
    let expected = [("poison", "parked", true), ("beside", "succeeded", false)];
    assert_eq!(standings, expected.map(|(name, standing, attention)| (name.into(), standing.into(), attention)));
    let resumed = project.done(&["runs", "resume", "poison", "--quiet"]);
    assert!(resumed.status.success(), "{}", stderr(&resumed));
    assert_eq!(project.check(), Vec::<String>::new());
}

/// R25: a run that is resumed for the second time without progress becomes a suspect, which the next process drives
/// alone. A process resumes at most 16 such runs in a second. So a process that dies at once leaves only few suspects.
#[test]
fn r25_a_process_that_dies_at_once_suspects_few_of_its_runs() {
    // On a machine that stands still for a second, more begin before the process is killed.
    let mut rounds = (0..3).map(|_| suspects_of_a_process_that_dies());
    assert!(rounds.any(|suspects| (AT_ONCE..RUNS).contains(&suspects)), "all runs became suspects");
}

/// The number of runs in the store. The third process begins [`AT_ONCE`] of them at once.
const RUNS: usize = 30;
const AT_ONCE: usize = 16;

/// Starts [`RUNS`] runs, and kills three processes one after the other before any of these runs makes progress. Returns
/// the number of suspects: the runs that the third process has resumed.
fn suspects_of_a_process_that_dies() -> usize {
    let mut project = Project::new(1, 0);
    project.ledger.hold(Some(""));
    let flow = flow(&project.ledger.origin());
    let serving = project.start(&serves());
    let address = address(&serving);
    for run in (0..RUNS).map(|run| format!("r{run}")) {
        let body = json!({ "flow": flow, "runId": run, "input": { "errand": run } });
        assert!(post(&address, &body.to_string()));
        project.claims.accepted.insert(run);
    }
    let drives = ["drive", "--packs", PACKS.to_str().unwrap()];
    let died = |project: &mut Project, driving, arrivals| {
        assert!(project.ledger.await_arrivals(arrivals, TIMEOUT), "{} of {arrivals}", project.ledger.arrived());
        project.kill(driving);
    };
    // Nothing is suspected before the second death.
    died(&mut project, serving, RUNS);
    let driving = project.start(&drives);
    died(&mut project, driving, 2 * RUNS);
    let driving = project.start(&drives);
    died(&mut project, driving, 2 * RUNS + AT_ONCE);
    let resumes = |run: &checker::Run| run.facts().iter().filter(|(name, _)| name == "RunResumed").count();
    let suspects = checker::runs(&project.store()).iter().filter(|run| resumes(run) > 1).count();
    project.ledger.hold(None);
    let driven = project.done(&["drive", "--once", "--packs", PACKS.to_str().unwrap()]);
    assert!(driven.status.success(), "{}", stderr(&driven));
    let mut runs = checker::runs(&project.store());
    runs.retain(|run| run.standing != "succeeded");
    let left: Vec<_> = runs.iter().map(|run| (&run.name, &run.standing, resumes(run))).collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(project.check(), Vec::<String>::new());
    suspects
}
