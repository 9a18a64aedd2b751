//! Scripts, played without a host: inputs, outputs and failures.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod author;
mod bridge;
mod functions;
mod hostile;
mod manifest;
mod troubles;
mod web;

use flowcell_sdk::{
    Failure, Given,
    testing::{Outcome, Played, Script},
};
use serde_json::{Value, json};

/// A host with services that return their arguments or fail.
fn host() -> Script {
    Script::new()
        .service("echo", |args| Ok(args.first().cloned().unwrap_or_default()))
        .service("args", |args| Ok(args.to_vec().into()))
        .service("broken", |_| Err(Failure::new("quota_exceeded", "no images are left")))
}

/// Runs a script with the simulated services of `host`. Runs it twice, to check that the same events lead to the same
/// calls.
fn play_on(host: impl Fn() -> Script, input: Value) -> Played {
    let given = Given { input, ..Given::default() };
    let played = host().play(crate::run_node, "script.run", given.clone());
    assert_eq!(host().play(crate::run_node, "script.run", given), played, "the same events, other calls");
    played
}

/// Runs a script with these inputs.
fn play(source: &str, inputs: Value) -> Played {
    play_on(host, json!({ "source": source, "inputs": inputs }))
}

/// Returns the result of a script whose function `run` has this body.
fn returned(body: &str) -> Value {
    let source = format!("export async function run(services) {{ {body} }}");
    output(&play(&source, json!({})))["result"].clone()
}

fn output(played: &Played) -> Value {
    match &played.outcome {
        Outcome::Output(output) => output.clone(),
        other => panic!("{other:?}"),
    }
}

fn failure(played: &Played) -> Failure {
    match &played.outcome {
        Outcome::Failure(failure) => failure.clone(),
        other => panic!("{other:?}"),
    }
}

fn logged(played: &Played) -> Vec<String> {
    let level = |line: &Value| line["level"].as_str().unwrap().rsplit(':').next().unwrap().to_owned();
    let line = |line: &&Value| format!("{} {}", level(line), line["message"].as_str().unwrap());
    played.of("log.log").iter().map(line).collect()
}
