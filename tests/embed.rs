//! Builds a program that embeds the platform, outside the workspace. It must not need the command line and the server,
//! and runs a flow.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Packages of the command line and the server, which an embedding program must not build.
const LEFT_OUT: [&str; 6] = ["axum", "clap", "flowcell", "flowcell-server", "indicatif", "utoipa"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Runs cargo on the example. It shares the workspace's profile and target folder, so that it builds little again.
fn cargo(arguments: &[&str]) -> String {
    let root = root();
    let example = root.join("sdk/embed");
    // The example uses the tested versions of this workspace.
    fs::copy(root.join("Cargo.lock"), example.join("Cargo.lock")).unwrap();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let mut command = Command::new(env::var_os("CARGO").unwrap());
    command.current_dir(&example).env("CARGO_TARGET_DIR", target).args(arguments);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn an_embedded_host_runs_a_flow_without_the_command_line_and_the_server() {
    let tree = cargo(&["tree", "--edges", "normal", "--prefix", "none", "--format", "{p}"]);
    let packages: Vec<_> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(packages.contains(&"flowcell-platform"));
    for name in LEFT_OUT {
        assert!(!packages.contains(&name), "a program that embeds Flowcell builds {name}");
    }
    let flow = root().join("flows/graph/triage.yaml");
    let profile = root().join("Cargo.toml");
    let outputs = cargo(&["run", "--quiet", "--config", profile.to_str().unwrap(), "--", flow.to_str().unwrap()]);
    let expected = fs::read_to_string(root().join("flows/graph/triage.expected.json")).unwrap();
    let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(read(&outputs), read(&expected));
}
