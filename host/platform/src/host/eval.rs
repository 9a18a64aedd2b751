//! Evaluates expressions of people: with the values of a recorded run, or with the input of a run that does not exist.
//!
//! The flow is checked with the expression in it, so that its names have the same meaning and the same errors as in the
//! flow. No node runs, no call leaves, and nothing is stored.

use std::sync::Arc;

use flowcell_contract::{Catalog, Failure, Json, Manifest, NodeId, NodeType, RunId};
use flowcell_flow::{Diagnostic, Probe, ProbeError, Probed, Source};
use flowcell_runtime::{
    OpenError, RunGraphs,
    fact::AboutRun,
    inputs::{Moment, ProbedValues, TaskPosition, Window},
    ports::{Pin, Runs},
};

use super::{
    Host,
    error::{ErrorList, InputError, StartError},
    folder::Folder,
    loaded::{CheckedInput, LoadedFlow},
    loading, pin,
    task_inputs::{self, run_at},
};

/// Maximum size of the text of an expression in bytes.
pub const MAX_EXPRESSION_BYTES: usize = 64 << 10;
/// The id of the run in an evaluation without a run.
const NO_RUN: &str = "eval";
/// The flow of an evaluation without a flow.
const NO_FLOW: &str = "flow: { name: eval }\nnodes: []\n";

