//! Checks the outputs that people record for blocked tasks.

use flowcell_contract::{Json, RunId};
use flowcell_runtime::{HubError, OpenError, RunCommand, fact::Resolution};

use super::Host;
use crate::host::{error::StartError, loaded::check_whole_output, task_inputs::run_at};

impl Host {
    /// Refuses a resolution whose output does not match the output schema of the node type. Other commands, and
    /// addresses without a node, are left to the run.
    pub(crate) async fn check_resolution(
        &self,
        run: &RunId,
        command: &RunCommand,
    ) -> Result<Result<(), HubError>, StartError> {
        let RunCommand::Resolve { task, resolution: Resolution::Output(output) } = command else { return Ok(Ok(())) };
        let (host, run, task, output) = (self.clone(), run.clone(), task.clone(), output.clone());
        // A schema may take as long as its budget, so the check does not hold a runtime thread.
        let checking = tokio::task::spawn_blocking(move || host.check_resolved(&run, &task, output.json()));
        match checking.await {
            Ok(checked) => checked,
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        }
    }

    fn check_resolved(&self, run: &RunId, address: &str, output: &Json) -> Result<Result<(), HubError>, StartError> {
        let children = |run: &RunId| self.shared.journal.children_of(&self.tenant, run);
        let (run, Some(task)) = run_at(run, address, children).map_err(OpenError::Store)? else { return Ok(Ok(())) };
        let graph = self.graph_of_run(&run)?;
        let id = task.rsplit_once('.').map_or(task, |(_, id)| id);
        let Some(node) = graph.nodes.iter().find(|node| node.id.as_str() == id) else { return Ok(Ok(())) };
        Ok(check_whole_output(&node.node_type, output).map_err(|findings| {
            let (name, findings) = (&node.node_type.name, findings.join("; "));
            HubError::AnswerRefused(format!("the output does not match the output schema of `{name}`: {findings}"))
        }))
    }
}
