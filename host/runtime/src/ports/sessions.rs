//! Sessions and step states of agentic flows: rows that a store keeps beside the journal. The rows outlive a run, and
//! the next run of the flow under the same prefix continues from them. A store writes them together with the facts that
//! cause them, so rows and facts always agree. A [`Projection`] derives the rows from the facts and the flow's labels.

use std::sync::Arc;

use flowcell_contract::{Json, RunId, Tenant};
use flowcell_flow::graph::Graph;
use serde::{Deserialize, Serialize};

use super::{StoreError, Unit};
use crate::fact::TaskKey;

/// The session of one step of an agentic flow. Each run under the same prefix continues it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    /// The id of the session.
    pub id: String,
    /// The id of the session of the step before. `None`: this session is the root of its tree.
    pub parent: Option<String>,
    /// The root of the session's tree.
    pub root: String,
    /// The title for people.
    pub title: String,
    /// The run that last wrote to the session.
    pub run: RunId,
    /// The time of the session's creation, in milliseconds since 1970.
    pub created: u64,
    /// The time of the last write, in milliseconds since 1970.
    pub updated: u64,
}

/// The status of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StepStatus {
    /// The step has started.
    Running,
    /// The step has an output.
    Completed,
    /// The last attempt of the step has failed.
    Failed,
    /// The step is left to the next run.
    Postponed,
}

impl StepStatus {
    /// All statuses, in the order of their declaration.
    pub const ALL: [StepStatus; 4] =
        [StepStatus::Running, StepStatus::Completed, StepStatus::Failed, StepStatus::Postponed];

    /// Returns the name that the tables use.
    pub fn name(self) -> &'static str {
        match self {
            StepStatus::Running => "running",
            StepStatus::Completed => "completed",
            StepStatus::Failed => "failed",
            StepStatus::Postponed => "postponed",
        }
    }

    /// Finds the status with this name.
    pub fn named(name: &str) -> Option<StepStatus> {
        StepStatus::ALL.into_iter().find(|status| status.name() == name)
    }
}

/// The state of the step that has this session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepState {
    /// The session of the step.
    pub session: String,
    /// The root of the session's tree.
    pub root: String,
    /// The name of the flow.
    pub flow: String,
    /// The name of the step.
    pub step: String,
    /// The status of the step.
    pub status: StepStatus,
    /// The arguments of the step.
    pub args: Json,
    /// The output as text, or the reason of a failure.
    pub output: Option<String>,
    /// True if the output is JSON that was checked against a schema.
    pub is_struct_output: bool,
    /// The time of the step's first start, in milliseconds since 1970.
    pub created: u64,
    /// The time of the last change, in milliseconds since 1970.
    pub updated: u64,
}

/// A change of sessions or step states. Its run and time are those of the unit with which it is written.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Removes the sessions of a tree, with their step states.
    Clear {
        /// The root of the tree.
        root: String,
    },
    /// Removes the step states of a tree, and keeps its sessions.
    Renew {
        /// The root of the tree.
        root: String,
    },
    /// Creates a session, or assigns an existing one to the run.
    Session {
        /// The id of the session.
        id: String,
        /// The session of the previous step.
        parent: Option<String>,
        /// The root of the tree.
        root: String,
        /// The title for people.
        title: String,
    },
    /// Starts a step, or postpones it to the next run.
    Begun {
        /// The id of the step's session, which exists already.
        session: String,
        /// The root of the tree.
        root: String,
        /// The name of the flow.
        flow: String,
        /// The name of the step.
        step: String,
        /// The status of the step.
        status: StepStatus,
        /// The arguments of the step.
        args: Json,
    },
    /// Ends a step that has started.
    Ended {
        /// The session of the step.
        session: String,
        /// The status of the step.
        status: StepStatus,
        /// The output of the step.
        output: String,
        /// True if the output is JSON that was checked against a schema.
        is_struct_output: bool,
    },
}

/// Reads sessions and step states. Shows only durable changes.
pub trait Sessions: Send + Sync {
    /// Returns the session with this id.
    fn session(&self, tenant: &Tenant, id: &str) -> Result<Option<Session>, StoreError>;

    /// Lists the sessions of a tree, the oldest first.
    fn sessions(&self, tenant: &Tenant, root: &str) -> Result<Vec<Session>, StoreError>;

    /// Lists the step states of a tree, the oldest first.
    fn states(&self, tenant: &Tenant, root: &str) -> Result<Vec<StepState>, StoreError>;
}

/// Derives changes of rows from the facts of one run.
pub trait Projection: Send {
    /// Derives the changes from a unit. The caller passes every unit of the run once, in order.
    ///
    /// The store already has the changes of units that are older than the last resumption. `input` returns the input
    /// of a running task as far as it can be computed. For tasks of earlier units it returns `null`.
    fn project(&mut self, unit: &Unit, input: &dyn Fn(TaskKey) -> Json) -> Vec<Change>;
}

/// Selects the flows that have sessions.
pub trait Projections: Send + Sync {
    /// Returns the projection of a run of this flow. Returns `None` if the flow has no sessions.
    fn of(&self, graph: &Arc<Graph>) -> Option<Box<dyn Projection>>;
}

/// Selects no flow: no run has sessions.
pub struct NoProjections;

impl Projections for NoProjections {
    fn of(&self, _: &Arc<Graph>) -> Option<Box<dyn Projection>> {
        None
    }
}
