//! Repeats a run in another version of its flow, which the caller has loaded.

use flowcell_contract::RunId;
use flowcell_flow::Start;
use flowcell_runtime::{FlowRunner, Migration, MoveOptions, OpenError, OtherVersion, Repeat, RetryPlan, RunOptions};

use super::{
    Host,
    called::{CallableFlows, simulating_with},
    content::Content,
    error::StartError,
    folder::{Folder, library_of},
    homes, pin, quota,
};
use crate::host::loaded::LoadedFlow;

/// The place that the flow of a run came from.
pub(crate) struct Origin {
    /// The name of the flow.
    pub(crate) name: String,
    /// The path of the flow's file, as messages show it.
    pub(crate) file: String,
    /// The folder of the file.
    pub(crate) folder: Folder,
    /// True if the run began with other settings than those in the file, such as the prefix of its sessions.
    pub(crate) has_settings: bool,
}

/// Returns the place that the flow of a run came from.
pub(crate) fn origin(host: &Host, run: &RunId) -> Result<Origin, StartError> {
    let (name, content) = content_of_run(host, run)?;
    let library = host.library.as_ref().map(|all| library_of(all, &host.tenant));
    let folder = content.home.as_ref().map_or_else(Folder::nowhere, |home| home.open(library, host.posted()));
    Ok(Origin { name, file: content.name, folder, has_settings: content.start != Start::default() })
}

/// Prepares a new run that repeats another with the same input in another version of its flow, see
/// [`FlowRunner::retry_in`].
pub(crate) fn retry_in(
    host: &Host,
    run: &RunId,
    flow: &LoadedFlow,
    repeat: Repeat,
    options: RunOptions,
) -> Result<FlowRunner, StartError> {
    let (library, other) = prepare(host, run, flow)?;
    quota::admitted(host, FlowRunner::retry_in(host.world(library), run, other, repeat, options)?)
}

/// Returns what [`retry_in`] would keep and run, and begins nothing.
pub(crate) fn plan_retry_in(
    host: &Host,
    run: &RunId,
    flow: &LoadedFlow,
    repeat: &Repeat,
) -> Result<RetryPlan, StartError> {
    let (library, other) = prepare(host, run, flow)?;
    Ok(FlowRunner::plan_retry_in(&host.world(library), run, &other, repeat)?)
}

/// Compares a run with another version of its flow, to which it may move.
pub(crate) fn migration(
    host: &Host,
    run: &RunId,
    flow: &LoadedFlow,
    options: &MoveOptions,
) -> Result<Migration, StartError> {
    let (library, other) = prepare(host, run, flow)?;
    let migration = Migration::prepare(&host.world(library), run, other, options)?;
    quota::check_tenant_enabled(host)?;
    Ok(migration)
}

/// Pins another version of a run's flow. A capability that was simulated for the run stays simulated.
fn prepare(host: &Host, run: &RunId, flow: &LoadedFlow) -> Result<(CallableFlows, OtherVersion), StartError> {
    flow.check_enabled()?;
    let (_, content) = content_of_run(host, run)?;
    let host = simulating_with(host, &content);
    let home = homes::bind(&host, flow);
    let library = CallableFlows::new(host, home);
    let other = OtherVersion { version: flow.version, flow: library.pin(flow) };
    Ok((library, other))
}

/// Returns the name of a run's flow, and its pinned content.
fn content_of_run(host: &Host, run: &RunId) -> Result<(String, Content), StartError> {
    let record = host.record(run).map_err(OpenError::Store)?.ok_or_else(|| OpenError::Unknown(run.clone()))?;
    let content = pin::content_of(host, &record.pin).map_err(OpenError::Pin)?;
    Ok((record.flow.to_string(), content))
}
