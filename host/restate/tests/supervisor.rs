//! A process of the cluster: a store with a small supervisor, which drives the runs whose invocations arrive.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use flowcell_contract::{Json, RunId};
use flowcell_restate::{Location, OpenRestateError, RestateStore};
use flowcell_runtime::{
    FlowRunner, HubError, OpenError, RunCommand, RunOptions, World,
    ports::{Filter, Journal, RunRow, Runs},
    remote,
    shared::SharedRuns,
    sql::{Journals, Options, SharedStore},
};
use tokio::runtime::Runtime;

use crate::{
    nodes::{Nodes, TextFlows, capabilities, options, pinned, tenant},
    server::{Server, free_port, tables},
};

/// The interval between two searches for runs.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

static IDS: AtomicU64 = AtomicU64::new(0);

/// Returns an id that no other run of the server has.
pub(crate) fn fresh(name: &str) -> String {
    format!("{name}-{}-{}", std::process::id(), IDS.fetch_add(1, Ordering::Relaxed))
}

/// Opens the store at a URL. The process gets no invocations yet.
pub(crate) fn open(url: &str) -> Result<RestateStore, OpenRestateError> {
    log();
    let location = Location::parse(url)?;
    let options = Options { journals: Journals::Elsewhere, presence_folder: None, ..Options::default() };
    let tables = SharedStore::open(&location.tables, options)?;
    RestateStore::open(location, Arc::new(tables))
}

/// Shows the log of this process if `FLOWCELL_TEST_LOG` has a filter.
pub(crate) fn log() {
    let filter = tracing_subscriber::EnvFilter::from_env("FLOWCELL_TEST_LOG");
    // Only the first call of a test binary sets the log.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init();
}

/// A process of the cluster.
pub(crate) struct Host {
    pub(crate) store: Arc<RestateStore>,
    pub(crate) world: Arc<World>,
    pub(crate) runtime: Runtime,
}

impl Host {
    /// Opens the store with tables of its own, and begins to drive. The world outside writes to a file in the folder.
    pub(crate) fn open(server: &Server, folder: &Path) -> Host {
        Host::at(&server.url(&tables().unwrap(), free_port()), folder)
    }

    /// Opens the store at a URL, and begins to drive.
    pub(crate) fn at(url: &str, folder: &Path) -> Host {
        let host = Host::without_endpoint(url, folder);
        host.store.serve(&host.world).unwrap();
        host.runtime.spawn(drive(host.store.clone(), host.world.clone()));
        host
    }

    /// Opens the store at a URL, as a command does that drives no runs.
    pub(crate) fn without_endpoint(url: &str, folder: &Path) -> Host {
        let store = Arc::new(open(url).unwrap());
        let mut world = World::in_memory(Arc::new(Nodes), Arc::new(TextFlows));
        (world.journal, world.leases, world.state) = (store.clone(), store.clone(), store.clone());
        world.blobs = store.blobs();
        world.capabilities = capabilities(&folder.join("ledger"));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        Host { store, world: Arc::new(world), runtime }
    }

    /// Accepts a new run.
    pub(crate) fn accept(&self, run: &str, body: &str) {
        self.try_accept(run, body).unwrap();
    }

    /// Accepts a new run, unless the cluster is away.
    pub(crate) fn try_accept(&self, run: &str, body: &str) -> Result<(), OpenError> {
        let runner = FlowRunner::new(pinned(body), self.world.clone(), options(run))?;
        self.runtime.block_on(runner.accept())
    }

    /// Accepts a new run with an id that is made for it. Returns the id.
    pub(crate) fn accept_new(&self, body: &str) -> String {
        let runner = FlowRunner::new(pinned(body), self.world.clone(), RunOptions::default()).unwrap();
        let run = runner.run_id().to_string();
        self.runtime.block_on(runner.accept()).unwrap();
        run
    }

