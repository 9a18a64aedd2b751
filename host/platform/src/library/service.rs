//! The flows of a folder, run by their names, with a log of every step.
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
//! | room | what it is |
//! |---|---|
//! | log | the files of the log: lines appended, once each, and read from the end |
//! | steps | which lines follow from the events of a run |

mod log;
mod steps;

use std::{path::PathBuf, sync::Arc};

use flowcell_contract::{Json, RunId};
use flowcell_flow::{graph::Graph, script::is_script};
use flowcell_runtime::{FlowRunner, RunOptions, RunResult};

pub use self::log::StepLine;
use self::{
    log::StepLog,
    steps::{Following, Steps},
};
use crate::{
    host::{Host, error::StartError},
    library::{FlowEntry, FlowLibrary, LibraryError, StoredFlow},
};

/// Lines of a log that are read at a time, at most.
pub const FLOW_RUNS: usize = 1_000;

/// The flows of one tenant: kept in a library, run by a host, logged step by step in `tool_logs` beside the library's
/// folder.
pub struct FlowService {
    host: Host,
    library: FlowLibrary,
    log: Arc<StepLog>,
}

/// Why a flow was not run.
#[derive(Debug, thiserror::Error)]
pub enum FlowError {
    /// It is not there, or cannot be loaded.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// It cannot begin.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The log of its steps cannot be read.
    #[error("cannot use the log {}: {source}", file.display())]
    Log {
        /// Which.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl FlowService {
    /// The flows of a folder.
    pub fn open(host: Host, folder: impl Into<PathBuf>) -> FlowService {
        let library = FlowLibrary::open(folder);
        let log = Arc::new(StepLog::beside(library.folder()));
        FlowService { host, library, log }
    }

    /// Where they are kept.
    pub fn library(&self) -> &FlowLibrary {
        &self.library
    }

    /// Adds a flow, whose text is of any dialect and names it. A name that is taken is refused.
    pub fn create_flow(&self, text: &str) -> Result<StoredFlow, LibraryError> {
        self.library.create(&self.host, text)
    }

    /// All flows, by name.
    pub fn list_flows(&self) -> Result<Vec<FlowEntry>, LibraryError> {
        self.library.list()
    }

    /// What the newest version of a flow says, as one JSON value: of a script its text.
    pub fn describe_flow(&self, name: &str) -> Result<Json, LibraryError> {
        let stored = self.library.get(name, None)?;
        if is_script(&stored.file.to_string_lossy()) {
            return Ok(Json::from(stored.text));
        }
        // What is no JSON is YAML, as a file that somebody has put there may be.
        let parsed = Json::parse(&stored.text)
            .or_else(|_| serde_yaml::from_str::<serde_json::Value>(&stored.text).map(Json::from));
        parsed.map_err(|error| {
            let source = std::io::Error::new(std::io::ErrorKind::InvalidData, error.to_string());
            LibraryError::Folder { folder: stored.file, source }
        })
    }

    /// Runs the newest version of a flow to its end, or until it parks. With the id of a run that exists it goes on with
    /// that one.
    pub async fn run_flow(&self, name: &str, inputs: Json, options: RunOptions) -> Result<RunResult, FlowError> {
        let runner = self.prepare(name, inputs, options)?;
        runner.start_session();
        Ok(runner.run().await)
    }

    /// Prepares a run of the newest version of a flow. Its steps are logged as they end; those that ended before, in a
    /// process that did not live to log them, are logged now.
    pub fn prepare(&self, name: &str, inputs: Json, options: RunOptions) -> Result<FlowRunner, FlowError> {
        let flow = self.library.load(&self.host, name, None)?;
        let mut runner = self.host.runner(&flow, RunOptions { input: inputs, ..options })?;
        let (graph, run) = (flow.graph().clone(), runner.run_id().clone());
        let mut steps = Steps::new(name, graph, run.clone());
        if self.host.knows(&run).map_err(|error| StartError::Open(error.into()))? {
            self.log_past(name, &run, &mut steps)?;
        }
        runner.attach(Arc::new(Following::new(steps, self.log.clone())));
        Ok(runner)
    }

    /// Logs the steps of a run of a flow that another process has driven, unless they are logged already.
    pub fn log_run(&self, name: &str, run: &RunId) -> Result<(), FlowError> {
        let graph = self.host.graph_of_run(run)?;
        self.log_missing(name, graph, run)
    }

    /// Logs those steps of a run that are not logged yet.
    pub fn log_missing(&self, name: &str, graph: Arc<Graph>, run: &RunId) -> Result<(), FlowError> {
        let mut steps = Steps::new(name, graph, run.clone());
        self.log_past(name, run, &mut steps)
    }

    fn log_past(&self, name: &str, run: &RunId, steps: &mut Steps) -> Result<(), FlowError> {
        let mut past = Vec::new();
        self.host.each_event(run, 0, |event| {
            past.extend(steps.follow(&event));
            std::ops::ControlFlow::Continue(())
        })?;
        self.log.add_missing(name, run.as_str(), &past).map_err(|source| self.log_error(name, source))
    }

    /// The latest lines of the log of a flow's steps, the latest last; also of a flow that is not there any more.
    pub fn get_flow_runs(&self, name: &str, limit: usize) -> Result<Vec<StepLine>, FlowError> {
        let known = self.library.get(name, None).map(drop);
        match self.log.last(name, limit.min(FLOW_RUNS)).map_err(|source| self.log_error(name, source))? {
            Some(lines) if !matches!(known, Err(LibraryError::BadName(_))) => Ok(lines),
            _ => known.map(|()| Vec::new()).map_err(FlowError::from),
        }
    }

    fn log_error(&self, name: &str, source: std::io::Error) -> FlowError {
        FlowError::Log { file: self.log.file(name), source }
    }
}
