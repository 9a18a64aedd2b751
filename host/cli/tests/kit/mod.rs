//! Runs, watches and kills the real program in its own folder.

#![allow(dead_code, reason = "not every test does everything")]

use std::{
    collections::BTreeMap,
    io::{self, BufRead, BufReader},
    ops::{Deref, DerefMut},
    panic,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use serde_json::Value;

/// Returns the root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns the factor of `FLOWCELL_TEST_SCALE`, by default 1.
pub(crate) fn scale() -> usize {
    std::env::var("FLOWCELL_TEST_SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1)
}

/// Does the work for all items, several at once.
pub(crate) fn for_each_at_once<T: Sync>(items: &[T], work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let take = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(item);
        }
    };
    thread::scope(|scope| {
        let cores = thread::available_parallelism().map_or(2, usize::from);
        let running: Vec<_> = (0..2 * cores).map(|_| scope.spawn(take)).collect();
        for thread in running {
            thread.join().unwrap_or_else(|why| panic::resume_unwind(why));
        }
    });
}

/// Returns whether a test can use this program. If the program is missing, prints the test as skipped, and fails if
/// `FLOWCELL_TEST_NEEDS` lists the program.
pub(crate) fn has_program(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&paths).any(|folder| folder.join(program).is_file());
    if !is_there {
        skip_without(program);
    }
    is_there
}

/// Prints the current test as skipped for the lack of a program. Fails if `FLOWCELL_TEST_NEEDS` lists the program.
pub(crate) fn skip_without(program: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let needed = std::env::var("FLOWCELL_TEST_NEEDS").unwrap_or_default();
    assert!(!needed.split(',').any(|needed| needed == program), "{test} needs `{program}`");
    eprintln!("skipped: {test}: `{program}` is missing");
}

/// The folder of compiled code that all tests share. The packs of the catalog take a minute to compile.
pub(crate) const CACHE: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/cache");

/// Returns a command of the program that is independent of the user's settings. Models follow a script.
pub(crate) fn flowcell(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowcell"));
    command.current_dir(folder).env("FLOWCELL_CACHE", CACHE);
    command.env("FLOWCELL_PROVIDERS", root().join("flows/agents/providers.yaml"));
    command.env("XDG_CONFIG_HOME", folder);
    for variable in [
        "FLOWCELL_CONFIG",
        "FLOWCELL_LOG",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "FLOWCELL_STORE",
        "FLOWCELL_STATE",
        "FLOWCELL_BLOBS",
        "FLOWCELL_MCP",
        "FLOWCELL_NOTIFY",
        "FLOWCELL_SIGN_IN",
        "FLOWCELL_ALLOW_PRIVATE",
        "FLOWCELL_SECRETS",
        "FLOWCELL_SERVICES",
        "FLOWCELL_SECRET_KEY",
        "FLOWCELL_FILES",
        "FLOWCELL_MAX_HTTP_FILE",
        "FLOWCELL_MAX_NODE_MEMORY",
        "FLOWCELL_MAX_LARGE_NODES",
        "FLOWCELL_MAX_NODE_OUTPUT",
        "FLOWCELL_MAX_NODE_TIMEOUT",
        "FLOWCELL_FLOWS",
        "FLOWCELL_LOCK",
        "FLOWCELL_TRUST",
        "FLOWCELL_TRUSTED_PROXY",
        "FLOWCELL_TLS_CERT",
        "FLOWCELL_TLS_KEY",
        "FLOWCELL_REGISTRY",
        "FLOWCELL_REGISTRY_REALMS",
        "FLOWCELL_REGISTRY_USER",
        "FLOWCELL_REGISTRY_PASSWORD",
        "FLOWCELL_OFFLINE",
        "FLOWCELL_SERVER",
        "RUN_FLOW",
    ] {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null());
    command
}

/// Runs a command. Returns its output.
pub(crate) fn output_of(folder: &Path, arguments: &[&str]) -> Output {
    flowcell(folder).args(arguments).output().unwrap()
}

/// Returns the text of standard error.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the text of standard output.
pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Reads the events of a run from its store.
pub(crate) fn events(folder: &Path, run: &str) -> Vec<Value> {
    let output = output_of(folder, &["runs", "events", run]);
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Reads the events by their sequence numbers.
pub(crate) fn numbered(folder: &Path, run: &str) -> BTreeMap<u64, Value> {
    events(folder, run).into_iter().map(|event| (event["seq"].as_u64().unwrap(), event)).collect()
}

/// Runs a command that writes events to standard output, and kills it after `count` events. Returns those events.
pub(crate) fn killed_after(command: &mut Command, count: usize) -> Vec<Value> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok).take(count);
    let seen: Vec<Value> = lines.map(|line| serde_json::from_str(&line).unwrap()).collect();
    // The process may have ended already.
    let _ = child.kill();
    child.wait().unwrap();
    seen
}

/// A process that is killed when the value is dropped, so that a test that fails leaves none.
pub(crate) struct Running(Option<Child>);

impl Running {
    /// Waits until the process has ended. Returns its output, without the parts whose pipes were taken.
    pub(crate) fn wait_with_output(mut self) -> io::Result<Output> {
        self.0.take().unwrap().wait_with_output()
    }
}

impl From<Child> for Running {
    fn from(child: Child) -> Running {
        Running(Some(child))
    }
}

impl Deref for Running {
    type Target = Child;

    fn deref(&self) -> &Child {
        self.0.as_ref().unwrap()
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Child {
        self.0.as_mut().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(child) = &mut self.0 else { return };
        // It may have ended.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// A process that owns the store until the value is dropped.
pub(crate) struct Owner(Running);

impl Owner {
    /// Starts the process, and waits until it has printed `says`.
    pub(crate) fn start(folder: &Path, arguments: &[&str], says: &str) -> Owner {
        let mut child = Running::from(flowcell(folder).args(arguments).stderr(Stdio::piped()).spawn().unwrap());
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains(says)), "it never said {says:?}");
        // Read the later output, so that the process does not block.
        std::thread::spawn(move || lines.count());
        Owner(child)
    }

    /// Returns the id of the process.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }
}

/// A small disk in memory, until the value is dropped.
pub(crate) struct Disk(tempfile::TempDir);

impl Disk {
    /// Mounts a disk of this size. Returns `None`, and prints a note, if this user may mount none.
    pub(crate) fn mount(mib: u32) -> Option<Disk> {
        let folder = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={mib}m"), "tmpfs"]).arg(folder.path()).stderr(Stdio::null());
        if mount.status().is_ok_and(|status| status.success()) {
            return Some(Disk(folder));
        }
        eprintln!("skipped: this user cannot mount a disk");
        None
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        _ = Command::new("umount").arg(self.path()).status();
    }
}
