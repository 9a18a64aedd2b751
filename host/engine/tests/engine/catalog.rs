//! Runs each example in the manifests of the catalog.

use std::sync::Arc;

use flowcell_contract::{Attempt, Example, Json, NodeRunner, NodeType, Step, StepResult, Value};
use flowcell_engine::{Engine, Pack, digest};

use crate::{
    guests::catalog_pack,
    support::{Memory, attempt, caching_engine},
};

/// Calls the node type of one example, with the example's input exactly as written. In a flow, the host adds to each
/// condition and template of the input the values that it reads from the flow. Here these values are missing, so the
/// conditions and templates of an example can read only values that the node itself provides.
async fn run(engine: &Engine, pack: &Pack, node: &NodeType, example: &Example) -> StepResult {
    let pauses_for = |wake| example.pause.iter().flatten().any(|name| name == wake);
    // A type that needs a body gets one, except in the example about a missing body.
    let needed = node.body.as_ref().is_some_and(|body| body.required);
    let missing = example.failure.as_deref() == Some("missing_body");
    let input = match &example.input {
        serde_json::Value::Null => Value::from(Json::object::<&str>([])),
        input => Value::from(Json::from(input.clone())),
    };
    let attempt = Attempt {
        input,
        config: example.config.clone().map_or(Value::null(), |config| Json::from(config).into()),
        has_body: needed && !missing || pauses_for("body") || pauses_for("each"),
        ..attempt(pack, &node.name, "null")
    };
    engine.run(attempt, Arc::new(Memory::default())).await
}

/// Returns the part of an answer that an example shows.
fn shown(result: &StepResult) -> Json {
    match result {
        Ok(Step::Done(output)) => Json::object([("output", output.json().clone())]),
        Ok(Step::Pause(pause)) => {
            Json::object([("pause", Json::array(pause.until.iter().map(|wake| Json::from(wake.name()))))])
        }
        Err(failure) => Json::object([("failure", Json::from(failure.code.as_str()))]),
    }
}

fn expected(example: &Example) -> Json {
    let pause = example.pause.clone().map(|wakes| Json::array(wakes.into_iter().map(Json::from)));
    let output = example.output.clone().map(|output| ("output", Json::from(output)));
    let failure = example.failure.clone().map(|code| ("failure", Json::from(code)));
    Json::object(output.or(failure).or(pause.map(|pause| ("pause", pause))))
}

#[tokio::test]
async fn every_example_gives_what_it_says() {
    let engine = caching_engine();
    let (mut types, mut wrong) = (0, Vec::new());
    for name in ["agent", "control", "data", "file", "http", "query", "report", "system"] {
        let bytes = catalog_pack(name);
        let digest = digest(&bytes);
        let pack = engine.add_built_in(bytes, digest, name).unwrap();
        for node in &pack.manifest.nodes {
            types += 1;
            for example in &node.examples {
                let result = run(&engine, &pack, node, example).await;
                if shown(&result) != expected(example) {
                    wrong.push(format!("{}, {}: {result:?}, not {}", node.name, example.title, expected(example)));
                }
            }
        }
    }
    assert_eq!(types, 47);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
