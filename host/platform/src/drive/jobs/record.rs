//! A job with its progress, and the parts of its document that only workers see.

use std::{collections::BTreeMap, sync::Arc};

use flowcell_contract::{RunId, Tenant};
use flowcell_runtime::QuestionRef;
use serde::{Deserialize, Serialize};

use super::request::JobRequest;
use crate::{
    Host,
    operate::identity::{Caller, Scope, Scopes},
};

/// Maximum number of errors that a job shows. Further ones are counted.
pub const MAX_SHOWN_ERRORS: usize = 20;
/// Maximum number of characters of an error's message in a job.
pub const MAX_ERROR_CHARS: usize = 500;

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum JobState {
    /// The job goes on.
    Running,
    /// A caller has paused the job.
    Paused,
    /// The job has acted on all of its runs.
    Done,
    /// A caller has cancelled the job.
    Cancelled,
    /// The job may not go on, for the reason in [`Job::reason`].
    Stopped,
}

impl JobState {
    /// Returns whether the job has ended.
    pub fn has_ended(self) -> bool {
        !matches!(self, JobState::Running | JobState::Paused)
    }
}

/// A reason with a stable code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobReason {
    /// The code.
    pub code: String,
    /// The sentence for people.
    pub message: String,
}

impl JobReason {
    pub(super) fn new(code: &str, message: impl std::fmt::Display) -> JobReason {
        let message = message.to_string().chars().take(MAX_ERROR_CHARS).collect();
        JobReason { code: code.to_owned(), message }
    }
}

/// The failed action on a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFailure {
    /// The run.
    pub run: RunId,
    /// The reason.
    #[serde(flatten)]
    pub reason: JobReason,
}

/// The creator of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Creator {
    /// The operator, on the machine of the store.
    Operator,
    /// A caller without a token, of a server without tenants.
    Local,
    /// The token with this id.
    Token(String),
}

impl Creator {
    /// Returns the creator that a caller is.
    pub fn of(caller: &Caller) -> Creator {
        caller.token.as_deref().map_or(Creator::Local, |token| Creator::Token(token.to_owned()))
    }

    /// Returns the actor in audit entries. `None`: the actions of the creator are not logged.
    pub(super) fn actor(&self) -> Option<&str> {
        match self {
            Creator::Operator => Some("operator"),
            Creator::Local => None,
            Creator::Token(id) => Some(id),
        }
    }
}

/// A job with its progress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Job {
    /// The id of the job.
    pub id: String,
    /// The action, the filter and the limits.
    #[serde(flatten)]
    pub request: JobRequest,
    /// The id of the creator's token, `operator`, or `local`.
    pub created_by: String,
    /// The time of the creation, in milliseconds since 1970. Runs that began later are not selected.
    pub created: u64,
    /// The time of the last progress, in milliseconds since 1970.
    pub updated: u64,
    /// The state.
    pub state: JobState,
    /// The reason why the job has stopped, or why it waits.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<JobReason>,
    /// The number of runs that matched at the creation. At most 10,000 were counted.
    pub expected: u64,
    /// True if more than 10,000 runs matched at the creation.
    pub expected_more: bool,
    /// The number of runs that the job has selected so far.
    pub matched: u64,
    /// The number of runs that the job has acted on.
    pub done: u64,
    /// The numbers of runs that the action did not fit, by the code of the reason.
    pub skipped: BTreeMap<String, u64>,
    /// The number of runs on which the action failed.
    pub failed: u64,
    /// The numbers of failures by the code of the reason.
    #[serde(default)]
    pub failures: BTreeMap<String, u64>,
    /// The first failures.
    pub errors: Vec<RunFailure>,
    /// True if the job has ended at its `maxRuns`, and the filter selects more runs.
    pub more: bool,
}

impl Job {
    /// Returns the amounts as a text for the audit log.
    pub(super) fn amounts(&self) -> String {
        let state = serde_json::to_value(self.state).unwrap_or_default();
        let reason = self.reason.as_ref().map(|reason| format!(" {}", reason.code)).unwrap_or_default();
        let skipped: u64 = self.skipped.values().sum();
        let Job { id, request, matched, done, failed, .. } = self;
        format!(
            "{id} {} {}{reason}: {matched} matched, {done} done, {skipped} skipped, {failed} failed",
            request.action.name(),
            state.as_str().unwrap_or_default(),
        )
    }
}

/// A selected run without a stored result. If the process has died, the job may have acted on the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Item {
    pub(super) run: RunId,
    /// The question that the job answers. A later question at the same gate stays open.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) question: Option<QuestionRef>,
}

/// The process that executes a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Holder {
    pub(super) worker: String,
    /// The time until which the process has the job, in milliseconds since 1970.
    pub(super) until: u64,
}

/// The document of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StoredJob {
    pub(super) job: Job,
    pub(super) creator: Creator,
    pub(super) scopes: Vec<String>,
    /// The digest of the idempotency key that the creator has sent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) key: Option<String>,
    /// The last selected run.
    #[serde(default)]
    pub(super) cursor: Option<RunId>,
    /// The runs of the current batch. They are stored before the job acts on them.
    #[serde(default)]
    pub(super) batch: Vec<Item>,
    #[serde(default)]
    pub(super) holder: Option<Holder>,
    /// The number of the last audit entry before the end of the job.
    #[serde(default)]
    pub(super) audit_after: Option<u64>,
}

impl StoredJob {
    pub(super) fn caller(&self, tenant: &Tenant) -> Caller {
        let scopes: Scopes = self.scopes.iter().filter_map(|name| Scope::named(name)).collect();
        let token = match &self.creator {
            Creator::Token(id) => Some(id.as_str().into()),
            _ => None,
        };
        Caller { tenant: tenant.clone(), scopes, token, policy: Arc::default() }
    }

    /// Returns whether another process than `worker` executes the job at `now`. Only a shared store has others.
    pub(super) fn is_held(&self, host: &Host, worker: &str, now: u64) -> bool {
        host.shared().is_some() && self.holder.as_ref().is_some_and(|held| held.worker != worker && now < held.until)
    }
}
