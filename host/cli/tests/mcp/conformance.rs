//! Runs an external conformance suite of MCP.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::kit::{flowcell, skip_without};

/// Returns the folder of these tests.
pub(crate) fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp")
}

/// Copies the flows of these tests into a folder.
pub(crate) fn put_flows(folder: &Path) {
    std::fs::create_dir_all(folder.join("flows")).unwrap();
    for entry in std::fs::read_dir(here().join("flows")).unwrap() {
        let file = entry.unwrap().path();
        std::fs::copy(&file, folder.join("flows").join(file.file_name().unwrap())).unwrap();
    }
}

#[test]
fn h3_the_conformance_suite_finds_nothing() {
    // The suite needs Node 22.
    if !Command::new("conformance").args(["list", "--server"]).output().is_ok_and(|output| output.status.success()) {
        return skip_without("conformance");
    }
    let folder = tempfile::tempdir().unwrap();
    put_flows(folder.path());
    let mut command = flowcell(folder.path());
    let mut server = command.args(["serve", "--listen", "127.0.0.1:0"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines().map(Result::unwrap);
    let address = lines.find_map(|line| line.strip_prefix("listening on http://").map(str::to_owned)).unwrap();
    let output = Command::new("conformance")
        .args(["server", "--url", &format!("http://{address}/mcp"), "--suite", "all", "--expected-failures"])
        .arg(here().join("not-for-flows.yaml"))
        .current_dir(folder.path())
        .output()
        .unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("dns-rebinding-protection"), "{said}");
}
