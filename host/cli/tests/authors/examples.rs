//! Tests the packs in `nodes/examples`: each passes its cases, and a flow in `flows/packs` uses it.

use std::{fs, path::Path};

use serde_json::Value;

use crate::{
    authors::language::{Language, done, flowcell},
    kit,
};

/// Tests an example in its folder, and runs its flow with the built pack.
fn check(pack: &str, flow: &str, arguments: &[&str]) {
    let built = tempfile::tempdir().unwrap();
    let root = kit::root();
    let mut command = flowcell(&root);
    command.args(["node", "test"]).arg(Path::new("nodes/examples").join(pack)).args(arguments);
    done(command.arg("--out").arg(built.path()));
    let flow = root.join("flows/packs").join(flow);
    let validated = flowcell(built.path()).args(["validate", "--packs", "."]).arg(&flow).output().unwrap();
    assert!(validated.status.success() && !kit::stderr(&validated).contains("warning"), "{}", kit::stderr(&validated));
    let given = done(flowcell(built.path()).args(["run", "--quiet", "--store", "memory:", "--packs", "."]).arg(&flow));
    let expected = fs::read_to_string(flow.with_extension("expected.json")).unwrap();
    let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    assert_eq!(read(&given), read(&expected), "{pack}");
}

#[test]
fn csv_in_rust() {
    check("csv", "orders.yaml", &[]);
}

#[test]
fn markdown_in_javascript() {
    if !Language::Js.is_there("markdown") {
        return;
    }
    if !kit::root().join("nodes/examples/markdown/node_modules/marked").is_dir() {
        assert!(std::env::var_os("FLOWCELL_TEST_TOOLCHAINS").is_none(), "markdown_in_javascript needs `marked`");
        eprintln!("skipped: markdown_in_javascript: run `npm install --prefix nodes/examples/markdown`");
        return;
    }
    check("markdown", "page.yaml", &["--root", "."]);
}

#[test]
fn text_statistics_in_python() {
    if Language::Python.is_there("words") {
        check("words", "words.yaml", &["--root", ".", "--python-path", "sdk/python"]);
    }
}
