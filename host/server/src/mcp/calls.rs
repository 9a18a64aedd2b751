//! Tool calls that clients may cancel.

use std::{collections::HashMap, sync::Arc};

use flowcell_contract::RunId;
use flowcell_runtime::RunCommand;
use parking_lot::Mutex;
use rmcp::model::RequestId;

use crate::http::{app::Request, identity::Scope, steer};

/// The tool calls of a client that are in progress or being cancelled. The value is the run of the tool call, or `None`
/// if the run has not started yet.
#[derive(Clone, Default)]
pub(super) struct Calls(pub(super) Arc<Mutex<HashMap<RequestId, Option<RunId>>>>);

impl Calls {
    /// Records the run of a tool call. Returns false if the client has cancelled the tool call in the meantime.
    pub(super) fn set_run(&self, call: &RequestId, run: &RunId) -> bool {
        self.0.lock().get_mut(call).map(|known| *known = Some(run.clone())).is_some()
    }
}

/// Cancels the run of a cancelled tool call if the caller has the scope `run:control`. Otherwise the run continues.
pub(super) async fn cancel(request: &Request, run: &RunId) {
    if !request.caller.scopes.has(Scope::RunControl) {
        return;
    }
    // A run that has ended in the meantime does not need to be cancelled.
    if let Err(error) = steer::send_command(request, run, RunCommand::Cancel).await {
        tracing::debug!("a cancelled call continues: {}", error.message());
    }
}
