//! Calls of tools that clients may take back.

use std::{collections::HashMap, sync::Arc};

use flowcell_contract::RunId;
use flowcell_runtime::RunCommand;
use parking_lot::Mutex;
use rmcp::model::RequestId;

use crate::http::{app::Request, identity::Scope, steer};

/// The calls that are under way or being taken back, each with its run once that has begun.
#[derive(Clone, Default)]
pub(super) struct Calls(pub(super) Arc<Mutex<HashMap<RequestId, Option<RunId>>>>);

impl Calls {
    /// A call has its run. False: the client has taken the call back meanwhile.
    pub(super) fn runs(&self, call: &RequestId, run: &RunId) -> bool {
        self.0.lock().get_mut(call).map(|known| *known = Some(run.clone())).is_some()
    }
}

/// Cancels the run of a call that was taken back, if whoever calls may do that. Else it goes on.
pub(super) async fn cancel(request: &Request, run: &RunId) {
    if !request.caller.scopes.has(Scope::RunControl) {
        return;
    }
    // One that has ended meanwhile needs no cancelling.
    if let Err(fault) = steer::tell(request, run, RunCommand::Cancel).await {
        tracing::debug!("a call that was taken back goes on: {}", fault.message());
    }
}
