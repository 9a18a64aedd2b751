//! Tests the server against its OpenAPI document.

use std::process::Command;

use crate::{kit::has_program, server::process};

/// Schemathesis, an external tester, generates requests from the document and checks the responses.
#[test]
fn schemathesis_finds_nothing() {
    if !has_program("schemathesis") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (child, address) = process::serve(folder.path(), &[]);
    let output = Command::new("schemathesis")
        .args(["run", &format!("http://{address}/openapi.json"), "--max-examples", "20", "--seed", "1"])
        // A schema cannot express valid flows or existing ids.
        .args(["--exclude-checks", "positive_data_acceptance"])
        .args(["--exclude-path-regex", "/(stream|socket)$", "--no-color"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(process::stop(child), Some(0));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
}
