//! The options of a caller for one run.

use std::{collections::HashMap, sync::Arc, time::Duration};

use flowcell_contract::{Json, RunId};
use flowcell_flow::{graph::FlowPolicy, labels::Labels};

use crate::{fact::Write, hub::Channel, ports::Change};

/// The options of a caller for one run.
#[derive(Default)]
pub struct RunOptions {
    /// The id of the run. Default: a new id.
    pub run_id: Option<RunId>,
    /// Members that take precedence over the flow's defaults; an object, or `null`.
    pub input: Json,
    /// Front ends that receive all events from the first one on.
    pub channels: Vec<Arc<dyn Channel>>,
    /// The values that take precedence over the flow's policy.
    pub policy: PolicyOverride,
    /// Answers to later questions, by the address of the asking node or by its id. `ADDRESS#CALL` answers the
    /// question about a call of an agent in its first attempt. A new run records the answers.
    pub answers: HashMap<String, Json>,
    /// True if the driver stays while only people or events from outside can continue the run. Otherwise it parks the
    /// run.
    pub wait_for_answers: bool,
    /// The time to wait for timers when only they continue the run. If no timer is due within this time, the driver
    /// parks the run. `None`: no limit.
    pub patience: Option<Duration>,
    /// True if a person requests to continue an existing run. The run is then tried again although its process has
    /// died repeatedly.
    pub by_hand: bool,
    /// The parent of the run, which must exist. The store keeps the run as long as it keeps the parent, and lists the
    /// run below the parent.
    pub parent: Option<RunId>,
    /// The changes of sessions and step states that a new run makes with its first unit.
    pub rows: Vec<Change>,
    /// State of the flow that a new run writes with its first unit.
    pub writes: Vec<Write>,
    /// The digest of the request that begins the run. A run with the same id continues only if it began with the same
    /// request. Later changes of its flow do not matter.
    pub request: Option<Box<str>>,
    /// True if [`RunResult::events`] stays empty, for callers that have a channel.
    pub without_events: bool,
    /// The labels of a new run. They replace labels of the flow with the same names.
    pub labels: Labels,
    /// The id of the trigger that starts the run.
    pub trigger: Option<Box<str>>,
    /// The version of the flow in its library.
    pub version: Option<u32>,
}

/// Parts of a flow's policy that a caller changes.
#[derive(Clone, Copy, Debug, Default)]
pub struct PolicyOverride {
    /// Overrides [`FlowPolicy::fail_fast`] if present.
    pub fail_fast: Option<bool>,
    /// Overrides [`FlowPolicy::total_timeout_ms`] if present.
    pub total_timeout_ms: Option<u64>,
    /// Overrides [`FlowPolicy::max_concurrency`] if present; at least 1.
    pub max_concurrency: Option<u32>,
}

impl PolicyOverride {
    pub(super) fn apply(self, policy: &FlowPolicy) -> FlowPolicy {
        FlowPolicy {
            fail_fast: self.fail_fast.unwrap_or(policy.fail_fast),
            total_timeout_ms: self.total_timeout_ms.or(policy.total_timeout_ms),
            max_concurrency: self.max_concurrency.unwrap_or(policy.max_concurrency).max(1),
        }
    }
}
