//! A request for a job: the action, the filter and the limits.

use std::collections::{BTreeMap, BTreeSet};

use flowcell_contract::{Json, RunId};
use flowcell_flow::labels::Labels;
use flowcell_runtime::{
    MoveOptions, Renames,
    ports::{Filter, LabelChange},
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{library::versions::FlowVersion, operate::identity::Scope};

/// The number of runs that a job selects, unless its request says otherwise.
pub const DEFAULT_MAX_RUNS: u64 = 10_000;
/// Maximum number of runs that a job can select.
pub const MAX_JOB_RUNS: u64 = 1_000_000;
/// The number of runs that a job selects in a second at most, unless its request says otherwise.
pub const DEFAULT_RUNS_PER_SECOND: u32 = 500;
/// Maximum of the rate of a job, in runs per second.
pub const MAX_RUNS_PER_SECOND: u32 = 10_000;
/// Maximum size of a request for a job, as JSON text in bytes.
pub const MAX_JOB_REQUEST_BYTES: usize = 64 * 1024;
/// Maximum number of characters of the action and the filter in an audit entry.
const MAX_AUDITED_CHARS: usize = 200;

/// The action that a job performs on each run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum JobAction {
    /// Cancels runs that have not ended.
    Cancel,
    /// Resumes runs that are parked.
    Resume,
    /// Repeats ended runs as new runs.
    Retry,
    /// Answers the open question at a gate.
    Answer,
    /// Deletes ended runs.
    Delete,
    /// Sets and removes labels.
    Label,
    /// Moves runs that are parked or need attention to another version of their flow.
    Migrate,
}

impl JobAction {
    /// Returns the name of the action.
    pub fn name(self) -> &'static str {
        match self {
            JobAction::Cancel => "cancel",
            JobAction::Resume => "resume",
            JobAction::Retry => "retry",
            JobAction::Answer => "answer",
            JobAction::Delete => "delete",
            JobAction::Label => "label",
            JobAction::Migrate => "migrate",
        }
    }
}

/// The parameters of an action.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct JobParams {
    /// For `answer`: the address of the gate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<String>,
    /// For `answer`: a text, or `{ "content", "choice"? }`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<Json>,
    /// For `retry`: the node at which the repetition begins. `None` repeats all nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// For `retry` with `from`, and for `migrate`: true to keep the answers of people.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub keep_answers: bool,
    /// For `label`: the labels that the runs get, at most [`LABELS`].
    #[serde(skip_serializing_if = "Labels::is_empty")]
    pub set: Labels,
    /// For `label`: the names of the labels that the runs lose, at most [`LABELS`].
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub remove: BTreeSet<String>,
    /// For `migrate`: the number of the version in the library.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<u32>,
    /// For `retry`: another version of the runs' flow. `None` repeats each run in the version that it used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow_version: Option<FlowVersion>,
    /// For `migrate`, and for `retry` with `flowVersion`: the nodes that have another name in the version, with the new
    /// names.
    #[serde(skip_serializing_if = "Renames::is_empty")]
    pub rename: Renames,
}

impl JobParams {
    /// Returns the change of labels of the action `label`.
    pub(super) fn label_change(&self) -> LabelChange {
        LabelChange { set: self.set.clone(), remove: self.remove.clone() }
    }

    /// Returns the options of the action `migrate`.
    pub(super) fn move_options(&self) -> MoveOptions {
        MoveOptions { keep_answers: self.keep_answers, renames: self.rename.clone() }
    }
}

/// The filter of a job. All given members must match; see [`Filter`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct JobFilter {
    /// Selects the runs of this flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow: Option<String>,
    /// Selects the runs of this version of their flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// Selects the runs with this status, such as `running` or `parked`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Selects the runs that began at this time or later, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// Selects the runs that began before this time, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<u64>,
    /// Selects the failed runs whose error has this code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Selects the failed runs whose error message has words with these prefixes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Selects the failed runs in which this node failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Selects the runs that have each of these labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Selects the runs that this trigger started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger: Option<String>,
    /// Selects the runs that this run has called, instead of top runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<RunId>,
    /// Selects the runs that repeat this run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<RunId>,
    /// Selects the runs whose last change of status was at least this many milliseconds after their start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_duration_ms: Option<u64>,
    /// Selects the runs whose last change of status was at most this many milliseconds after their start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_duration_ms: Option<u64>,
}

impl JobFilter {
    /// Returns the filter of the store for the runs that began at `created`, the job's creation, or earlier.
    pub(super) fn of_store(&self, created: u64, after: Option<RunId>, limit: usize) -> Filter {
        let until = created.saturating_add(1);
        Filter { before: Some(self.before.map_or(until, |before| before.min(until))), ..self.filter(after, limit) }
    }

    /// Returns the filter of the store for at most `limit` runs after the run `after`.
    pub fn filter(&self, after: Option<RunId>, limit: usize) -> Filter {
        let status = |status: &String| if status == "running" { "active".to_owned() } else { status.clone() };
        Filter {
            flow: self.flow.clone(),
            version: self.version,
            status: self.status.as_ref().map(status),
            since: self.since,
            before: self.before,
            error: self.error.clone(),
            text: self.text.clone(),
            node: self.node.clone(),
            labels: self.labels.clone().into_iter().collect(),
            trigger: self.trigger.clone(),
            parent: self.parent.clone(),
            retry_of: self.retry_of.clone(),
            min_duration_ms: self.min_duration_ms,
            max_duration_ms: self.max_duration_ms,
            after,
            after_place: None,
            limit,
        }
    }

