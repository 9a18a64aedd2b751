//! One try of a task, and who performs it.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::{Calls, Digest, Failure, Grants, NodeId, RunId, ScopePath, Step, Tenant, Value};

/// Everything that a runner needs to run a node once. Serialisable, so that a runner may be another process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// Whose run it is.
    pub tenant: Tenant,
    /// Which run.
    pub run_id: RunId,
    /// The flow's name.
    pub flow: Arc<str>,
    /// Which node.
    pub node_id: NodeId,
    /// The node type's name, without its version.
    pub node_type: Arc<str>,
    /// The pack that offers it.
    pub pack: Digest,
    /// In which pass through bodies.
    pub scope: ScopePath,
    /// Which try, from 1.
    pub attempt: u32,
    /// How often this attempt was resumed after a pause, from 0.
    pub resumes: u32,
    /// The rendered input.
    pub input: Value,
    /// The rendered config.
    pub config: Value,
    /// What the node's last pause left.
    pub state: Option<Value>,
    /// What woke it: `{ "index", "wake", "value" | "error" }`.
    pub woken: Option<Value>,
    /// Whether the node owns a body.
    pub has_body: bool,
    /// What the flow grants.
    pub grants: Arc<Grants>,
    /// Milliseconds since 1970 that the attempt sees as now.
    pub now_ms: u64,
    /// The seed of the attempt's random stream.
    pub seed: u64,
}

/// The answer of an attempt.
pub type StepResult = Result<Step, Failure>;

/// Runs nodes: the engine, or a script in tests.
pub trait NodeRunner: Send + Sync {
    /// Runs one attempt to its answer. Dropping the future stops the node.
    fn run(&self, attempt: Attempt, calls: Arc<dyn Calls>) -> BoxFuture<'static, StepResult>;

    /// Does what a first attempt of these packs would have to wait for, so that it is not counted as its time. What does
    /// not work fails the attempts that need it.
    fn prepare(&self, _packs: Vec<Digest>) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}
