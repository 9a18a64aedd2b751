//! Sessions and the states of steps: rows beside the journal. A store writes them together with the facts that cause them,
//! so the two always agree. A [`Projection`] derives the rows from the facts and the flow's labels.

use std::sync::Arc;

use flowcell_contract::{Json, RunId, Tenant};
use flowcell_flow::graph::Graph;
use serde::{Deserialize, Serialize};

use super::{StoreError, Unit};
use crate::fact::TaskKey;

/// The session of one step of a flow, which continues run after run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    /// The id.
    pub id: String,
    /// The session of the step before; the root of a tree has none.
    pub parent: Option<String>,
    /// The root of its tree.
    pub root: String,
    /// The title for people.
    pub title: String,
    /// The run that wrote to it last.
    pub run: RunId,
    /// The time of its creation, in milliseconds since 1970.
    pub created: u64,
    /// The time of the last write.
    pub updated: u64,
}

/// The status of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StepStatus {
    /// It has started.
    Running,
    /// It has an output.
    Completed,
    /// Its last attempt has failed.
    Failed,
    /// It is left to the next run.
    Postponed,
}

impl StepStatus {
    /// All statuses.
    pub const ALL: [StepStatus; 4] =
        [StepStatus::Running, StepStatus::Completed, StepStatus::Failed, StepStatus::Postponed];

    /// The name in tables.
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

/// The state of a session's step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepState {
    /// Its session.
    pub session: String,
    /// The root of its session's tree.
    pub root: String,
    /// The flow.
    pub flow: String,
    /// The step.
    pub step: String,
    /// The status.
    pub status: StepStatus,
    /// The arguments.
    pub args: Json,
    /// The output as text, or the reason of a failure.
    pub output: Option<String>,
    /// True if the output is JSON that was checked against a schema.
    pub is_struct_output: bool,
    /// The time of the step's first start, in milliseconds since 1970.
    pub created: u64,
    /// The time of the last change.
    pub updated: u64,
}

/// A change of the rows. Its run and time are those of the unit that carries it.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Removes the sessions of a tree and the states of their steps.
    Clear {
        /// The tree's root.
        root: String,
    },
    /// Removes the states of a tree and keeps its sessions.
    Renew {
        /// The tree's root.
        root: String,
    },
    /// Creates a session, or assigns an existing one to the run.
    Session {
        /// The id.
        id: String,
        /// The session of the step before.
        parent: Option<String>,
        /// The tree's root.
        root: String,
        /// The title for people.
        title: String,
    },
    /// Starts a step, or postpones it to the next run.
    Begun {
        /// Its session, which exists.
        session: String,
        /// The tree's root.
        root: String,
        /// The flow.
        flow: String,
        /// The step.
        step: String,
        /// The status.
        status: StepStatus,
        /// The arguments.
        args: Json,
    },
    /// Ends a step that has started.
    Ended {
        /// Its session.
        session: String,
        /// The status.
        status: StepStatus,
        /// The output.
        output: String,
        /// True if the output is JSON that was checked against a schema.
        is_struct_output: bool,
    },
}

/// Reads sessions and states. It shows the durable prefix.
pub trait Sessions: Send + Sync {
    /// Returns the session with this id.
    fn session(&self, tenant: &Tenant, id: &str) -> Result<Option<Session>, StoreError>;

    /// Lists the sessions of a tree, the oldest first.
    fn sessions(&self, tenant: &Tenant, root: &str) -> Result<Vec<Session>, StoreError>;

    /// Lists the states of a tree's steps, the oldest first.
    fn states(&self, tenant: &Tenant, root: &str) -> Result<Vec<StepState>, StoreError>;
}

/// Derives changes of rows from the facts of one run.
pub trait Projection: Send {
    /// Derives the changes from a unit. The caller passes every unit of the run once, in order; the store has the changes
    /// of units that are older than the last resumption already. `input` returns the input of a running task as far as it
    /// can be computed, and `null` for tasks of earlier units.
    fn project(&mut self, unit: &Unit, input: &dyn Fn(TaskKey) -> Json) -> Vec<Change>;
}

/// Selects the flows that have rows.
pub trait Projections: Send + Sync {
    /// Returns the projection of a run of this flow. Returns `None` if the flow has no rows.
    fn of(&self, graph: &Arc<Graph>) -> Option<Box<dyn Projection>>;
}

/// The selection of no flow.
pub struct NoProjections;

impl Projections for NoProjections {
    fn of(&self, _: &Arc<Graph>) -> Option<Box<dyn Projection>> {
        None
    }
}