    fn check(&self) -> Result<(), String> {
        if *self == JobFilter::default() {
            return Err("the filter is empty; name at least one member, such as `status` or `before`".into());
        }
        // The stored name of `running` is none for callers.
        if self.status.as_deref() == Some("active") {
            return Err("`status` must be `running` for runs that are active".into());
        }
        self.filter(None, 1).check()
    }
}

/// A job to create.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JobRequest {
    /// The action on each run.
    pub action: JobAction,
    /// Selects the runs.
    pub filter: JobFilter,
    /// The parameters of the action.
    #[serde(default)]
    pub params: JobParams,
    /// Maximum number of runs that the job selects, the latest first.
    #[serde(default = "default_max_runs")]
    pub max_runs: u64,
    /// Maximum number of runs that the job selects in a second.
    #[serde(default = "default_rate")]
    pub rate_per_second: u32,
}

fn default_max_runs() -> u64 {
    DEFAULT_MAX_RUNS
}

fn default_rate() -> u32 {
    DEFAULT_RUNS_PER_SECOND
}

impl JobRequest {
    /// Returns the scopes that a caller needs, besides `run:read`.
    pub fn scopes(&self) -> Vec<Scope> {
        match self.action {
            JobAction::Cancel | JobAction::Resume | JobAction::Label => vec![Scope::RunControl],
            // Keeping an approval counts as giving it again.
            JobAction::Retry | JobAction::Migrate if self.params.keep_answers => {
                vec![Scope::RunCreate, Scope::GateDecide]
            }
            JobAction::Retry | JobAction::Migrate => vec![Scope::RunCreate],
            JobAction::Answer => vec![Scope::GateDecide],
            JobAction::Delete => vec![Scope::RunDelete],
        }
    }

    /// Returns true if the job moves its runs to another version of their flow, or repeats them in one.
    pub fn changes_version(&self) -> bool {
        self.action == JobAction::Migrate || self.params.flow_version.is_some()
    }

    /// Returns true if the request is larger than [`MAX_JOB_REQUEST_BYTES`].
    pub(super) fn is_too_large(&self) -> bool {
        serde_json::to_vec(self).map_or(usize::MAX, |text| text.len()) > MAX_JOB_REQUEST_BYTES
    }

    /// Checks the members of the request. The error is a sentence for people.
    pub(super) fn check(&self) -> Result<(), String> {
        self.filter.check()?;
        let JobParams { gate, answer, from, keep_answers, .. } = &self.params;
        self.check_labels()?;
        self.check_version()?;
        let (answers, migrates) = (self.action == JobAction::Answer, self.action == JobAction::Migrate);
        if answers != gate.is_some() || answers != answer.is_some() {
            return Err("`answer` needs `params.gate` and `params.answer`, and no other action takes them".into());
        }
        if self.action != JobAction::Retry && (from.is_some() || *keep_answers && !migrates) {
            return Err(
                "only `retry` takes `params.from`, and only `retry` and `migrate` take `params.keepAnswers`".into()
            );
        }
        if *keep_answers && !migrates && from.is_none() {
            return Err(
                "`params.keepAnswers` needs `params.from`, because a run that is repeated from the start asks \
                        again"
                    .into(),
            );
        }
        if !(1..=MAX_JOB_RUNS).contains(&self.max_runs) {
            return Err(format!("`maxRuns` must be from 1 to {MAX_JOB_RUNS}"));
        }
        if !(1..=MAX_RUNS_PER_SECOND).contains(&self.rate_per_second) {
            return Err(format!("`ratePerSecond` must be from 1 to {MAX_RUNS_PER_SECOND}"));
        }
        Ok(())
    }

    /// Checks the parameters about another version of the runs' flow.
    fn check_version(&self) -> Result<(), String> {
        let JobParams { to, flow_version, rename, .. } = &self.params;
        let migrates = self.action == JobAction::Migrate;
        if migrates != to.is_some() {
            return Err("`migrate` needs `params.to`, the number of a version, and no other action takes it".into());
        }
        if self.action != JobAction::Retry && flow_version.is_some() {
            return Err("only `retry` takes `params.flowVersion`".into());
        }
        if !self.changes_version() && !rename.is_empty() {
            return Err("only `migrate`, and `retry` with `params.flowVersion`, take `params.rename`".into());
        }
        let has_number = migrates || matches!(flow_version, Some(FlowVersion::Number(_)));
        if self.filter.flow.is_some() || !has_number && rename.is_empty() {
            return Ok(());
        }
        Err(match has_number {
            true => format!(
                "`{}` with the number of a version needs the member `flow` in the filter, because the versions of each \
                 flow have their own numbers",
                self.action.name()
            ),
            false => "`params.rename` needs the member `flow` in the filter, as each flow has its own nodes".into(),
        })
    }

    /// Checks the parameters of `label`.
    fn check_labels(&self) -> Result<(), String> {
        let change = self.params.label_change();
        if (change == LabelChange::default()) == (self.action == JobAction::Label) {
            return Err("`label` needs `params.set` or `params.remove`, and no other action takes them".into());
        }
        if self.action == JobAction::Label { change.check() } else { Ok(()) }
    }

    /// Returns the action, its parameters and the filter as a text for the audit log, which keeps 256 characters of it.
    /// A longer text is named by its digest. The value of an answer is not in it.
    pub(super) fn audit_text(&self) -> String {
        let params = JobParams { answer: None, ..self.params.clone() };
        let filter = match params == JobParams::default() {
            true => serde_json::to_string(&self.filter),
            false => serde_json::to_string(&(&params, &self.filter)),
        };
        let filter = filter.unwrap_or_default();
        let text = format!("{} {filter}", self.action.name());
        match text.chars().count() {
            0..=MAX_AUDITED_CHARS => text,
            _ => format!("{} filter sha256:{}", self.action.name(), hex::encode(Sha256::digest(&filter))),
        }
    }
}
