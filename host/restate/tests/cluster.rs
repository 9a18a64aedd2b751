//! A cluster of three nodes, whose nodes, links and processes fail.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    time::{Duration, Instant},
};

use crate::{
    network::Cluster,
    nodes::{chain, ledger},
    processes::Process,
    proxy::Balancer,
    server::{free_port, tables, wait_until},
    supervisor::{Host, fresh},
};

/// The calls of a run, each of which lasts 50 ms.
const CALLS: usize = 20;
/// The runs that begin before each fault.
const RUNS: usize = 2;

/// A cluster with two processes behind a load balancer, and the runs of a test.
struct Trial {
    cluster: Cluster,
    balancer: Balancer,
    folder: tempfile::TempDir,
    ports: [u16; 2],
    urls: [String; 2],
    processes: Vec<Process>,
    /// The runs of repeatable calls, and those of calls that happen at most once.
    runs: [Vec<String>; 2],
}

impl Trial {
    /// Starts the processes on a cluster.
    fn on(cluster: Cluster) -> Trial {
        let (ports, tables) = ([free_port(), free_port()], tables().unwrap());
        let balancer = Balancer::new(&ports);
        let urls = ports.map(|port| format!("{}&url=http://127.0.0.1:{}", cluster.url(&tables, port), balancer.port));
        let folder = tempfile::tempdir().unwrap();
        let processes = urls.iter().map(|url| Process::start(url, folder.path())).collect();
        Trial { cluster, balancer, folder, ports, urls, processes, runs: Default::default() }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("ledger")
    }

    /// Begins runs in a process.
    fn begin_runs(&mut self, process: usize) {
        for (kind, function) in ["do", "once"].into_iter().enumerate() {
            let body = chain(&[format!("type: t.call, input: {{ function: {function}, ms: 50 }}").as_str(); CALLS]);
            for _ in 0..RUNS {
                let run = fresh(function);
                self.processes[process].accept(&run, &body);
                self.runs[kind].push(run);
            }
        }
    }

    /// Begins runs in both processes, and waits until they make calls.
    fn begin_all(&mut self) {
        let before = ledger(&self.file()).len();
        (0..2).for_each(|process| self.begin_runs(process));
        wait_until("the runs begin", || ledger(&self.file()).len() > before + RUNS);
    }

    /// Waits until further runs make calls. Runs that stand still need not go on.
    fn make_progress(&mut self, process: usize) {
        let before = ledger(&self.file()).len();
        self.begin_runs(process);
        wait_until("the runs go on", || ledger(&self.file()).len() >= before + RUNS * CALLS / 2);
    }

    fn restart(&mut self, process: usize, end: impl Fn(Process)) {
        let old = self.processes.remove(process);
        end(old);
        self.processes.insert(process, Process::start(&self.urls[process], self.folder.path()));
    }

    /// Waits until all runs have ended, and checks their calls.
    fn check(self) {
        let Trial { cluster, folder, urls, processes, runs, balancer, ports } = self;
        processes.into_iter().for_each(Process::end);
        balancer.use_only(&ports[..1]);
        let host = Host::at(&urls[0], folder.path());
        let done = |run: &str| {
            let facts = host.facts(run);
            facts.iter().filter(|fact| *fact == "CallEnded").count()
        };
        for run in &runs[0] {
            host.wait_for(run, "succeeded");
            assert_eq!(done(run), CALLS, "{run}");
        }
        // The outcome of a call is unknown if its process ended between the start and the end of the call.
        let (mut ended, mut unknown) = (0, 0);
        for run in &runs[1] {
            unknown += usize::from(host.wait_for_any(run, &["succeeded", "needs_attention"]) == "needs_attention");
            ended += done(run);
        }
        let lines = ledger(&folder.path().join("ledger"));
        let of = |function: &str| lines.iter().filter(|line| line.ends_with(function)).collect::<Vec<_>>();
        let repeatable: BTreeSet<_> = of(" do").into_iter().collect();
        assert_eq!(repeatable.len(), runs[0].len() * CALLS, "each operation has one key");
        let once = of(" once");
        assert_eq!(once.len(), once.iter().collect::<BTreeSet<_>>().len(), "no call happens twice");
        assert!(once.len() + unknown >= ended, "{ended} calls have ended, and {} have happened", once.len());
        drop(cluster);
    }
}

