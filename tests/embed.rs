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

/// Packages with the features that the workspace's build gives them. The example does not use them itself. With the same
/// features, cargo takes most packages, wasmtime among them, from the workspace's target folder.
const SHARED_FEATURES: &str = r#"
anyhow = "1"
arrayvec = "0.7"
either = "1"
futures-executor = "0.3"
futures-io = "0.3"
getrandom = { version = "0.3", features = ["std"] }
hashbrown = "0.16"
icu_normalizer = { version = "2", features = ["utf16_iter"] }
icu_properties = "2"
indexmap = "2"
libc = { version = "0.2", features = ["extra_traits"] }
num-integer = "0.1"
rand = "0.10"
tokio-stream = { version = "0.1", features = ["fs"] }
tracing = { version = "0.1", features = ["log"] }

[dependencies.tokio]
version = "1"
features = ["fs", "rt", "signal"]

[build-dependencies]
anyhow = "1"
indexmap = "2"
"#;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Calls cargo in `folder` with the workspace's target folder.
fn cargo(folder: &Path, arguments: &[&str]) -> Output {
    // The example uses the tested versions of this workspace.
    fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let mut command = Command::new(env::var_os("CARGO").unwrap());
    command.current_dir(folder).env("CARGO_TARGET_DIR", target).args(arguments);
    command.output().unwrap()
}

/// Writes a copy of the example that asks for the features of `SHARED_FEATURES`, and returns its folder.
fn quickly_built_copy() -> PathBuf {
    let example = root().join("sdk/embed");
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("embed");
    fs::create_dir_all(copy.join("src")).unwrap();
    fs::copy(example.join("src/main.rs"), copy.join("src/main.rs")).unwrap();
    let manifest = fs::read_to_string(example.join("Cargo.toml")).unwrap();
    let platform = root().join("host/platform");
    let own = manifest.replace("../../host/platform", platform.to_str().unwrap());
    let own: String = own.lines().filter(|line| !line.starts_with("tokio =")).map(|line| format!("{line}\n")).collect();
    fs::write(copy.join("Cargo.toml"), own + SHARED_FEATURES.trim_start()).unwrap();
    copy
}

/// Returns the output of cargo in `folder`. Panics if cargo fails.
fn printed(folder: &Path, arguments: &[&str]) -> String {
    let output = cargo(folder, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn an_embedded_host_runs_a_flow_without_the_command_line_and_the_server() {
    let tree =
        printed(&root().join("sdk/embed"), &["tree", "--edges", "normal", "--prefix", "none", "--format", "{p}"]);
    let packages: Vec<_> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(packages.contains(&"flowcell-platform"));
    for name in LEFT_OUT {
        assert!(!packages.contains(&name), "a program that embeds Flowcell builds {name}");
    }
    let flow = root().join("flows/graph/triage.yaml");
    let profile = root().join("Cargo.toml");
    let run = ["run", "--quiet", "--config", profile.to_str().unwrap(), "--", flow.to_str().unwrap()];
    let copy = quickly_built_copy();
    let outputs = printed(&copy, &run);
    let expected = fs::read_to_string(root().join("flows/graph/triage.expected.json")).unwrap();
    let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(read(&outputs), read(&expected));
    // A store that needs a feature is refused by its name.
    let refused = cargo(&copy, &[run.as_slice(), &["mysql://127.0.0.1/flowcell"]].concat());
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && told.contains("lacks the feature `shared-stores`"), "{told}");
}
