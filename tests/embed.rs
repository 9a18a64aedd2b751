//! Builds a program outside the workspace that embeds the platform. The program must build without the command line and
//! the server, and must run a flow.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// Packages of the command line, the server and the optional features. A program that embeds the platform must not
/// depend on any of them.
const LEFT_OUT: [&str; 8] =
    ["axum", "clap", "flowcell", "flowcell-server", "indicatif", "opentelemetry_sdk", "sqlx", "utoipa"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Calls cargo on the example. Cargo uses the workspace's profile and target folder, so that it need not build most
/// packages again.
fn cargo(arguments: &[&str]) -> Output {
    let root = root();
    let example = root.join("sdk/embed");
    // The example uses the tested versions of this workspace.
    fs::copy(root.join("Cargo.lock"), example.join("Cargo.lock")).unwrap();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let mut command = Command::new(env::var_os("CARGO").unwrap());
    command.current_dir(&example).env("CARGO_TARGET_DIR", target).args(arguments);
    command.output().unwrap()
}

/// Returns the output of cargo on the example. Panics if cargo fails.
fn printed(arguments: &[&str]) -> String {
    let output = cargo(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn an_embedded_host_runs_a_flow_without_the_command_line_and_the_server() {
    let tree = printed(&["tree", "--edges", "normal", "--prefix", "none", "--format", "{p}"]);
    let packages: Vec<_> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(packages.contains(&"flowcell-platform"));
    for name in LEFT_OUT {
        assert!(!packages.contains(&name), "a program that embeds Flowcell builds {name}");
    }
    let flow = root().join("flows/graph/triage.yaml");
    let profile = root().join("Cargo.toml");
    let run = ["run", "--quiet", "--config", profile.to_str().unwrap(), "--", flow.to_str().unwrap()];
    let outputs = printed(&run);
    let expected = fs::read_to_string(root().join("flows/graph/triage.expected.json")).unwrap();
    let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(read(&outputs), read(&expected));
    // A store that needs a feature is refused by its name.
    let refused = cargo(&[run.as_slice(), &["mysql://127.0.0.1/flowcell"]].concat());
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && told.contains("lacks the feature `shared-stores`"), "{told}");
}
