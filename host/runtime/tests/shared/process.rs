//! Another process: this test binary again. It executes the commands that the test writes to its standard input.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use flowcell_runtime::{
    ports::{Durable, Entry, Journal, Lease, Leases},
    sql::{Options, SharedStore},
};

use super::wait_for;
use crate::{
    flows::tenant,
    stores::units::{entry, unit},
};

const URL: &str = "FLOWCELL_TEST_STORE_URL";
const LEASE: &str = "FLOWCELL_TEST_STORE_LEASE_MS";
const UNFENCED: &str = "FLOWCELL_TEST_STORE_UNFENCED";
const FOLDER: &str = "FLOWCELL_TEST_STORE_FOLDER";

/// Another process, with its own connection to the shared store.
pub(crate) struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    pub(crate) fn start(url: &str, lease: Duration, unfenced: bool) -> Process {
        Process::start_in(None, url, lease, unfenced)
    }

    /// Starts a process that locks its file in this folder, as a process in another container does.
    pub(crate) fn start_in(folder: Option<&Path>, url: &str, lease: Duration, unfenced: bool) -> Process {
        let mut command = Command::new(std::env::current_exe().unwrap());
        // The path of this module begins with the name of the binary, which no name of a test does.
        let (_, module) = module_path!().split_once("::").unwrap();
        command.args(["--exact", &format!("{module}::what_the_other_process_does"), "--nocapture"]);
        command.env(URL, url).env(LEASE, lease.as_millis().to_string());
        if unfenced {
            command.env(UNFENCED, "1");
        }
        if let Some(folder) = folder {
            command.env(FOLDER, folder);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Process { child, input, output }
    }

    /// Sends a command to the process, and waits for its answer.
    pub(crate) fn command(&mut self, what: &str) -> String {
        writeln!(self.input, "{what}").unwrap();
        self.input.flush().unwrap();
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the process ended");
            // The test harness talks too.
            if let Some(said) = line.trim_end().split("=> ").nth(1) {
                return said.to_owned();
            }
        }
    }

    /// Sends a signal to the process, such as `STOP` or `CONT`.
    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The main function of the other process. In all other processes, this test does nothing.
#[test]
fn what_the_other_process_does() {
    let Ok(url) = std::env::var(URL) else { return };
    let lease = Duration::from_millis(std::env::var(LEASE).unwrap().parse().unwrap());
    let unfenced = std::env::var_os(UNFENCED).is_some();
    let mut options = Options { lease, unfenced, on_failure: |_| println!("=> failed"), ..Options::default() };
    if let Some(folder) = std::env::var_os(FOLDER) {
        options.presence_folder = Some(folder.into());
    }
    let store = SharedStore::open(&url, options).unwrap();
    let mut claimed: Vec<(String, Lease, Arc<Durable>)> = Vec::new();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["claim", run] => match store.claim(&tenant(), &run.into()).ok().flatten() {
                Some(lease) => {
                    claimed.retain(|(known, ..)| known != run);
                    claimed.push((run.to_owned(), lease, Arc::default()));
                    println!("=> claimed");
                }
                None => println!("=> driven"),
            },
            ["write", run, seq] => {
                let (_, _, durable) = claimed.iter().find(|(known, ..)| known == run).unwrap();
                let unit = unit(seq.parse().unwrap());
                let until = unit.next_seq();
                store.append(Entry { force: true, durable: durable.clone(), ..entry(run, unit) });
                let done = || (durable.next_seq() >= until || durable.is_refused()).then(|| durable.is_refused());
                println!("=> {}", if wait_for("the end of a write", done) { "refused" } else { "durable" });
            }
            // A program that outlives this process. The test ends it.
            ["tool"] => {
                #[allow(clippy::zombie_processes, reason = "it lives longer than this process")]
                let tool = Command::new("sleep").arg("60").stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
                println!("=> {}", tool.id());
            }
            _ => panic!("what is {line:?}?"),
        }
    }
}
