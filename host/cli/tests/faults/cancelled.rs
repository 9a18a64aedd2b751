//! Cancels a run at any point: no work begins afterwards but undos, and the run stays cancelled even if the process dies.

#![cfg(target_os = "linux")]

use std::time::Duration;

use crate::{
    faults::{
        checker,
        killed_anywhere::{Case, RUN, cases},
        process::{Life, Project, scale, stderr},
    },
    guests,
};

/// Interval in commits between two cancel points. `FLOWCELL_TEST_SCALE` divides it.
const COMMIT_STEP: usize = 7;
/// Interval in events between two cancel points. An event may be reported after the end of the run.
const EVENT_STEP: usize = 31;
const TIMEOUT: Duration = Duration::from_secs(60);

/// The state of the process during and after the cancellation.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Process {
    /// The process receives the command and lives on.
    Lives,
    /// The process dies after it has acknowledged the command.
    Dies,
    /// The process has died in the middle of a commit before the run is cancelled.
    IsDead,
}

/// Cancels the run. Returns true if that is acknowledged, and false if the run has ended or does not exist. Any other
/// response is an error.
fn cancel(project: &Project) -> Result<bool, String> {
    loop {
        let asked = project.done(&["runs", "cancel", RUN]);
        match stderr(&asked) {
            _ if asked.status.success() => return Ok(true),
            why if why.contains("run_not_active") || why.contains("the store has no run") => return Ok(false),
            // The process has ended meanwhile, so the store has no owner.
            why if why.contains("cannot reach the process") => {}
            why => return Err(format!("it was not cancelled: {why}")),
        }
    }
}

/// The result of one run that was to be cancelled.
struct CancelResult {
    /// True if the run reached the cancel point.
    came: bool,
    cancelled: bool,
    wrong: Vec<String>,
}

/// Cancels a run after `at` events. With [`Process::IsDead`], the process dies at its commit number `at` instead, and
/// the run is cancelled afterwards. Returns the result with its violations.
fn cancel_at(case: &Case, at: usize, process: Process) -> CancelResult {
    let mut project = Project::new(1, 0);
    let mut arguments = Project::watch_arguments(&case.flow, RUN);
    arguments.extend(case.arguments.iter().map(String::as_str));
    let mut command = project.flowcell(&arguments);
    if process == Process::IsDead {
        command.env("LD_PRELOAD", guests::bad_machine()).env("BAD_DISK", format!("die:{at}"));
    }
    let mut life = Some(Life::of(&mut command));
    let came = match process {
        Process::IsDead => {
            let (_, lines, _) = life.take().map(Life::end).unwrap_or_default();
            project.note(&lines);
            project.folder().join("bad-disk").exists()
        }
        _ => life.as_ref().is_some_and(|life| life.await_lines(at, TIMEOUT)),
    };
    let asked = cancel(&project);
    let cancelled = asked == Ok(true);
    let mut wrong: Vec<String> = asked.err().into_iter().collect();
    match life {
        Some(life) if process == Process::Lives => {
            let (_, lines, said) = life.end();
            project.note(&lines);
            wrong.extend(said.contains("panicked").then_some(said));
        }
        Some(life) => _ = project.kill(life),
        None => {}
    }
    project.ledger.await_quiet();
    let (arrived, facts) = (arrived(&project), facts(&project));
    loop {
        let again = project.done(&["runs", "resume", RUN, "--quiet"]);
        wrong.extend(stderr(&again).contains("panicked").then(|| stderr(&again)));
        // Only undos begin, so only their calls can wait for a decision.
        if !cancelled || project.resolve() == 0 {
            break;
        }
    }
    if cancelled {
        let kept = checker::runs(&project.store());
        let standing = kept.iter().find(|run| run.name == RUN).map_or("gone", |run| run.standing.as_str());
        if standing != "cancelled" {
            wrong.push(format!("it is {standing}"));
        }
        let later = self::arrived(&project) - arrived;
        if later > 0 {
            wrong.push(format!("{later} calls left after it was cancelled"));
        }
        if process == Process::Lives && self::facts(&project) != facts {
            wrong.push("something happened after it had ended".into());
        }
        wrong.extend(after_cancel(&project));
        // A cancelled run need not succeed.
        wrong.extend(project.check().into_iter().filter(|why| !why.starts_with("I10")));
    }
    let wrong = wrong.into_iter().map(|why| format!("{} cancelled at {at}, {process:?}: {why}", case.flow));
    CancelResult { came, cancelled, wrong: wrong.collect() }
}

/// Returns the number of requests that the server has received, without those of undos.
fn arrived(project: &Project) -> usize {
    project.ledger.book().arrivals.iter().filter(|arrival| !arrival.errand.contains("/cancel-")).count()
}

fn facts(project: &Project) -> usize {
    checker::runs(&project.store()).iter().map(|run| run.facts().len()).sum()
}

/// Lists the work that began after the run was cancelled, except for undos.
fn after_cancel(project: &Project) -> Vec<String> {
    let mut wrong = Vec::new();
    for run in checker::runs(&project.store()) {
        let facts = run.facts();
        let cancelled = facts.iter().position(|(name, _)| name == "CancelRequested").unwrap_or(facts.len());
        let begins = |name: &str| matches!(name, "TaskReady" | "AttemptStarted" | "CallStarted" | "PassStarted");
        let undos: Vec<_> =
            facts.iter().filter(|(name, _)| name == "UndoStarted").map(|(_, fact)| &fact["scope"]).collect();
        let is_undo = |fact: &serde_json::Value| undos.contains(&&fact["task"]["scope"]);
        let begun = facts[cancelled..].iter().filter(|(name, fact)| begins(name) && !is_undo(fact));
        wrong.extend(begun.map(|(name, _)| format!("{name} after {} was cancelled", run.name)));
    }
    wrong
}

/// R32: cancel a run at every point.
#[test]
fn r32_a_run_cancelled_at_any_point_ends_and_begins_nothing_more() {
    let (mut count, mut cancelled, mut wrong) = (0, 0, Vec::new());
    let mut cancel = |case: &Case, at: usize, process: Process| {
        let result = cancel_at(case, at, process);
        count += 1;
        cancelled += usize::from(result.cancelled);
        wrong.extend(result.wrong);
        result.came
    };
    let (moments, events) = (COMMIT_STEP.div_ceil(scale()), EVENT_STEP.div_ceil(scale()));
    for (index, case) in cases().iter().enumerate() {
        let all = (1 + index % moments..).step_by(moments).take_while(|at| cancel(case, *at, Process::IsDead));
        all.for_each(drop);
        let processes = [Process::Lives, Process::Dies].into_iter().cycle().skip(index % 2);
        let all = (1 + index % events..).step_by(events).zip(processes);
        all.take_while(|(at, process)| cancel(case, *at, *process)).for_each(drop);
    }
    println!("{cancelled} of {count} runs cancelled before they ended, {} violations", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(cancelled * 8 > count, "only {cancelled} of {count} runs were cancelled");
}
