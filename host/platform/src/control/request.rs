//! The requests that other processes send to the process that owns the store, and its answers.

use std::{collections::BTreeMap, path::PathBuf};

use flowcell_contract::{Json, RunId};
use flowcell_runtime::{Renames, RunCommand};
use serde::{Deserialize, Serialize};

use super::reach::Reach;
use crate::{library::versions::FlowVersion, tenants::operation::Operation};

/// The code of a refusal by a process that is about to end. The caller asks the next owner, or becomes the owner.
pub(super) const OWNER_STOPPING: &str = "owner_stopping";

/// A request that another process sends to the process that owns the store.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum OwnerRequest {
    /// Sends all recorded events of a run and then its live events, until the run ends or the client disconnects.
    Watch {
        /// The watched run.
        run: RunId,
    },
    /// Accepts a new run of a flow.
    Start {
        /// The flow's file, relative to the root folder.
        flow: PathBuf,
        /// Input members that override the flow's defaults.
        input: Json,
        /// The run's id. Default: a generated id.
        run: Option<RunId>,
        /// Overrides the flow's total timeout, in milliseconds.
        total_timeout_ms: Option<u64>,
        /// Answers to questions that the run will ask. The key is the address of the node that asks, such as `ask`, or
        /// `each[0].ask` in a pass of the body of `each`.
        #[serde(default)]
        answers: BTreeMap<String, Json>,
        /// The labels of the run.
        #[serde(default)]
        labels: BTreeMap<String, String>,
        /// The access that the caller grants its runs.
        #[serde(default)]
        reach: Reach,
        /// True if the caller follows the run's events. The owner then drives the run at once or in its turn, or
        /// refuses it. False if the owner may store the run and drive it later.
        #[serde(default)]
        follow: bool,
    },
    /// Starts a run of an agentic flow, or continues the earlier run under the same prefix: see
    /// [`sessions`](crate::sessions).
    Flow {
        /// The flow's file, relative to the root folder.
        flow: PathBuf,
        /// The prefix of the ids of the flow's sessions. Runs under different prefixes share no state.
        prefix: String,
        /// The flow's arguments.
        args: Json,
        /// True to remove the flow's sessions and step states under this prefix before the run's first step.
        delete: bool,
        /// Overrides the flow's total timeout, in milliseconds.
        total_timeout_ms: Option<u64>,
        /// The access that the caller grants its runs.
        #[serde(default)]
        reach: Reach,
    },
    /// Resumes a run at an operator's request.
    Resume {
        /// The run to resume.
        run: RunId,
        /// The access that the caller grants its runs.
        #[serde(default)]
        reach: Reach,
    },
    /// Repeats a run as a new run.
    Retry {
        /// The run to repeat.
        run: RunId,
        /// The node at which the repetition begins: this node, the nodes after it, and all nodes that did not succeed
        /// are repeated. See `keep_answers` for further nodes. A node in a body is not allowed. `None` repeats all
        /// nodes.
        from: Option<String>,
        /// True to keep the answers of people that the repeated nodes depend on. False to ask again: the nodes with
        /// these answers, and all nodes after them, are then repeated too.
        keep_answers: bool,
        /// The new run's id. Default: a generated id.
        new: Option<RunId>,
        /// Answers to questions that the new run will ask. The key is the address of the node that asks.
        #[serde(default)]
        answers: BTreeMap<String, Json>,
        /// The access that the caller grants its runs.
        #[serde(default)]
        reach: Reach,
    },
    /// Repeats a run as a new run in another version of its flow. It is a request of its own, so that an owner that
    /// does not know it refuses it, and does not repeat the old version.
    RetryInVersion {
        /// The version of the flow.
        version: FlowVersion,
        /// True to answer with the plan of the retry, an [`OwnerReply::Operated`], and to begin nothing.
        #[serde(default)]
        check: bool,
        /// The repetition, as an [`OwnerRequest::Retry`]. Every other kind of request is refused.
        retry: Box<OwnerRequest>,
    },
    /// Repeats a run in a version of its flow that gives nodes other names. An owner that does not know this request
    /// refuses it, instead of repeating the run without the names.
    RetryRenaming {
        /// The nodes that have another name, with the new names.
        renames: Renames,
        /// The repetition, as an [`OwnerRequest::RetryInVersion`]. Every other kind of request is refused.
        retry: Box<OwnerRequest>,
    },
    /// Moves a run to another version of its flow. The answer is an [`OwnerReply::Operated`] with the plan, also if the
    /// plan has reasons that keep the run from moving; then nothing has changed.
    Migrate {
        /// The run to move.
        run: RunId,
        /// The version of the flow.
        version: FlowVersion,
        /// True to let the decisions of people also count for nodes that are new or changed.
        #[serde(default)]
        keep_answers: bool,
        /// True to change nothing.
        #[serde(default)]
        check: bool,
        /// The access that the caller grants its runs.
        #[serde(default)]
        reach: Reach,
    },
    /// Moves a run to a version of its flow in which nodes have other names. It is a request of its own, so that an
    /// owner that does not know it refuses it, and does not move the run without the names.
    MigrateRenaming {
        /// The nodes that have another name, with the new names.
        renames: Renames,
        /// The move, as an [`OwnerRequest::Migrate`]. Every other kind of request is refused.
        migrate: Box<OwnerRequest>,
    },
    /// Sends an operator's command to a run of a tenant.
    OfTenant {
        /// The tenant of the run.
        tenant: String,
        /// The command, as an [`OwnerRequest::Command`]. Every other kind of request is refused.
        request: Box<OwnerRequest>,
    },
    /// Disables a tenant, and cancels its runs that have not ended.
    StopTenant {
        /// The tenant's name.
        name: String,
    },
    /// Tells how a browser reaches the console of the owner, and makes a code for its login.
    Console {
        /// The tenant to log in. `None` is allowed only if the server requires no tokens.
        tenant: Option<String>,
        /// The scopes of the login. An empty list means all that a tenant may have.
        #[serde(default)]
        scopes: Vec<String>,
    },
    /// Reads packs, flows and triggers again.
    Reload,
    /// Performs an operation on tenants, tokens, secrets or the audit log.
    Operate {
        /// The operation to perform.
        operation: Operation,
    },
    /// Sends a command to a run. In the JSON, the members of the command, such as `verb`, stand beside `run`.
    #[serde(untagged)]
    Command {
        /// The run that receives the command.
        run: RunId,
        /// The command to send.
        #[serde(flatten)]
        command: RunCommand,
    },
}

