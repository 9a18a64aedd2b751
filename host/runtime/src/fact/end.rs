//! The ends of passes and runs.

use flowcell_contract::{Failure, Json};
use serde::{Deserialize, Serialize};

/// The outcome of a pass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum PassOutcome {
    /// The pass ended with a value.
    Done(Json),
    /// The pass ended with a failure that nothing inside it handled.
    Failed(Box<Failure>),
    /// The pass was cancelled: its task is closing, or another pass of the fan-out has failed.
    Cancelled,
}

/// The end of a scope without success. It is recorded before the tasks of the scope are undone, and nothing that happens
/// meanwhile changes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Unsuccessful {
    /// The scope failed.
    Failed {
        /// The failure that nothing handles.
        failure: Failure,
        /// The address of the failed task, if a task failed.
        task: Option<String>,
    },
    /// The scope was cancelled.
    Cancelled,
}

/// The reason why a run is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelReason {
    /// A caller requested it, or the parent run ended.
    Requested,
    /// The run exceeded `totalTimeoutMs` of the flow.
    TotalTimeout,
    /// The events of the run exceed their maximum number or their maximum bytes.
    TooLarge,
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RunEnd {
    /// The run succeeded, with outputs.
    Succeeded {
        /// The outputs of the run.
        outputs: Json,
    },
    /// The run failed: nothing handled a failure.
    Failed {
        /// The outputs that exist so far.
        outputs: Json,
        /// The failure of the run.
        failure: Failure,
        /// The address of the failed task, if a task failed.
        task: Option<String>,
    },
    /// The run was cancelled.
    Cancelled {
        /// The outputs that exist so far.
        outputs: Json,
    },
}
