//! Tests `flowcell node new` and the project that it creates.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use serde_json::{Value, json};

use crate::{
    authors::{
        conformance::{conformance, cuts, failed},
        language::{Language, done, flowcell, project},
    },
    kit,
};

#[test]
fn a_new_project_is_built_tested_and_run_in_every_language() {
    for language in Language::ALL.into_iter().filter(|language| language.is_there("a new project")) {
        let (folder, project) = project("shop", language);
        let tested = flowcell(&project).args(["node", "test", "--junit", "results.xml"]).output().unwrap();
        let told = kit::stderr(&tested);
        assert!(tested.status.success(), "{language:?}: {told}");
        assert!(told.contains("6 cases, 0 failed"), "{language:?}: {told}");
        let results = fs::read_to_string(project.join("results.xml")).unwrap();
        assert!(results.contains(r#"<testcase classname="shop.approve" name="nobody answers for a day""#), "{results}");
        let checked = conformance(&project, &["dist/shop.wasm", "--rounds", "16", "--cuts", &cuts()]);
        assert_eq!(failed(&checked), Vec::<String>::new(), "{language:?}: {checked:#}");
        let ran = done(flowcell(&project).args(["node", "run", "shop.greet", "-i", "name=Ada", "--packs", "dist"]));
        assert_eq!(serde_json::from_str::<Value>(&ran).unwrap(), json!({ "text": "Hello Ada" }), "{language:?}");
        let asked = ["node", "run", "shop.approve", "-i", "text=x", "--answer", "yes", "--packs", "shop/dist"];
        let ran = done(flowcell(folder.path()).args(asked));
        assert_eq!(serde_json::from_str::<Value>(&ran).unwrap(), json!({ "approved": true }), "{language:?}");
    }
}

/// Runs the step of a project's CI file that installs the program. Returns whether it succeeds, and what it writes.
fn install_step(project: &Path, binary: &str, digest: &str) -> (bool, String) {
    let file = fs::read_to_string(project.join(".github/workflows/ci.yml")).unwrap();
    let (_, step) = file.split_once("        run: |\n").unwrap();
    let (script, _) = step.split_once("      - ").unwrap();
    let mut command = Command::new("bash");
    command.args(["-e", "-o", "pipefail", "-c", script]).current_dir(project).env("HOME", project);
    command.env("GITHUB_PATH", project.join("github-path")).env("REPOSITORY", "");
    let output = command.env("BINARY_URL", binary).env("BINARY_SHA256", digest).output().unwrap();
    (output.status.success(), kit::stdout(&output) + &kit::stderr(&output))
}

#[test]
fn the_ci_file_takes_a_built_program_only_with_its_digest() {
    const DIGEST: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("program"), "abc").unwrap();
    let binary = format!("file://{}", folder.path().join("program").display());
    for language in Language::ALL {
        done(flowcell(folder.path()).args(["node", "new", language.name(), "--lang", language.name()]));
        let project = folder.path().join(language.name());
        let installed = project.join(".cargo/bin/flowcell");
        for (binary, digest, expected) in [
            ("", "", "Flowcell has no release yet. Set the variable FLOWCELL_REPOSITORY"),
            (&*binary, "", "set FLOWCELL_BINARY_SHA256, too"),
            (&*binary, &*DIGEST.replace('b', "c"), "FAILED"),
        ] {
            let (is_good, told) = install_step(&project, binary, digest);
            assert!(!is_good && told.contains(expected) && !installed.exists(), "{language:?}: {told}");
        }
        let (is_good, told) = install_step(&project, &binary, DIGEST);
        assert!(is_good, "{language:?}: {told}");
        assert_eq!(fs::read_to_string(&installed).unwrap(), "abc");
        assert_eq!(fs::metadata(installed).unwrap().permissions().mode() & 0o111, 0o111);
    }
}

#[test]
fn a_failed_case_names_the_differences() {
    let (_folder, project) = project("shop", Language::Rust);
    fs::write(
        project.join("cases/shop.yaml"),
        r#"cases:
  - { name: another text, type: shop.greet, input: { name: Ada }, expect: { output: { text: Hi Ada, more: 1 } } }
  - { name: no failure, type: shop.greet, input: { name: Ada }, expect: { failure: { code: nobody } } }
  - { name: a failure, type: shop.greet, input: { name: "" } }
  - { name: no such input, type: shop.greet, input: { nam: Ada } }
  - { name: another pause, type: shop.approve, input: { text: a }, expect: { pause: [event] } }
  - { name: an answer that is none, type: shop.approve, input: { text: a }, answer: perhaps, expect: { output: { approved: true } } }
  - { name: no such event, type: shop.approve, input: { text: a }, expect: { events: [{ type: log, level: info }] } }
  - { name: no such call, type: shop.greet, input: { name: Ada }, calls: [{ url: 'https://example.com' }] }
"#,
    )
    .unwrap();
    let tested = flowcell(&project).args(["node", "test"]).output().unwrap();
    let told = kit::stderr(&tested);
    assert_eq!(tested.status.code(), Some(1), "{told}");
    for expected in [
        "output.text is \"Hello Ada\", not \"Hi Ada\"",
        "output.more is missing; expected 1",
        "it did not fail; expected a failure with `nobody`",
        "it failed: nobody: the name is empty",
        "it failed: invalid_input",
        "it pauses for [\"answer\",\"after\"], not [\"event\"]",
        "the event {\"type\":\"log\",\"level\":\"info\"} is missing",
        "1 reply under `calls` not used by any call",
        "output.approved is false, not true",
        "11 cases, 8 failed",
    ] {
        assert!(told.contains(expected), "{expected}\n{told}");
    }
}

#[test]
fn a_pack_with_another_manifest_is_refused() {
    let (_folder, project) = project("shop", Language::Rust);
    let text = |file: &str| fs::read_to_string(project.join(file)).unwrap();
    fs::write(project.join("other.yaml"), text("node.yaml").replacen("nodes:\n", "keywords: [other]\nnodes:\n", 1))
        .unwrap();
    fs::write(project.join("src/lib.rs"), text("src/lib.rs").replacen("\"node.yaml\"", "\"other.yaml\"", 1)).unwrap();
    let refused = flowcell(&project).args(["node", "build"]).output().unwrap();
    let told = kit::stderr(&refused);
    assert_eq!(refused.status.code(), Some(2), "{told}");
    assert!(told.contains("another manifest than `node.yaml`") && told.contains("CARGO_TARGET_DIR"), "{told}");
}

#[test]
fn errors_of_new_and_build_name_a_solution() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |arguments: &[&str], expected: &[&str]| {
        let output = flowcell(folder.path()).args(arguments).env("PATH", "").output().unwrap();
        let told = kit::stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{told}");
        expected.iter().for_each(|expected| assert!(told.contains(expected), "{expected}\n{told}"));
    };
    refused(&["node", "new", "Shop", "--lang", "js"], &["letters a-z"]);
    refused(&["node", "new", "http", "--lang", "js"], &["is reserved for the built-in packs"]);
    refused(&["node", "build"], &["cannot read ./node.yaml", "flowcell node new"]);
    for (language, tool) in [
        (Language::Rust, "install Rust through rustup"),
        (Language::Js, "/js: npm install"),
        (Language::Ts, "/ts: npm install"),
        (Language::Python, "pip install componentize-py"),
        (Language::C, "`sh`"),
        (Language::Go, "`sh`"),
        (Language::Zig, "`sh`"),
    ] {
        done(flowcell(folder.path()).args([
            "node",
            "new",
            "shop",
            "--dir",
            language.name(),
            "--lang",
            language.name(),
        ]));
        refused(&["node", "build", language.name()], &["which builds this project, is missing", tool]);
        refused(&["node", "new", "shop", "--dir", language.name(), "--lang", "js"], &["is not empty"]);
    }
    refused(&["node", "run", "control.nop"], &["did you mean `control.noop`?"]);
}