/// A fault of the matrix, and its end.
type Fault = fn(&mut Trial, usize);

/// The time that a link, a node or a process stands still: longer than all waits for a sign of life.
const STILL: Duration = Duration::from_secs(15);

fn stand_still() {
    std::thread::sleep(STILL);
}

const FAULTS: &[(&str, Fault)] = &[
    ("a node is killed", |trial, node| {
        trial.cluster.nodes[node].kill();
        trial.make_progress(0);
        trial.cluster.nodes[node].start();
    }),
    ("a node and a process are killed", |trial, node| {
        trial.cluster.nodes[node].kill();
        trial.restart(node % 2, Process::kill);
        trial.make_progress(0);
        trial.cluster.nodes[node].start();
    }),
    ("a node is separated", |trial, node| {
        trial.cluster.links.isolate(node, true);
        stand_still();
        trial.make_progress(0);
        trial.cluster.links.release();
    }),
    ("nothing reaches a node", |trial, node| {
        trial.cluster.links.isolate(node, false);
        stand_still();
        trial.make_progress(1);
        trial.cluster.links.release();
    }),
    ("a node stands still", |trial, node| {
        trial.cluster.nodes[node].pause();
        stand_still();
        trial.make_progress(0);
        trial.cluster.nodes[node].unpause();
    }),
    ("a process stands still", |trial, node| {
        let [still, other] = [node % 2, 1 - node % 2];
        trial.processes[still].signal("STOP");
        // As a load balancer does that asks for signs of life.
        trial.balancer.use_only(&[trial.ports[other]]);
        stand_still();
        trial.make_progress(other);
        trial.processes[still].signal("CONT");
        trial.balancer.use_only(&trial.ports);
    }),
    ("a node is upgraded", |trial, node| {
        trial.cluster.nodes[node].stop();
        trial.cluster.nodes[node].start();
        trial.make_progress(0);
    }),
    ("a process is upgraded", |trial, node| {
        trial.restart(node % 2, Process::end);
        trial.make_progress(1 - node % 2);
    }),
];

#[test]
fn runs_survive_faults_of_nodes_links_and_processes() {
    let Some(cluster) = Cluster::of(3, &[]) else { return };
    let mut trial = Trial::on(cluster);
    // Each node fails once. All faults of all nodes are in the matrix.
    for (node, fault) in
        ["a node and a process are killed", "a node is killed", "a process is upgraded"].iter().enumerate()
    {
        trial.begin_all();
        let (_, fault) = FAULTS.iter().find(|(name, _)| name == fault).unwrap();
        fault(&mut trial, node);
    }
    trial.check();
}

#[test]
#[ignore = "takes many minutes"]
fn matrix_of_faults() {
    // The words of one fault, to try it alone.
    let wanted = std::env::var("FLOWCELL_TEST_FAULT").unwrap_or_default();
    for (name, fault) in FAULTS.iter().filter(|(name, _)| name.contains(&wanted)) {
        let Some(cluster) = Cluster::of(3, &[]) else { return };
        let (began, mut trial) = (Instant::now(), Trial::on(cluster));
        for node in 0..3 {
            trial.begin_all();
            fault(&mut trial, node);
        }
        trial.check();
        eprintln!("{name}: {:.0} s", began.elapsed().as_secs_f64());
    }
}

#[test]
#[ignore = "takes a minute"]
fn matrix_of_full_disks() {
    // A node has 22 MiB of files at the start.
    let Some(cluster) = Cluster::of(3, &[("FLOWCELL_TEST_DISK", "400m")]) else { return };
    let mut trial = Trial::on(cluster);
    for node in 0..3 {
        trial.begin_all();
        trial.cluster.nodes[node].fill_disk();
        stand_still();
        trial.make_progress(0);
        trial.cluster.nodes[node].free_disk();
        trial.cluster.nodes[node].kill();
        trial.cluster.nodes[node].start();
    }
    trial.check();
}