/// The reason why an expression has no value.
#[derive(Debug, thiserror::Error)]
pub enum EvalError {
    /// The text is too long.
    #[error("the expression has {0} bytes; use at most {MAX_EXPRESSION_BYTES}")]
    TooLong(usize),
    /// The flow has errors.
    #[error("{}", ErrorList(.0))]
    Flow(Vec<Diagnostic>),
    /// The expression has errors.
    #[error("{}", ErrorList(.0))]
    Expression(Vec<Diagnostic>),
    /// The run did not come to the task. The text says why.
    #[error("{0}")]
    NoTask(String),
    /// The expression reads the output of this node, which exists only in a run.
    #[error("`{0}` has an output only in a run; name the run and one of its tasks")]
    NeedsRun(String),
    /// The input does not fit the flow.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The run cannot be read.
    #[error(transparent)]
    Run(#[from] StartError),
    /// The expression cannot be evaluated with these values.
    #[error("{0}")]
    Failed(Failure),
}

/// The value of an expression.
#[derive(Clone, Debug)]
pub struct Evaluated {
    /// The value.
    pub value: Json,
    /// The moment whose values the expression has read.
    pub moment: Moment,
    /// The warnings about the expression.
    pub warnings: Vec<Diagnostic>,
}

/// Performs [`Host::eval`].
pub(crate) fn alone(
    host: &Host,
    flow: Option<&LoadedFlow>,
    input: Json,
    expression: &str,
) -> Result<Evaluated, EvalError> {
    let probe = probe_at(None, expression)?;
    let empty;
    let flow = match flow {
        Some(flow) => flow,
        None => {
            empty = empty_flow(host)?;
            &empty
        }
    };
    // The checks of the flow and of the input charge the tenant themselves.
    let input = host.computing(flow.graph(), || flow.check_input(input))?;
    host.charged(|| with_input(host, input, &probe))
}

/// Evaluates an expression in place of the outputs of a flow.
fn with_input(host: &Host, input: CheckedInput<'_>, probe: &Probe) -> Result<Evaluated, EvalError> {
    let CheckedInput { flow, whole, .. } = input;
    let content = &flow.content;
    let catalog = catalog_of(host, flow);
    let probed = flowcell_flow::probe(&content.source(), &catalog, &**content, &content.start, probe);
    let Probed { graph, warnings } = probed.map_err(refused)?;
    let about = AboutRun {
        run: RunId::from(NO_RUN),
        tenant: host.tenant.clone(),
        version: flow.version,
        labels: graph.run_labels.clone(),
    };
    let values = ProbedValues::at_start(Arc::new(graph), whole, about, host.now());
    if let Some(node) = values.sources().first() {
        return Err(EvalError::NeedsRun((*node).to_owned()));
    }
    evaluated(&values, warnings)
}

/// Loads the flow of an evaluation without a flow.
fn empty_flow(host: &Host) -> Result<LoadedFlow, EvalError> {
    let source = Source { name: NO_RUN.into(), text: NO_FLOW.into() };
    let checked = loading::check_alone(host, &source, Folder::nowhere());
    checked.flow.ok_or(EvalError::Flow(checked.diagnostics))
}

/// Performs [`Host::eval_in_run`].
pub(crate) fn in_run(
    host: &Host,
    runs: Option<&dyn Runs>,
    run: &RunId,
    address: Option<&str>,
    expression: &str,
) -> Result<Evaluated, EvalError> {
    let (run, task) = match address {
        None => (run.clone(), None),
        Some(address) => {
            let children = |run: &RunId| runs.map_or(Ok(Vec::new()), |runs| runs.children(&host.tenant, run));
            let (run, task) = run_at(run, address, children).map_err(unreadable)?;
            let missing = || EvalError::NoTask(format!("the run `{run}` has called no run at `{address}`"));
            (run.clone(), Some(task.ok_or_else(missing)?))
        }
    };
    let node = task.map(|task| TaskPosition::parse(task).node);
    let probe = probe_at(node, expression)?;
    let record = host.record(&run).map_err(unreadable)?;
    let record = record.ok_or_else(|| StartError::from(OpenError::Unknown(run.clone())))?;
    // The expression may have errors in some of the versions that the run has used.
    let mut checks = Vec::new();
    let graphs = RunGraphs::load(&record, |pin: &Pin| {
        // The address has the id of the node, and the text of a version its name there.
        let names = checks.len().checked_sub(1).and_then(|moves| record.moves.get(moves)).map(|moved| &moved.names);
        let name = |id: &str| names?.get(&NodeId::from(id)).map(|name| name.as_str().to_owned());
        let named = probe.node.as_deref().map(|id| name(id).unwrap_or_else(|| id.to_owned()));
        let probe = Probe { node: named, ..probe.clone() };
        let content = pin::content_of(host, pin)?;
        let catalog = pin::catalog_of(host, &content)?;
        match flowcell_flow::probe(&content.source(), &catalog, &content, &content.start, &probe) {
            Ok(Probed { graph, warnings }) => {
                checks.push(Ok(warnings));
                Ok(Arc::new(graph))
            }
            Err(error) => {
                checks.push(Err(refused(error)));
                pin::pinned(host, pin)
            }
        }
    });
    let graphs = graphs.map_err(|failure| StartError::from(OpenError::Pin(failure)))?;
    if checks.iter().all(Result::is_err) {
        let mut errors = checks.into_iter().rev().filter_map(Result::err);
        let wrong = errors.find(|error| matches!(error, EvalError::Expression(_)));
        return Err(wrong.unwrap_or_else(|| absence(host, runs, &run, task)));
    }
    let of = (&host.tenant, &run);
    match ProbedValues::read(&*host.shared.journal, &graphs, &record, of, task).map_err(unreadable)? {
        Some(values) => evaluated(&values, checks.swap_remove(values.version())?),
        None => Err(absence(host, runs, &run, task)),
    }
}

/// Returns the error that says why a run has no values at a task.
fn absence(host: &Host, runs: Option<&dyn Runs>, run: &RunId, task: Option<&str>) -> EvalError {
    let Some(task) = task else { return EvalError::NoTask(format!("the run `{run}` has not begun")) };
    let window = Window { from: 0, limit: 1, end: u64::MAX, whole_call: None, bytes: 0 };
    let inputs = match task_inputs::read(host, runs, run, task, window) {
        Ok(inputs) => inputs,
        Err(error) => return error.into(),
    };
    let mut why = inputs.missing().unwrap_or_else(|| format!("the run `{run}` has no values at `{task}`"));
    if !inputs.elsewhere.is_empty() {
        why += &format!("; the addresses of the node include {}", inputs.elsewhere.join(", "));
    }
    EvalError::NoTask(why)
}

fn evaluated(values: &ProbedValues, warnings: Vec<Diagnostic>) -> Result<Evaluated, EvalError> {
    let value = values.evaluate().map_err(EvalError::Failed)?;
    Ok(Evaluated { value, moment: values.moment().clone(), warnings })
}

fn probe_at(node: Option<&str>, expression: &str) -> Result<Probe, EvalError> {
    match expression.len() > MAX_EXPRESSION_BYTES {
        true => Err(EvalError::TooLong(expression.len())),
        false => Ok(Probe { node: node.map(str::to_owned), expression: expression.to_owned() }),
    }
}

fn refused(error: ProbeError) -> EvalError {
    match error {
        ProbeError::Flow(found) => EvalError::Flow(found),
        ProbeError::Expression(found) => EvalError::Expression(found),
        ProbeError::UnknownNode => EvalError::NoTask("the flow does not have this node".into()),
    }
}

fn unreadable(error: flowcell_runtime::ports::StoreError) -> EvalError {
    StartError::from(OpenError::Store(error)).into()
}

/// Returns the node types of the host, with those of the packs that the flow itself names.
fn catalog_of(host: &Host, flow: &LoadedFlow) -> Catalog {
    let mut catalog = Catalog::clone(&host.catalog());
    for node_type in flow.graph.nodes.iter().map(|node| &node.node_type) {
        if let (Some(version), Some(pack)) = (&node_type.version, &node_type.pack) {
            let (name, nodes) = (node_type.name.clone(), vec![NodeType::clone(node_type)]);
            catalog.add(Manifest::new(name, version.clone(), nodes), pack);
        }
    }
    catalog
}
