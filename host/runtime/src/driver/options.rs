//! The identity of a driven run, and the choices of the caller for one drive.

use std::{collections::HashMap, sync::Arc};

use flowcell_contract::{Json, RunId, Tenant, Value};
use flowcell_flow::graph::NodeIx;

use super::early::EarlyAnswers;
use crate::ports::Record;

/// The outputs of nodes of the flow itself that do not run, because the run keeps them from the run that it repeats.
pub(crate) type KeptOutputs = HashMap<NodeIx, Value>;

/// The identity of a driven run.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) tenant: Tenant,
    pub(crate) run_id: RunId,
    /// The number of runs above this one in the run tree.
    pub(crate) depth: u32,
    /// The run that called this one, if it is a child.
    pub(crate) parent: Option<RunId>,
    /// The prefix of the idempotency keys of the run's calls.
    pub(crate) root: Arc<str>,
}

impl Identity {
    pub(super) fn new(tenant: Tenant, run_id: RunId, record: &Record) -> Identity {
        Identity { tenant, run_id, depth: record.depth, parent: record.parent.clone(), root: record.root.clone() }
    }
}

/// The choices of the caller for one drive.
#[derive(Default)]
pub(crate) struct DriveOptions {
    /// Answers that the caller gave before their questions were open.
    pub(crate) answers: EarlyAnswers,
    /// The outputs that the run keeps from the run that it repeats.
    pub(crate) kept_outputs: KeptOutputs,
    /// Milliseconds for which the driver waits for timers when only timers continue the run. `None`: no limit.
    pub(crate) patience_ms: Option<u64>,
    /// True if the driver parks the run when only people and events can continue it.
    pub(crate) parks: bool,
    /// True if the process drives no other run when this one begins.
    pub(crate) alone: bool,
}

/// The run with which a drive begins.
pub(crate) enum Begin {
    /// A new run, with its whole input.
    New(Json),
    /// A run that the journal already has.
    Again {
        /// True if a person requested the drive.
        by_hand: bool,
    },
}

/// Merges two objects. A member of `given`, from the caller, replaces the default of the same name. A value that is
/// not an object counts as empty.
pub(crate) fn merge(defaults: &Json, given: &Json) -> Json {
    let members = |json: &Json| json.as_object().cloned().unwrap_or_default();
    let mut merged = members(defaults);
    merged.extend(members(given));
    Json::Object(Arc::new(merged))
}
