//! One attempt at a task, and the trait of the runners that perform it.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::{Calls, Digest, Failure, Grants, NodeId, RunId, ScopePath, Step, Tenant, Value};

/// All data with which a runner performs one attempt. It is serialisable, so the runner may be another process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// The tenant that owns the run.
    pub tenant: Tenant,
    /// The run, unique within the tenant.
    pub run_id: RunId,
    /// The flow's name.
    pub flow: Arc<str>,
    /// The id of the node in its flow.
    pub node_id: NodeId,
    /// The node type's name, without its version.
    pub node_type: Arc<str>,
    /// The digest of the pack that offers the node type.
    pub pack: Digest,
    /// The pass that the task belongs to, with the passes around it.
    pub scope: ScopePath,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    /// The number of pauses of this attempt that have ended, from 0. After each of them, the node continues in a new
    /// instance.
    pub resumes: u32,
    /// The input, with its bindings rendered.
    pub input: Value,
    /// The config, with its bindings rendered.
    pub config: Value,
    /// The state that the node's last pause saved. `None` before the first pause.
    pub state: Option<Value>,
    /// The wake that ended the last pause: `{ "index", "wake", "value" | "error" }`. `None` before the first pause.
    pub woken: Option<Value>,
    /// True if the node owns a body.
    pub has_body: bool,
    /// The grants that the flow gives the node.
    pub grants: Arc<Grants>,
    /// The time that the attempt sees as now, in milliseconds since 1970.
    pub now_ms: u64,
    /// The seed of the attempt's random stream.
    pub seed: u64,
    /// True if the run has no other attempt in progress. Then the attempt may compute on the thread that drives the run,
    /// because no other attempt of the run waits for this thread.
    pub alone: bool,
}

/// The result of an attempt: its answer, or a failure.
pub type StepResult = Result<Step, Failure>;

/// Runs nodes. The engine implements this trait, and tests implement it with scripts.
pub trait NodeRunner: Send + Sync {
    /// Runs one attempt to its answer. Dropping the future stops the node.
    fn run(&self, attempt: Attempt, calls: Arc<dyn Calls>) -> BoxFuture<'static, StepResult>;

    /// Compiles these packs for a tenant, or loads their compiled code, before an attempt needs them. If a pack cannot
    /// be prepared, no error is returned here: the attempts that need the pack fail. Does nothing by default.
    fn prepare(&self, _tenant: &Tenant, _packs: Vec<Digest>) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}
