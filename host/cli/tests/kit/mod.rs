//! The real program in a folder of its own: told to do something, watched, killed.

#![allow(dead_code, reason = "not every test does everything")]

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use serde_json::Value;

/// The root of the tree.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// How many times as often faults happen as usual.
pub(crate) fn scale() -> usize {
    std::env::var("FLOWCELL_TEST_SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1)
}

/// The program, which knows nothing of whoever runs the tests. Models answer by a script.
pub(crate) fn flowcell(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowcell"));
    command.current_dir(folder).env("FLOWCELL_CACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache"));
    command.env("FLOWCELL_PROVIDERS", root().join("flows/agents/providers.yaml"));
    command.env("XDG_CONFIG_HOME", folder);
    for variable in [
        "FLOWCELL_CONFIG",
        "FLOWCELL_LOG",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "FLOWCELL_STORE",
        "FLOWCELL_STATE",
        "FLOWCELL_MCP",
        "FLOWCELL_ALLOW_PRIVATE",
        "FLOWCELL_SECRETS",
        "FLOWCELL_SERVICES",
        "FLOWCELL_SECRET_KEY",
        "FLOWCELL_FILES",
        "FLOWCELL_FLOWS",
        "FLOWCELL_LOCK",
        "FLOWCELL_TRUST",
        "FLOWCELL_REGISTRY",
        "FLOWCELL_REGISTRY_REALMS",
        "FLOWCELL_REGISTRY_USER",
        "FLOWCELL_REGISTRY_PASSWORD",
        "FLOWCELL_OFFLINE",
        "RUN_FLOW",
    ] {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null());
    command
}

/// What comes of a command.
pub(crate) fn done(folder: &Path, arguments: &[&str]) -> Output {
    flowcell(folder).args(arguments).output().unwrap()
}

/// What it said to people.
pub(crate) fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What it said to programs.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The events of a run, as its store tells them.
pub(crate) fn events(folder: &Path, run: &str) -> Vec<Value> {
    let output = done(folder, &["runs", "events", run]);
    assert!(output.status.success(), "{}", told(&output));
    said(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The same by their numbers.
pub(crate) fn numbered(folder: &Path, run: &str) -> BTreeMap<u64, Value> {
    events(folder, run).into_iter().map(|event| (event["seq"].as_u64().unwrap(), event)).collect()
}

/// Runs a command that writes events to standard output until it has told so many, and kills it then. Answers those
/// events.
pub(crate) fn killed_after(command: &mut Command, count: usize) -> Vec<Value> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok).take(count);
    let seen: Vec<Value> = lines.map(|line| serde_json::from_str(&line).unwrap()).collect();
    // It may have ended by itself.
    let _ = child.kill();
    child.wait().unwrap();
    seen
}

/// A process that has the store, until it is dropped.
pub(crate) struct Owner(Child);

impl Owner {
    /// Starts it, and waits until it has said this.
    pub(crate) fn start(folder: &Path, arguments: &[&str], says: &str) -> Owner {
        let mut child = flowcell(folder).args(arguments).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains(says)), "it never said {says:?}");
        // What it says later must not fill the pipe.
        std::thread::spawn(move || lines.count());
        Owner(child)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
