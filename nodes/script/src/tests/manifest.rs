//! The examples of the manifest give the documented results.

use flowcell_contract::Manifest;
use flowcell_sdk::{
    Given,
    testing::{Outcome, Script},
};

#[test]
fn examples_of_the_manifest_give_the_documented_results() {
    let manifest = Manifest::parse(crate::MANIFEST).unwrap();
    for node in &manifest.nodes {
        for example in &node.examples {
            let given = Given { input: example.input.clone(), ..Given::default() };
            let played = Script::new().play(crate::run_node, &node.name, given);
            match (&played.outcome, &example.output, &example.failure) {
                (Outcome::Output(output), Some(expected), _) => assert_eq!(output, expected, "{}", example.title),
                (Outcome::Failure(failure), _, Some(code)) => assert_eq!(failure.code, *code, "{}", example.title),
                (other, ..) => panic!("{}: {other:?}", example.title),
            }
        }
    }
}
