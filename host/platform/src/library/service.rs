//! Runs the flows of a folder by name, and logs every step.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use flowcell_platform::{FlowService, Host, Json, RunOptions};
//!
//! # let folder = std::env::temp_dir().join(format!("flowcell-doc-{}", std::process::id()));
//! # let folder = folder.join("flows");
//! let flows = FlowService::open(Host::builder().build()?, &folder);
//! flows.create_flow(
//!     r#"{ "name": "greet", "inputs": ["who"],
//!          "steps": [{ "id": "say", "tool": "control.noop", "params": { "value": "$inputs.who" } }],
//!          "output": "$ctx.say.value" }"#,
//! )?;
//! let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! let result = runtime.block_on(flows.run_flow("greet", Json::parse(r#"{ "who": "Ada" }"#)?, RunOptions::default()))?;
//!
//! assert_eq!(result.outputs.to_text(), r#""Ada""#);
//! assert_eq!(flows.list_flows()?[0].name, "greet");
//! assert_eq!(flows.get_flow_runs("greet", 20)?[0].step_id, "say");
//! # std::fs::remove_dir_all(folder.parent().unwrap())?;
//! # Ok(())
//! # }
//! ```
//!
//! | module | contents |
//! |---|---|
//! | log | the log files, with one line per step |
//! | steps | the lines of the log, derived from a run's events |

mod log;
mod steps;

use std::{path::PathBuf, sync::Arc};

use flowcell_contract::{Json, RunId};
use flowcell_flow::{graph::Graph, script::is_script};
use flowcell_runtime::{FlowRunner, RunOptions, RunResult};

pub use self::log::StepLine;
use self::{
    log::StepLog,
    steps::{StepLogger, Steps},
};
use crate::{
    host::{Host, error::StartError},
    library::{FlowEntry, FlowLibrary, LibraryError, StoredFlow},
};

/// Maximum number of lines that one read of a log returns.
pub const MAX_LOG_LINES: usize = 1_000;

/// The flows of one tenant. A library stores the flows, and a host runs them. Each step of a run is logged in
/// `tool_logs`, a folder beside the library's folder.
pub struct FlowService {
    host: Host,
    library: FlowLibrary,
    log: Arc<StepLog>,
}

/// An error of a flow's run.
#[derive(Debug, thiserror::Error)]
pub enum FlowError {
    /// The flow does not exist, or cannot be loaded.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The run cannot start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The log of the flow's steps cannot be read or written.
    #[error("cannot use the log {}: {source}", file.display())]
    Log {
        /// The path of the log.
        file: PathBuf,
        /// The I/O error.
        source: std::io::Error,
    },
}

impl FlowService {
    /// Opens the flows of a folder, and the posted flows of the host's tenant.
    pub fn open(host: Host, folder: impl Into<PathBuf>) -> FlowService {
        let library = FlowLibrary::open(folder).with_posted_of(&host);
        let log = Arc::new(StepLog::beside(library.folder()));
        FlowService { host, library, log }
    }

    /// Returns the library that stores the flows.
    pub fn library(&self) -> &FlowLibrary {
        &self.library
    }

    /// Adds a flow of any dialect under the name in its text. Fails if the flow has errors or the name is taken.
    pub fn create_flow(&self, text: &str) -> Result<StoredFlow, LibraryError> {
        self.library.create(&self.host, text)
    }

    /// Returns all flows, sorted by name.
    pub fn list_flows(&self) -> Result<Vec<FlowEntry>, LibraryError> {
        self.library.list()
    }

    /// Returns the newest version of a flow as one JSON value. For a script it is the text.
    pub fn describe_flow(&self, name: &str) -> Result<Json, LibraryError> {
        let stored = self.library.get(name, None)?;
        if is_script(&stored.file.to_string_lossy()) {
            return Ok(Json::from(stored.text));
        }
        // A user may have added the file as YAML.
        let parsed = Json::parse(&stored.text)
            .or_else(|_| serde_yaml::from_str::<serde_json::Value>(&stored.text).map(Json::from));
        parsed.map_err(|error| {
            let source = std::io::Error::new(std::io::ErrorKind::InvalidData, error.to_string());
            LibraryError::Folder { folder: stored.file, source }
        })
    }

    /// Runs the newest version of a flow until it ends or parks. With the id of an existing run it continues that run.
    pub async fn run_flow(&self, name: &str, inputs: Json, options: RunOptions) -> Result<RunResult, FlowError> {
        let runner = self.prepare(name, inputs, options)?;
        runner.start_session();
        Ok(runner.run().await)
    }

    /// Prepares a run of the newest version of a flow. Each step is logged when it ends. Earlier steps that a dead
    /// process did not log are logged now.
    pub fn prepare(&self, name: &str, inputs: Json, options: RunOptions) -> Result<FlowRunner, FlowError> {
        let flow = self.library.load(&self.host, name, None)?;
        let mut runner = self.host.runner(&flow, RunOptions { input: inputs, ..options })?;
        let (graph, run) = (flow.graph().clone(), runner.run_id().clone());
        let mut steps = Steps::new(name, graph, run.clone());
        if self.host.knows(&run).map_err(|error| StartError::Open(error.into()))? {
            self.log_past(name, &run, &mut steps)?;
        }
        runner.attach(Arc::new(StepLogger::new(steps, self.log.clone())));
        Ok(runner)
    }

    /// Logs the steps of a run that another process has driven, unless they are already logged.
    pub fn log_run(&self, name: &str, run: &RunId) -> Result<(), FlowError> {
        let graph = self.host.graph_of_run(run)?;
        self.log_missing(name, graph, run)
    }

    /// Logs the steps of a run that are not logged yet.
    pub fn log_missing(&self, name: &str, graph: Arc<Graph>, run: &RunId) -> Result<(), FlowError> {
        let mut steps = Steps::new(name, graph, run.clone());
        self.log_past(name, run, &mut steps)
    }

    fn log_past(&self, name: &str, run: &RunId, steps: &mut Steps) -> Result<(), FlowError> {
        let mut past = Vec::new();
        self.host.each_event(run, 0, |event| {
            past.extend(steps.handle(&event));
            std::ops::ControlFlow::Continue(())
        })?;
        self.log.add_missing(name, run.as_str(), &past).map_err(|source| self.log_error(name, source))
    }

    /// Returns the last lines of a flow's log, the newest last. It also works for a deleted flow.
    pub fn get_flow_runs(&self, name: &str, limit: usize) -> Result<Vec<StepLine>, FlowError> {
        let known = self.library.get(name, None).map(drop);
        match self.log.last(name, limit.min(MAX_LOG_LINES)).map_err(|source| self.log_error(name, source))? {
            Some(lines) if !matches!(known, Err(LibraryError::BadName(_))) => Ok(lines),
            _ => known.map(|()| Vec::new()).map_err(FlowError::from),
        }
    }

    fn log_error(&self, name: &str, source: std::io::Error) -> FlowError {
        FlowError::Log { file: self.log.file(name), source }
    }
}
