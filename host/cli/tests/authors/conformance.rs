//! Tests the SDKs against `tests/conformance`: one manifest, one set of cases, and a pack for each SDK. Tests what
//! `flowcell node conformance` finds in packs that keep the rules, and in those that break one.

use std::{fs, path::Path};

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
        assert!(told.contains("38 cases, 0 failed"), "{language:?}: {told}");
        let checked =
            conformance(&project, &["dist/conform.wasm", "--cases", "cases", "--rounds", "8", "--cuts", &cuts()]);
        assert_eq!(failed(&checked), Vec::<String>::new(), "{language:?}: {checked:#}");
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

/// Returns the number of cuts of each run. `FLOWCELL_TEST_SCALE` multiplies it.
pub(crate) fn cuts() -> String {
    (3 * kit::scale()).to_string()
}

/// Returns the result of `flowcell node conformance` with these arguments.
pub(crate) fn conformance(project: &Path, arguments: &[&str]) -> Value {
    let output = flowcell(project).args(["node", "conformance", "--json"]).args(arguments).output().unwrap();
    let told = kit::stderr(&output);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {told}"));
    let code = if result["conforms"] == true { 0 } else { 1 };
    assert_eq!(output.status.code(), Some(code), "{told}");
    result
}

/// Returns the failed checks, each with its first finding.
pub(crate) fn failed(result: &Value) -> Vec<String> {
    let checks = result["checks"].as_array().unwrap().iter().filter(|check| check["verdict"] == "failed");
    checks.map(|check| format!("{}: {}", check["check"], check["failed"])).collect()
}

/// Changes a file of a project in C, builds it, and returns the failed checks.
fn broken(project: &Path, file: &str, old: &str, new: &str) -> Vec<String> {
    let good = fs::read_to_string(project.join(file)).unwrap();
    assert!(good.contains(old), "{good}");
    fs::write(project.join(file), good.replace(old, new)).unwrap();
    done(flowcell(project).args(["node", "build"]));
    let result = conformance(project, &["dist/shop.wasm", "--timeout-ms", "1000"]);
    fs::write(project.join(file), good).unwrap();
    failed(&result)
}

#[test]
fn a_pack_that_breaks_a_rule_does_not_conform() {
    if !Language::C.is_there("packs that break rules") {
        return;
    }
    let (_folder, project) = project("shop", Language::C);
    let empty = r#"if (is(name, "\"\"")) return fail(failure, "nobody", "the name is empty");"#;
    let [trapping, endless] =
        ["abort();", "for (volatile int i = 1; i;);"].map(|then| format!("{empty} if (name.len > 5) {then}"));
    let output = "text: { type: string, description: The greeting. }";
    for (check, told, file, old, new) in [
        ("examples", "Hi Ada", "nodes.c", r#"\"Hello "#, r#"\"Hi "#),
        ("schemas", "invalid_output", "node.yaml", output, "text: { type: number, description: The greeting. }"),
        ("errors", "does not list the failure code `nobody`", "node.yaml", "code: nobody", "code: no_body"),
        ("errors", "is not in snake_case", "nodes.c", r#""nobody""#, r#""No body""#),
        ("errors", "has no message", "nodes.c", r#""the name is empty""#, r#""""#),
        ("manifest", "`No body` is not in snake_case", "node.yaml", "code: nobody", "code: No body"),
        ("inputs", "trap", "nodes.c", empty, &trapping),
        ("time", "does not end within 1000 ms", "nodes.c", empty, &endless),
    ] {
        let found = broken(&project, file, old, new);
        let named = format!("\"{check}\": ");
        assert!(
            found.iter().any(|found| found.starts_with(&named) && found.contains(told)),
            "{check} {new}: {found:?}"
        );
    }
    // A pack that no host accepts is a finding, too.
    fs::write(project.join("none.wasm"), "text").unwrap();
    let found = failed(&conformance(&project, &["none.wasm"]));
    assert!(found[0].starts_with("\"imports\": ") && found[0].contains("not a WebAssembly component"), "{found:?}");
    let text = flowcell(&project).args(["node", "conformance", "none.wasm"]).output().unwrap();
    let text = kit::stdout(&text);
    for part in ["failed   imports", "mend: build a component", "skipped  replay", "1 check failed"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