    /// Returns the status of a run in lists.
    pub(crate) fn listed(&self, run: &str) -> Option<String> {
        let rows = self.store.runs(&tenant(), &Filter { limit: 1_000, ..Filter::default() }).unwrap();
        rows.into_iter().find(|row| row.run_id.as_str() == run).map(|row| row.status)
    }

    /// Waits until the store shows this status of a run.
    pub(crate) fn wait_for(&self, run: &str, status: &str) {
        self.wait_until(run, status, |row| row.status == status);
    }

    /// Waits until the store shows one of these statuses of a run. Returns it.
    pub(crate) fn wait_for_any(&self, run: &str, statuses: &[&str]) -> String {
        self.wait_until(run, &statuses.join(" or "), |row| statuses.contains(&row.status.as_str())).status
    }

    /// Waits until the store shows that a run waits for an answer.
    pub(crate) fn wait_for_question(&self, run: &str) {
        self.wait_until(run, "asking", |row| row.status == "parked" && row.waits_for.is_some());
    }

    fn wait_until(&self, run: &str, status: &str, reached: impl Fn(&RunRow) -> bool) -> RunRow {
        let began = Instant::now();
        loop {
            let row = self.store.run(&tenant(), &run.into()).unwrap();
            let is = match row {
                Some((row, _)) if reached(&row) => return row,
                row => row.map(|(row, _)| row.status).unwrap_or_default(),
            };
            assert!(began.elapsed() < Duration::from_secs(60), "the run is `{is}` and not `{status}`");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Sends a command to a run, as the platform does.
    pub(crate) fn command(&self, run: &str, command: RunCommand) -> Result<(), HubError> {
        let run = RunId::from(run);
        self.runtime.block_on(async {
            // A driver that is ending does not take the command, so it is sent again.
            while let Some(hub) = self.world.hubs.get(&tenant(), &run) {
                match hub.request(command.clone()).await {
                    Err(HubError::RunEnded) => tokio::time::sleep(Duration::from_millis(2)).await,
                    told => return told,
                }
            }
            match FlowRunner::resume(self.world.clone(), run.clone(), RunOptions::default()) {
                Ok(runner) => runner.ask(command).await,
                Err(_) => {
                    let id = remote::new_message_id();
                    remote::ask(&*self.store, &tenant(), &run, &id, &command).await.unwrap()
                }
            }
        })
    }

    /// Sends a command by the inbox, as another process does.
    pub(crate) fn mail(&self, run: &str, id: &str, command: &RunCommand) -> Result<(), HubError> {
        self.runtime.block_on(remote::ask(&*self.store, &tenant(), &run.into(), id, command)).unwrap()
    }

    /// Returns the names of the facts of a run.
    pub(crate) fn facts(&self, run: &str) -> Vec<String> {
        let units = self.store.read(&tenant(), &run.into(), 0, usize::MAX >> 1).unwrap();
        let mut next = 0;
        for unit in &units {
            assert_eq!(unit.first_seq, next, "units are missing");
            next = unit.next_seq();
        }
        let facts = units.iter().flat_map(|unit| unit.facts.iter());
        let name = |text: String| text.split([' ', '(', '{']).next().unwrap_or_default().to_owned();
        facts.map(|fact| name(format!("{fact:?}"))).collect()
    }

    pub(crate) fn answer(text: &str) -> RunCommand {
        RunCommand::reply("n1", Json::from(text), Default::default())
    }
}

/// Drives the runs that wait for a supervisor.
async fn drive(store: Arc<RestateStore>, world: Arc<World>) {
    loop {
        for offer in store.work(&tenant(), 0, 1_000).unwrap() {
            let world = world.clone();
            tokio::spawn(async move {
                let patience = Some(Duration::from_millis(50));
                let options = RunOptions { patience, without_events: true, ..RunOptions::default() };
                if let Ok(runner) = FlowRunner::resume(world, offer.run.clone(), options) {
                    runner.start_session();
                    drop(offer);
                    runner.run().await;
                }
            });
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}