/// The owner's answer to a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OwnerReply {
    /// The request succeeded, and its effect is on stable storage.
    Done {
        /// The run that the request concerned or created.
        run: RunId,
    },
    /// An operation succeeded.
    Operated {
        /// The operation's result.
        result: Json,
    },
    /// The owner refused the request.
    Refused {
        /// A stable error code.
        code: String,
        /// The reason, for people.
        message: String,
    },
}

impl OwnerRequest {
    /// Returns the run that the request concerns. It is `None` for an operation and for a new run without a given id.
    pub fn run(&self) -> Option<&RunId> {
        match self {
            OwnerRequest::Command { run, .. }
            | OwnerRequest::Watch { run }
            | OwnerRequest::Resume { run, .. }
            | OwnerRequest::Migrate { run, .. } => Some(run),
            OwnerRequest::Retry { new, .. } => new.as_ref(),
            OwnerRequest::Start { run, .. } => run.as_ref(),
            OwnerRequest::OfTenant { request, .. }
            | OwnerRequest::RetryInVersion { retry: request, .. }
            | OwnerRequest::RetryRenaming { retry: request, .. }
            | OwnerRequest::MigrateRenaming { migrate: request, .. } => request.run(),
            OwnerRequest::Flow { .. }
            | OwnerRequest::StopTenant { .. }
            | OwnerRequest::Console { .. }
            | OwnerRequest::Reload
            | OwnerRequest::Operate { .. } => None,
        }
    }

    /// Returns true if the request has the same effect once and several times. A client may then send it again if it does
    /// not know whether the owner has handled it.
    pub fn may_be_repeated(&self) -> bool {
        match self {
            OwnerRequest::Watch { .. }
            | OwnerRequest::Resume { .. }
            | OwnerRequest::StopTenant { .. }
            | OwnerRequest::Console { .. }
            | OwnerRequest::Reload
            | OwnerRequest::Command { command: RunCommand::Cancel, .. } => true,
            // A run with this id begins once.
            OwnerRequest::Start { run, .. } | OwnerRequest::Retry { new: run, .. } => run.is_some(),
            OwnerRequest::Migrate { check, .. } => *check,
            OwnerRequest::RetryInVersion { check, retry: request, .. } => *check || request.may_be_repeated(),
            OwnerRequest::OfTenant { request, .. }
            | OwnerRequest::RetryRenaming { retry: request, .. }
            | OwnerRequest::MigrateRenaming { migrate: request, .. } => request.may_be_repeated(),
            OwnerRequest::Command { .. } | OwnerRequest::Flow { .. } | OwnerRequest::Operate { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn only_requests_with_one_effect_may_be_repeated() {
        let start = |run: &str| format!(r#"{{"verb":"start","flow":"f","input":{{}},"run":{run}}}"#);
        for (line, may) in [
            (start(r#""r""#), true),
            (start("null"), false),
            (r#"{"verb":"watch","run":"r"}"#.into(), true),
            (r#"{"verb":"resume","run":"r"}"#.into(), true),
            (r#"{"verb":"cancel","run":"r"}"#.into(), true),
            (r#"{"verb":"send","run":"r","content":"x"}"#.into(), false),
            (r#"{"verb":"retry","run":"r","from":null,"keepAnswers":false,"new":null}"#.into(), false),
            (r#"{"verb":"retry","run":"r","from":null,"keepAnswers":false,"new":"s"}"#.into(), true),
        ] {
            let ask: OwnerRequest = serde_json::from_str(&line).unwrap();
            assert_eq!(ask.may_be_repeated(), may, "{line}");
        }
    }
}
