//! Processes that are killed while they drive.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use flowcell_restate::OpenRestateError;
use flowcell_runtime::{OpenError, ports::StateStore};

use crate::{
    nodes::{chain, ledger, tenant},
    server::{free_port, own_server, server, tables, wait_until},
    supervisor::{Host, fresh, open},
};

const URL: &str = "FLOWCELL_TEST_RESTATE_URL";
const FOLDER: &str = "FLOWCELL_TEST_RESTATE_FOLDER";

/// Another process: this test binary again.
pub(crate) struct Process {
    child: Child,
    /// `None` when the process ends.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Process {
    pub(crate) fn start(url: &str, folder: &Path) -> Process {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "processes::what_the_other_process_does", "--nocapture"]);
        command.env(URL, url).env(FOLDER, folder);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut process = Process { child, input, output };
        assert_eq!(process.answer(), "ready");
        process
    }

    /// Has the process accept a run. Asks again while the cluster is away, as clients do.
    pub(crate) fn accept(&mut self, run: &str, body: &str) {
        wait_until("the run is accepted", || {
            writeln!(self.input.as_ref().unwrap(), "{run} {}", body.replace('\n', "|")).unwrap();
            self.answer() == "accepted"
        });
    }

    fn answer(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the process ended");
            if let Some(said) = line.trim_end().split("=> ").nth(1) {
                return said.to_owned();
            }
        }
    }

    pub(crate) fn kill(self) {
        drop(self);
    }

    /// Ends the process in good order.
    pub(crate) fn end(mut self) {
        // The process ends at the end of its input.
        self.input = None;
        self.child.wait().unwrap();
    }

    /// Sends a signal to the process.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }
}

/// A test that fails leaves no process.
impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The main function of the other process. In all other processes, this test does nothing.
#[test]
fn what_the_other_process_does() {
    let Ok(url) = std::env::var(URL) else { return };
    let folder = std::env::var_os(FOLDER).unwrap();
    let host = Host::at(&url, Path::new(&folder));
    println!("=> ready");
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (run, body) = line.split_once(' ').unwrap();
        match host.try_accept(run, &body.replace('|', "\n")) {
            Ok(()) => println!("=> accepted"),
            Err(OpenError::Store(error)) if error.is_outage() => {
                eprintln!("the run {run} is not accepted: {error}");
                println!("=> refused");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_run_goes_on_after_its_process_was_killed() {
    let Some(server) = server() else { return };
    let (folder, url) = (tempfile::tempdir().unwrap(), server.url(&tables().unwrap(), free_port()));
    let file = folder.path().join("ledger");
    let body = chain(&["type: t.call, input: { ms: 30 }"; 12]);
    let run = fresh("killed");
    let mut process = Process::start(&url, folder.path());
    process.accept(&run, &body);
    for kills in 1..=3 {
        wait_until("calls are made", || ledger(&file).len() >= kills * 3);
        process.kill();
        process = Process::start(&url, folder.path());
    }
    process.kill();
    let host = Host::at(&url, folder.path());
    host.wait_for(&run, "succeeded");
    assert_eq!(host.listed(&run).as_deref(), Some("succeeded"));
    let facts = host.facts(&run);
    assert_eq!(facts.iter().filter(|fact| *fact == "CallEnded").count(), 12, "{facts:?}");
    let keys: std::collections::BTreeSet<_> = ledger(&file).into_iter().collect();
    assert_eq!(keys.len(), 12, "each operation has one key");
}

#[test]
fn state_agrees_with_the_runs_after_kills() {
    let Some(server) = own_server() else { return };
    let (folder, url) = (tempfile::tempdir().unwrap(), server.url(&tables().unwrap(), free_port()));
    let file = folder.path().join("ledger");
    let runs: Vec<_> = (0..3).map(|_| fresh("counts")).collect();
    let mut process = Process::start(&url, folder.path());
    for run in &runs {
        process
            .accept(run, &chain(&["type: t.count", "type: t.call", "type: t.count", "type: t.call", "type: t.count"]));
    }
    for kills in 1..=2 {
        wait_until("calls are made", || ledger(&file).len() >= kills * 2);
        process.kill();
        process = Process::start(&url, folder.path());
    }
    process.kill();
    let host = Host::at(&url, folder.path());
    runs.iter().for_each(|run| host.wait_for(run, "succeeded"));
    // The nodes read and write in two steps, so runs at the same time may write the same number.
    let (_, version) = host.store.get(&tenant(), "f", "count").unwrap().unwrap();
    assert_eq!(version, 9, "each task has written once");
}

#[test]
fn an_endpoint_refuses_requests_without_a_signature() {
    let Some(server) = own_server() else { return };
    let url = server.url(&tables().unwrap(), free_port());
    let key = "publickeyv1_ChjENKeMvCtRnqG2mrBK1HmPKufgFUc98K8B3ononQvp";
    let locked = open(&format!("{url}&key={key}")).unwrap();
    let refused = locked.listen().err();
    assert!(matches!(refused, Some(OpenRestateError::Register(_))), "the cluster does not sign: {refused:?}");
    let refused = open(&format!("{url}&listen=0.0.0.0:{}", free_port())).err();
    assert!(matches!(refused, Some(OpenRestateError::Unsigned(_))), "{refused:?}");
    let refused = open(&format!("{url}&key=publickeyv1_wrong")).err();
    assert!(matches!(refused, Some(OpenRestateError::Key(_))), "{refused:?}");
}

#[test]
fn a_once_call_of_a_killed_process_is_not_repeated() {
    let Some(server) = server() else { return };
    let (folder, url) = (tempfile::tempdir().unwrap(), server.url(&tables().unwrap(), free_port()));
    let file = folder.path().join("ledger");
    let run = fresh("once");
    let mut process = Process::start(&url, folder.path());
    process.accept(&run, &chain(&["type: t.call, input: { function: once, ms: 60000 }", "type: t.noop"]));
    wait_until("the call is made", || !ledger(&file).is_empty());
    process.kill();
    let host = Host::at(&url, folder.path());
    host.wait_for(&run, "needs_attention");
    assert_eq!(ledger(&file).len(), 1);
}
