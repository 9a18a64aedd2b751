//! Tests the SDKs against `tests/conformance`: one manifest, one set of cases, and a pack for each SDK.

use std::fs;

use serde_json::Value;

use crate::{
    authors::language::{Language, copy, done, flowcell, project},
    kit,
};

#[test]
fn every_sdk_passes_the_same_cases() {
    let common = kit::root().join("tests/conformance");
    for language in Language::WITH_SDK.into_iter().filter(|language| language.is_there("conformance")) {
        let (_folder, project) = project("conform", language);
        fs::remove_dir_all(project.join("cases")).unwrap();
        copy(&common.join("cases"), &project.join("cases"));
        fs::copy(common.join("node.yaml"), project.join("node.yaml")).unwrap();
        let code = project.join(language.code());
        fs::copy(common.join(code.file_name().unwrap()), &code).unwrap();
        let tested = flowcell(&project).args(["node", "test"]).output().unwrap();
        let told = kit::stderr(&tested);
        assert!(tested.status.success(), "{language:?}: {told}");
        assert!(told.contains("37 cases, 0 failed"), "{language:?}: {told}");
        let run = |node: &str| {
            let mut command = flowcell(&project);
            command.args(["node", "run", node, "--json", "--quiet", "--packs", "dist"]);
            command
        };
        let number = || serde_json::from_str::<Value>(&done(&mut run("conform.random"))).unwrap()["outputs"].clone();
        assert_ne!(number(), number(), "{language:?}: two runs get the same random number");
        if language != Language::Rust {
            let crashed: Value = serde_json::from_slice(&run("conform.crash").output().unwrap().stdout).unwrap();
            let stack = crashed["error"]["details"]["stack"].to_string();
            assert!(stack.contains("crash") && stack.contains("nodes"), "{language:?}: {crashed}");
        }
    }
}
