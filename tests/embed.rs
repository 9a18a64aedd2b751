//! Builds a program outside the workspace that embeds the platform. The program must build without the command line and
//! the server, and must run a flow.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// Packages of the command line, the server and the optional features. A program that embeds the platform must not
/// depend on any of them.
const LEFT_OUT: [&str; 8] =
    ["axum", "clap", "flowcell", "flowcell-server", "indicatif", "opentelemetry_sdk", "sqlx", "utoipa"];

/// What the build scripts of dependencies have in the workspace with all default features.
const OF_BUILD_SCRIPTS: &str = "[build-dependencies]\nanyhow = \"1\"\nindexmap = \"2\"\n";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Calls cargo in `folder` with the workspace's target folder.
fn cargo(folder: &Path, arguments: &[&str]) -> Output {
    if folder != root() {
        // The example uses the tested versions of this workspace.
        fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let mut command = Command::new(env::var_os("CARGO").unwrap());
    command.current_dir(folder).env("CARGO_TARGET_DIR", target).args(arguments);
    command.output().unwrap()
}

/// Returns the packages of the build of `folder`, each with its features.
fn packages(folder: &Path, arguments: &[&str]) -> BTreeSet<(String, String)> {
    let tree = ["tree", "--offline", "--edges", "normal,build,dev", "--prefix", "none", "--format", "{p}|{f}"];
    let tree = printed(folder, &[&tree, arguments].concat());
    let lines = tree.lines().filter_map(|line| line.trim_end_matches(" (*)").split_once('|'));
    lines.map(|(package, features)| (package.replace(" (proc-macro)", ""), features.to_owned())).collect()
}

/// Adds dependencies on the packages that `folder` would build with other features than the workspace. With the same
/// features, cargo takes the packages, wasmtime among them, from the target folder of the workspace. The example itself
/// does not use them.
fn shared_packages(folder: &Path, workspace: &BTreeSet<(String, String)>, shared: &mut BTreeMap<String, String>) {
    for (package, _) in packages(folder, &[]).difference(workspace) {
        let Some((name, version)) = package.split_once(" v").filter(|(_, version)| !version.contains(' ')) else {
            continue;
        };
        // A package of the workspace has other features where a build script or a macro of the build uses it.
        let known =
            workspace.iter().filter(|(other, _)| *other == *package).flat_map(|(_, features)| features.split(','));
        let features: BTreeSet<_> = known.filter(|feature| !feature.is_empty()).collect();
        let features: Vec<_> = features.into_iter().collect();
        let entry = format!(
            "{{ package = \"{name}\", version = \"={version}\", default-features = false, features = {features:?} }}"
        );
        // Two versions of a package have two names.
        let is_other = |known: &String| !known.contains(&format!("\"={version}\""));
        let key = if shared.get(name).is_some_and(is_other) {
            format!("{name}-{}", version.replace(['.', '+'], "-"))
        } else {
            name.to_owned()
        };
        shared.insert(key, entry);
    }
}

/// Writes a copy of the example that shares the packages of the workspace, and returns its folder.
fn quickly_built_copy() -> PathBuf {
    let example = root().join("sdk/embed");
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("embed");
    fs::create_dir_all(copy.join("src")).unwrap();
    fs::copy(example.join("src/main.rs"), copy.join("src/main.rs")).unwrap();
    let manifest = fs::read_to_string(example.join("Cargo.toml")).unwrap();
    let platform = root().join("host/platform");
    let own = manifest.replace("../../host/platform", platform.to_str().unwrap());
    fs::write(copy.join("Cargo.toml"), &own).unwrap();
    let workspace = packages(&root(), &["--workspace"]);
    // A feature of one package asks for features of others, so that it takes some rounds.
    let mut shared = BTreeMap::new();
    for _ in 0..4 {
        shared_packages(&copy, &workspace, &mut shared);
        let is_own = |line: &&str| !line.split_once(" = ").is_some_and(|(key, _)| shared.contains_key(key));
        let own: String = own.lines().filter(is_own).map(|line| format!("{line}\n")).collect();
        let lines: String = shared.iter().map(|(key, entry)| format!("{key} = {entry}\n")).collect();
        fs::write(copy.join("Cargo.toml"), format!("{own}{lines}{OF_BUILD_SCRIPTS}")).unwrap();
    }
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
