//! The messages between the processes of a store about live events.

use flowcell_contract::{Json, RunId, Tenant};
use flowcell_runtime::{LiveEvent, shared::Relay};
use serde::{Deserialize, Serialize};

use super::Key;

/// A message to all processes of a store.
#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub(super) enum RelayMessage {
    /// A process has subscribers of a run that it does not drive. `next`: the number of the first event that they have
    /// not read.
    Interest { tenant: Tenant, run: RunId, next: u64 },
    /// The store has an event of a run.
    Recorded { tenant: Tenant, run: RunId, seq: u64, kind: Box<str> },
    /// A live event of a run.
    Live(LiveMessage),
}

/// A live event for the subscribers of a run.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LiveMessage {
    tenant: Tenant,
    run: RunId,
    /// The run whose event it is, if that is a run below `run`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    below: Option<RunId>,
    ts: u64,
    kind: Box<str>,
    data: Json,
}

impl LiveMessage {
    pub(super) fn new(run: &RunId, event: &LiveEvent) -> LiveMessage {
        let LiveEvent { ts, tenant, run_id, kind, data } = event.clone();
        LiveMessage { tenant, run: run.clone(), below: (run_id != *run).then_some(run_id), ts, kind, data }
    }

    /// Returns the event, and the run whose subscribers receive it. Returns `None` for an event of a run that is not below
    /// this one.
    pub(super) fn into_event(self) -> Option<(Key, LiveEvent)> {
        let LiveMessage { tenant, run, below, ts, kind, data } = self;
        if below.as_ref().is_some_and(|below| !is_below(&run, below)) {
            return None;
        }
        let event = LiveEvent { ts, tenant: tenant.clone(), run_id: below.unwrap_or_else(|| run.clone()), kind, data };
        Some(((tenant, run), event))
    }
}

/// Returns whether a run was called by another one. The id of a called run begins with that of its caller and a point.
fn is_below(run: &RunId, below: &RunId) -> bool {
    below.as_str().strip_prefix(run.as_str()).is_some_and(|rest| rest.starts_with('.'))
}

impl RelayMessage {
    /// Parses a message. Returns `None` for one that this version does not know.
    pub(super) fn parse(text: &str) -> Option<RelayMessage> {
        serde_json::from_str(text).ok()
    }

    /// Sends the message. It is lost if it is too large, or if too many wait.
    pub(super) fn send_by(&self, relay: &dyn Relay) {
        // Messages consist of JSON values, so they can always be serialized.
        let text = serde_json::to_string(self).unwrap_or_default();
        relay.send(text);
    }
}
