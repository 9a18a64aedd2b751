//! The agents, played by scripts that fix the replies of models, tools and people.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod beginnings;
mod ends;
mod listening;
mod manifest;
mod shapes;
mod tools;

use flowcell_sdk::{
    Given,
    testing::{Outcome, Played, Script},
};
use serde_json::{Value, json};

/// Performs `agent.run` with a prompt, played by a script. Does so twice, to check that the same events lead to the
/// same calls.
fn play(script: impl Fn() -> Script, config: &Value) -> Played {
    play_type("agent.run", script, json!({ "prompt": "Go" }), config)
}

fn play_type(node_type: &str, script: impl Fn() -> Script, input: Value, config: &Value) -> Played {
    let given = Given { input, config: config.clone(), ..Given::default() };
    let played = script().play(crate::run_node, node_type, given.clone());
    assert_eq!(script().play(crate::run_node, node_type, given), played, "the same events, other calls");
    played
}

fn output(played: &Played) -> &Value {
    match &played.outcome {
        Outcome::Output(output) => output,
        other => panic!("{other:?}"),
    }
}

fn code(played: &Played) -> &str {
    match &played.outcome {
        Outcome::Failure(failure) => &failure.code,
        other => panic!("{other:?}"),
    }
}

fn requests(played: &Played) -> Vec<&Value> {
    played.of("model.start-generate")
}

/// Returns the messages of the last request in short form: each with its role, and its text or the kinds of its blocks.
fn last_messages(played: &Played) -> Vec<String> {
    let block = |block: &Value| match block["type"].as_str().unwrap() {
        "text" => block["text"].as_str().unwrap().to_owned(),
        kind => kind.to_owned(),
    };
    let said = |message: &Value| match &message["content"] {
        Value::String(text) => text.clone(),
        blocks => blocks.as_array().unwrap().iter().map(block).collect::<Vec<_>>().join(" | "),
    };
    let messages = requests(played).last().unwrap()["messages"].as_array().unwrap().clone();
    messages.iter().map(|message| format!("{}: {}", message["role"].as_str().unwrap(), said(message))).collect()
}

/// The arguments of the one call of `agent.close`.
fn closed(played: &Played) -> Value {
    let closed = played.of("agent.close");
    assert_eq!(closed.len(), 1, "an agent run is closed once");
    closed[0].clone()
}

fn states(played: &Played) -> Vec<&str> {
    let told = played.of("agent.tell").into_iter().filter(|told| told["kind"] == "state");
    told.map(|told| told["data"]["state"].as_str().unwrap()).collect()
}
