//! The process dies at every commit to its store: in the middle of the first write, and after all writes but before
//! they are durable. The flows use every node type of the catalog.

#![cfg(target_os = "linux")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use serde_json::Value;

use crate::{
    faults::{
        killed_anywhere::{Case, RUN, cases, end, with_cached},
        process::{Life, Project, scale},
    },
    guests,
};

/// Interval in commits between two kill points. `FLOWCELL_TEST_SCALE` divides it.
const STEP: usize = 3;
/// Flows whose processes die at the same time.
const WORKERS: usize = 4;
/// Minimum number of flows that the tests use.
const FLOWS: usize = 10;
/// Node types of the tests. They call capabilities that no node type of the catalog uses.
const COURIERS: [&str; 3] = ["courier.pay", "courier.scatter", "courier.send"];

/// Returns the flows of these tests and all examples.
fn reference() -> Vec<Case> {
    let mut cases = cases();
    let known: BTreeSet<_> = cases.iter().map(|case| PathBuf::from(&case.flow)).collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../flows/graph").canonicalize().unwrap();
    let mut examples: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    examples.retain(|path| path.with_extension("expected.json").exists() && !known.contains(path));
    examples.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    examples.sort();
    cases.extend(examples.into_iter().map(|flow| {
        let read = |extension: &str| fs::read_to_string(flow.with_extension(extension)).unwrap_or_default();
        let arguments = read("args").replace("{folder}", flow.parent().unwrap().to_str().unwrap());
        Case {
            arguments: arguments.split_whitespace().map(str::to_owned).collect(),
            outputs: Some(serde_json::from_str(&read("expected.json")).unwrap()),
            flow: flow.to_str().unwrap().to_owned(),
        }
    }));
    cases
}

/// Returns the node types of a flow.
fn used(project: &Project, case: &Case) -> BTreeSet<String> {
    let text = fs::read_to_string(project.folder().join(&case.flow)).unwrap();
    let types = text.split("type: ").skip(1).filter_map(|rest| rest.split([',', ' ', '\n', '}']).next());
    types.filter(|name| name.contains('.')).map(str::to_owned).collect()
}

/// Runs a flow until its process dies at the commit `number`, and then completes the run. Returns whether the process
/// died.
fn die_at_commit(case: &Case, library: &Path, number: usize, wrong: &mut Vec<String>) -> bool {
    let mut project = Project::new(1, 0);
    let mut arguments = Project::watch_arguments(&case.flow, RUN);
    arguments.extend(case.arguments.iter().map(String::as_str));
    let mut command = project.flowcell(&arguments);
    let life = Life::of(command.env("LD_PRELOAD", library).env("BAD_DISK", format!("die:{number}")));
    let (code, lines, said) = life.end();
    project.note(&lines);
    let died = project.folder().join("bad-disk").exists();
    let mut found = Vec::new();
    if died != code.is_none() {
        found.push(format!("it ended with {code:?}: {said}"));
    }
    match (end(&mut project, case), &case.outputs) {
        (Ok(given), Some(outputs)) if with_cached(given.clone()) != *outputs => {
            found.push(format!("the outputs are {given}"))
        }
        (Ok(_), _) => {}
        (Err(why), _) => found.push(why),
    }
    found.extend(project.check());
    wrong.extend(found.into_iter().map(|why| format!("{} killed at moment {number}: {why}", case.flow)));
    died
}

/// R1: `kill -9` at every journal write.
#[test]
fn r1_a_run_survives_the_end_of_its_process_at_every_commit() {
    let library = guests::bad_machine();
    let step = STEP.div_ceil(scale());
    let cases = reference();
    let next = AtomicUsize::new(0);
    let die_everywhere = || {
        let (mut kills, mut wrong) = (0, Vec::new());
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = cases.get(index) else { return (kills, wrong) };
            // Each flow dies at other commits.
            for number in (1 + index % step..).step_by(step) {
                if !die_at_commit(case, &library, number, &mut wrong) {
                    break;
                }
                kills += 1;
            }
        }
    };
    let results: Vec<_> = thread::scope(|scope| {
        let running: Vec<_> = (0..WORKERS).map(|_| scope.spawn(die_everywhere)).collect();
        running.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    let kills: usize = results.iter().map(|(kills, _)| kills).sum();
    let wrong: Vec<_> = results.into_iter().flat_map(|(_, wrong)| wrong).collect();
    println!("{kills} processes killed at a commit in {} flows, {} violations", cases.len(), wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(kills > 5 * FLOWS);
}

#[test]
fn the_reference_flows_use_every_node_type() {
    let project = Project::new(1, 0);
    let listed = project.done(&["nodes", "--json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let types = listed.as_array().unwrap().iter().map(|node| node["type"].as_str().unwrap().to_owned());
    let mut missing: BTreeSet<_> = types.chain(COURIERS.map(str::to_owned)).collect();
    assert!(missing.len() > 30);
    let cases = reference();
    assert!(cases.len() >= FLOWS);
    for case in &cases {
        let used = used(&project, case);
        missing.retain(|name| !used.contains(name));
    }
    assert_eq!(missing, BTreeSet::new());
}
