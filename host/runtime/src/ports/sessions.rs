//! Sessions and the states of steps: rows beside the journal, which are written together with the facts that they follow
//! from, and so are never apart from them. What follows from which fact is known to whoever understands the flow's labels.

use std::sync::Arc;

use flowcell_contract::{Json, RunId, Tenant};
use flowcell_flow::graph::Graph;
use serde::{Deserialize, Serialize};

use super::{StoreError, Unit};
use crate::fact::TaskKey;

/// A session: what one step of a flow goes on with, run after run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    /// Its id.
    pub id: String,
    /// The session of the step before; none: it is the root of a tree.
    pub parent: Option<String>,
    /// The root of its tree.
    pub root: String,
    /// What people call it.
    pub title: String,
    /// The run that wrote to it last.
    pub run: RunId,
    /// When it was made, in milliseconds since 1970.
    pub created: u64,
    /// When it was written to last.
    pub updated: u64,
}

/// How a step stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StepStatus {
    /// It has begun.
    Running,
    /// It has an output.
    Completed,
    /// Its last try has failed.
    Failed,
    /// It is left to the next run.
    Postponed,
}

impl StepStatus {
    /// All of them.
    pub const ALL: [StepStatus; 4] =
        [StepStatus::Running, StepStatus::Completed, StepStatus::Failed, StepStatus::Postponed];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            StepStatus::Running => "running",
            StepStatus::Completed => "completed",
            StepStatus::Failed => "failed",
            StepStatus::Postponed => "postponed",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<StepStatus> {
        StepStatus::ALL.into_iter().find(|status| status.name() == name)
    }
}

/// How the step of a session stands.
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
    /// How it stands.
    pub status: StepStatus,
    /// The arguments that it was given.
    pub args: Json,
    /// What came of it, as text; of a failed step why.
    pub output: Option<String>,
    /// Whether the output is JSON that was checked against a schema.
    pub is_struct_output: bool,
    /// When the step first began, in milliseconds since 1970.
    pub created: u64,
    /// When it last changed.
    pub updated: u64,
}

/// A change of the rows. The run and the time are those of the unit that it goes with.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The sessions of a tree are removed, and with them the states of their steps.
    Clear {
        /// The tree's root.
        root: String,
    },
    /// The states of a tree are removed; its sessions stay.
    Renew {
        /// The tree's root.
        root: String,
    },
    /// A session is made, or one that is there is the run's from now on.
    Session {
        /// Its id.
        id: String,
        /// The session of the step before.
        parent: Option<String>,
        /// The tree's root.
        root: String,
        /// What people call it.
        title: String,
    },
    /// A step has begun, or is left to the next run.
    Begun {
        /// Its session, which is there.
        session: String,
        /// The tree's root.
        root: String,
        /// The flow.
        flow: String,
        /// The step.
        step: String,
        /// How it stands.
        status: StepStatus,
        /// The arguments that it is given.
        args: Json,
    },
    /// A step that has begun ended.
    Ended {
        /// Its session.
        session: String,
        /// How it stands.
        status: StepStatus,
        /// What came of it.
        output: String,
        /// Whether that is JSON that was checked against a schema.
        is_struct_output: bool,
    },
}

/// What the rows say, always of what is durable.
pub trait Sessions: Send + Sync {
    /// The session with this id.
    fn session(&self, tenant: &Tenant, id: &str) -> Result<Option<Session>, StoreError>;

    /// The sessions of a tree, the oldest first.
    fn sessions(&self, tenant: &Tenant, root: &str) -> Result<Vec<Session>, StoreError>;

    /// The states of a tree's steps, the oldest first.
    fn states(&self, tenant: &Tenant, root: &str) -> Result<Vec<StepState>, StoreError>;
}

/// Follows one run, and says which rows change with its facts.
pub trait Projection: Send {
    /// The changes that follow from a unit. It sees every unit of the run once, in order: what was written before the
    /// run was resumed, too, whose changes are there already. `input` is what a running task was given, as far as it can
    /// be computed; of tasks of earlier units `null`.
    fn project(&mut self, unit: &Unit, input: &dyn Fn(TaskKey) -> Json) -> Vec<Change>;
}

/// Knows for which flows there are rows.
pub trait Projections: Send + Sync {
    /// What follows a run of this flow; none: it has no rows.
    fn of(&self, graph: &Arc<Graph>) -> Option<Box<dyn Projection>>;
}

/// No flow has rows.
pub struct NoProjections;

impl Projections for NoProjections {
    fn of(&self, _: &Arc<Graph>) -> Option<Box<dyn Projection>> {
        None
    }
}
