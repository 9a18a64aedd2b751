//! Checks the outputs that people record for blocked tasks.

use flowcell_contract::RunId;
use flowcell_runtime::{HubError, OpenError, RunCommand, fact::Resolution, inputs::TaskPosition};

use super::Host;
use crate::host::{blocking::computing, error::StartError, loaded::check_whole_output, task_inputs::run_at};

/// If a command records an output for a blocked task, checks the output against the output schema of the task's node
/// type. The inner result is the refusal. Accepts every other command, and an output for an address without a node,
/// since the run checks these. The check waits for a permit for checks of inputs, and the tenant is charged for its
/// time.
pub(crate) fn check(host: &Host, run: &RunId, command: &RunCommand) -> Result<Result<(), HubError>, StartError> {
    let RunCommand::Resolve { task, resolution: Resolution::Output(output) } = command else { return Ok(Ok(())) };
    let children = |run: &RunId| host.shared.journal.children_of(&host.tenant, run);
    let (run, Some(task)) = run_at(run, task, children).map_err(OpenError::Store)? else { return Ok(Ok(())) };
    let graph = host.graph_of_run(&run)?;
    let id = TaskPosition::parse(task).node;
    // In the graph of a run that has moved, a node of the present version comes after one that it replaces.
    let Some(node) = graph.nodes.iter().rfind(|node| node.id.as_str() == id) else { return Ok(Ok(())) };
    let check = || check_whole_output(&node.node_type, output.json());
    let checked = computing(&host.shared.inputs, &host.shared.engine, &host.tenant, check);
    Ok(checked.map_err(|findings| {
        let (name, findings) = (&node.node_type.name, findings.join("; "));
        HubError::AnswerRefused(format!("the output does not match the output schema of `{name}`: {findings}"))
    }))
}