#[test]
fn the_hint_of_a_new_project_in_javascript_installs_its_tools_first() {
    let folder = tempfile::tempdir().unwrap();
    for (language, is_expected) in [("js", true), ("ts", true), ("python", false)] {
        let made = flowcell(folder.path()).args(["node", "new", language, "--lang", language]).output().unwrap();
        let told = kit::stderr(&made);
        assert_eq!(told.contains("`npm install`"), is_expected, "{told}");
        assert!(told.contains(&format!("`flowcell node test {language}`")), "{told}");
    }
}

#[test]
fn the_rust_target_is_named_only_if_the_compiler_lacks_it() {
    let (_folder, coffee) = project("coffee", Language::Rust);
    fs::write(coffee.join("src/lib.rs"), "fn one() -> u8 { \"two\" }\n").unwrap();
    let refused = flowcell(&coffee).args(["node", "build"]).output().unwrap();
    let told = kit::stderr(&refused);
    assert!(told.contains("mismatched types") && !told.contains("rustup target add"), "{told}");
    let lacking = tempfile::tempdir().unwrap();
    let compiler = lacking.path().join("rustc");
    fs::write(
        &compiler,
        "#!/bin/sh\nif [ \"$1 $2\" = '--print target-libdir' ]; then echo /nowhere; else exit 1; fi\n",
    )
    .unwrap();
    fs::set_permissions(&compiler, fs::Permissions::from_mode(0o755)).unwrap();
    let refused = flowcell(&coffee).env("RUSTC", compiler).args(["node", "build"]).output().unwrap();
    let told = kit::stderr(&refused);
    assert!(told.contains("the target is missing: run `rustup target add wasm32-wasip2`"), "{told}");
}

#[test]
fn a_build_names_the_signal_that_ended_its_tool() {
    let folder = tempfile::tempdir().unwrap();
    done(flowcell(folder.path()).args(["node", "new", "shop", "--lang", "c"]));
    let project = folder.path().join("shop");
    for (script, expected) in [
        ("kill -KILL $$\n", ["a signal ended `sh` before it had built the project: 9 (SIGKILL)", "no memory left"]),
        ("kill -TERM $$\n", ["a signal ended `sh` before it had built the project: 15 (SIGTERM)", "build again"]),
        ("exit 7\n", ["`sh` cannot build the project", ""]),
    ] {
        fs::write(project.join("build.sh"), script).unwrap();
        let refused = flowcell(&project).args(["node", "build"]).output().unwrap();
        let told = kit::stderr(&refused);
        assert_eq!(refused.status.code(), Some(1), "{told}");
        expected.iter().for_each(|expected| assert!(told.contains(expected), "{expected}\n{told}"));
    }
    // Cargo itself is ended; the hint about its target would mislead.
    done(flowcell(folder.path()).args(["node", "new", "tea", "--lang", "rust"]));
    let tools = tempfile::tempdir().unwrap();
    fs::write(tools.path().join("cargo"), "#!/bin/sh\nkill -KILL $$\n").unwrap();
    fs::set_permissions(tools.path().join("cargo"), fs::Permissions::from_mode(0o755)).unwrap();
    let refused =
        flowcell(&folder.path().join("tea")).env("PATH", tools.path()).args(["node", "build"]).output().unwrap();
    let told = kit::stderr(&refused);
    assert!(told.contains("a signal ended `cargo`") && !told.contains("rustup target add"), "{told}");
}
