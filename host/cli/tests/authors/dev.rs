//! Tests that `flowcell dev` runs a flow after each change.

use std::{
    fs,
    io::{BufRead, BufReader, Lines},
    process::{ChildStdout, Stdio},
};

use serde_json::{Value, json};

use crate::language::{Language, done, flowcell, project};

const FLOW: &str = "flow: { name: greeting, input: { name: Ada } }
nodes:
  - { id: greet, type: shop.greet, input: { name: '{{ flow.input.name }}' } }
";

/// Reads the outputs of the next run.
fn outputs(lines: &mut Lines<BufReader<ChildStdout>>) -> Value {
    let mut text = String::new();
    loop {
        let line = lines.next().expect("it runs on").unwrap();
        text.push_str(&line);
        if line == "}" {
            return serde_json::from_str(&text).unwrap();
        }
    }
}

#[test]
fn a_flow_runs_again_after_it_or_one_of_its_nodes_is_saved() {
    let (folder, project) = project("shop", Language::Rust);
    let flow = folder.path().join("greeting.yaml");
    fs::write(&flow, FLOW).unwrap();
    let mut command = flowcell(folder.path());
    command.args(["dev", "greeting.yaml", "--node", "shop", "--", "--quiet", "-i", "name=Bo"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(outputs(&mut lines), json!({ "greet": { "text": "Hello Bo" } }));
    fs::write(&flow, FLOW.replace("id: greet", "id: hello")).unwrap();
    assert_eq!(outputs(&mut lines), json!({ "hello": { "text": "Hello Bo" } }));
    let code = project.join("src/lib.rs");
    let spoken = fs::read_to_string(&code).unwrap().replace("Hello {}", "Hullo {}");
    fs::write(&code, "no Rust").unwrap();
    // The change does not build, so the command waits for the next one.
    fs::write(&code, spoken).unwrap();
    assert_eq!(outputs(&mut lines), json!({ "hello": { "text": "Hullo Bo" } }));
    child.kill().unwrap();
    child.wait().unwrap();
    let wrong = flowcell(folder.path()).args(["dev", "nowhere/flow.yaml"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    done(flowcell(folder.path()).args(["node", "inspect", "shop/dist/shop.wasm"]));
}
