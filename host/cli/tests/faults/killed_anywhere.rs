//! Kills one run after each number of events and of requests, and again after it has resumed.

use std::{fs, path::Path, time::Duration};

use serde_json::Value;

use crate::faults::process::{PACKS, Project, flows, scale, stderr};

/// Interval in events between two kill points. `FLOWCELL_TEST_SCALE` divides it.
const STEP: usize = 10;
const TIMEOUT: Duration = Duration::from_secs(60);
pub(crate) const RUN: &str = "r";

/// Returns outputs with the cached value of `state.yaml` if a death dropped it: the cache of a local store is in memory.
pub(crate) fn with_cached(mut outputs: Value) -> Value {
    if let Some(dropped @ Value::Null) = outputs.get_mut("cached") {
        *dropped = serde_json::json!({ "rows": 3 });
    }
    outputs
}

/// A flow with its arguments and its expected outputs.
pub(crate) struct Case {
    pub(crate) flow: String,
    pub(crate) arguments: Vec<String>,
    pub(crate) outputs: Option<Value>,
}

/// Returns the flows of these tests, and two examples without calls.
pub(crate) fn cases() -> Vec<Case> {
    let own = flows().into_iter().map(|flow| Case {
        flow: flow.file_name().unwrap().to_str().unwrap().to_owned(),
        arguments: ["-i", "errand=e", "--answer", "ask=hello"].map(str::to_owned).into(),
        outputs: None,
    });
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../flows/graph").canonicalize().unwrap();
    let examples = ["foreach", "subflow"].into_iter().map(move |name| {
        let flow = examples.join(name).with_extension("yaml");
        let outputs = fs::read_to_string(flow.with_extension("expected.json")).unwrap();
        let outputs = Some(serde_json::from_str(&outputs).unwrap());
        Case { flow: flow.to_str().unwrap().to_owned(), arguments: Vec::new(), outputs }
    });
    let mut cases: Vec<_> = own.chain(examples).collect();
    for case in &mut cases {
        // Only flows with a gate get an answer.
        if !case.flow.starts_with("ask") && !case.arguments.is_empty() {
            case.arguments.truncate(2);
        }
    }
    cases
}

/// The point at which a process is killed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum After {
    Events(usize),
    Requests(usize),
    /// This number of microseconds after the start of the process.
    Micros(u64),
}

/// Runs one process of a run and kills it. Returns true if it reached the kill point.
pub(crate) fn live(project: &mut Project, case: &Case, after: After) -> bool {
    let mut arguments = Project::watch_arguments(&case.flow, RUN);
    arguments.extend(case.arguments.iter().map(String::as_str));
    let (life, arrived) = (project.start(&arguments), project.ledger.arrived());
    let came = match after {
        After::Events(count) => life.await_lines(count, TIMEOUT),
        After::Requests(count) => loop {
            if project.ledger.await_arrivals(arrived + count, Duration::from_millis(20)) {
                break true;
            }
            if life.is_silent() {
                break false;
            }
        },
        After::Micros(time) => {
            std::thread::sleep(Duration::from_micros(time));
            true
        }
    };
    project.kill(life);
    came
}

/// Completes the run with the same command, without kills. Resolves its ambiguous calls.
pub(crate) fn end(project: &mut Project, case: &Case) -> Result<Value, String> {
    let mut arguments =
        vec!["run", &case.flow, "--run-id", RUN, "--json", "--quiet", "--packs", PACKS.to_str().unwrap()];
    arguments.extend(case.arguments.iter().map(String::as_str));
    for _ in 0..10 {
        let output = project.done(&arguments);
        let given: Value = serde_json::from_slice(&output.stdout).map_err(|_| stderr(&output))?;
        match output.status.code() {
            Some(0) => return Ok(given["outputs"].clone()),
            Some(3) if project.resolve() > 0 => {}
            _ => return Err(format!("{given} {}", stderr(&output))),
        }
    }
    Err("it asks again and again".into())
}

/// Kills the process of a run at the point `after`, and the next process at the point `again`. Then completes the run
/// and checks the store. Returns whether the first process reached its point, and the number of kills.
fn kill_twice(case: &Case, after: After, again: After, wrong: &mut Vec<String>) -> (bool, usize) {
    let mut project = Project::new(1, 0);
    let came = live(&mut project, case, after);
    live(&mut project, case, again);
    let ended = end(&mut project, case);
    let expected = match (&ended, &case.outputs) {
        (Ok(given), Some(outputs)) if with_cached(given.clone()) != *outputs => {
            vec![format!("the outputs are {given}")]
        }
        (Err(why), _) => vec![why.clone()],
        _ => Vec::new(),
    };
    let found = expected.into_iter().chain(project.check());
    wrong.extend(found.map(|why| format!("{} killed after {after:?} and {again:?}: {why}", case.flow)));
    (came, project.kills)
}

#[test]
fn r3_a_run_survives_being_killed_anywhere_and_again_while_it_recovers() {
    let step = (STEP / scale()).max(1);
    let (mut kills, mut wrong) = (0, Vec::new());
    let cases = cases();
    assert!(cases.len() >= 10);
    for (index, case) in cases.iter().enumerate() {
        // Each flow dies at other events.
        for events in (1 + index % step..).step_by(step) {
            // The first event of a process says that the run is resumed.
            let (came, killed) = kill_twice(case, After::Events(events), After::Events(1 + events % 3), &mut wrong);
            kills += killed;
            if !came {
                break;
            }
        }
        for arrivals in 1.. {
            let again = After::Micros(arrivals as u64 * 7_919 % 60_000);
            let (came, killed) = kill_twice(case, After::Requests(arrivals), again, &mut wrong);
            kills += killed;
            if !came {
                break;
            }
        }
    }
    println!("{kills} processes killed in {} flows, {} violations", cases.len(), wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
