//! A tenant with flows in a folder. Its triggers start flows only when a test calls [`examine`] with a time.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use flowcell::{
    FlowLibrary, FlowRunner, Host, RunId, RunOptions, RunResult,
    contract::Tenant,
    supervisor::AdmitError,
    triggers::{TriggerTenants, Triggers},
};
use futures_util::future::BoxFuture;

/// The tenant `local` and its flows.
pub(crate) struct Household {
    pub(crate) host: Host,
    flows: PathBuf,
}

impl TriggerTenants for Household {
    fn tenants(&self) -> Vec<Tenant> {
        vec![Tenant::local()]
    }

    fn host(&self, _: &Tenant) -> Option<Host> {
        Some(self.host.clone())
    }

    fn library(&self, _: &Tenant) -> FlowLibrary {
        FlowLibrary::open(&self.flows)
    }

    fn admit(&self, _: Tenant, runner: FlowRunner) -> BoxFuture<'_, Result<(), AdmitError>> {
        Box::pin(async move { Ok(runner.accept().await?) })
    }
}

/// Writes a flow with these triggers into the folder `flows` below this one.
pub(crate) fn write(folder: &Path, name: &str, triggers: &str) {
    let flows = folder.join("flows");
    fs::create_dir_all(&flows).unwrap();
    let text = format!(
        "flow: {{ name: {name}, triggers: [{triggers}] }}\nnodes: [{{ id: say, type: control.noop, input: {{ value: \"{{{{ flow.input.trigger }}}}\" }} }}]\n"
    );
    fs::write(flows.join(format!("{name}.yaml")), text).unwrap();
}

/// Opens the store of a folder, as a new process would.
pub(crate) async fn process(folder: &Path) -> (Arc<Household>, Triggers) {
    loop {
        match builder().state_dir(folder.join("store")).build() {
            Ok(host) => return over(host, folder),
            // The previous host releases the store once its tasks have been polled to their ends.
            Err(flowcell::Error::Store(flowcell::OpenStoreError::Owned { .. })) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Returns the tenant and its triggers for a host, with the flows of a folder.
pub(crate) fn over(host: Host, folder: &Path) -> (Arc<Household>, Triggers) {
    let household = Arc::new(Household { host, flows: folder.join("flows") });
    (household.clone(), Triggers::new(household))
}

pub(crate) fn builder() -> flowcell::HostBuilder {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
    Host::builder().cache_dir(cache).instances(4)
}

/// Parses a time to milliseconds since 1970.
pub(crate) fn at(text: &str) -> u64 {
    text.parse::<jiff::Timestamp>().unwrap().as_millisecond() as u64
}

impl Household {
    /// Drives an accepted run to its end.
    pub(crate) async fn drive(&self, run: &RunId) -> RunResult {
        let runner = self.host.resume(run, RunOptions::default()).unwrap();
        runner.start_session();
        runner.run().await
    }

    /// Returns the number of runs.
    pub(crate) fn count(&self) -> usize {
        let filter = flowcell::Filter { limit: 1_000, ..flowcell::Filter::default() };
        self.host.runs().unwrap().runs(&Tenant::local(), &filter).unwrap().len()
    }
}

/// Starts the flows of all triggers that are due at the time `now`, in milliseconds since 1970. Returns the ids of the
/// started runs.
pub(crate) async fn examine(triggers: &Triggers, now: u64) -> Vec<String> {
    let started = triggers.look(&Tenant::local(), now).await.unwrap();
    started.iter().map(ToString::to_string).collect()
}
