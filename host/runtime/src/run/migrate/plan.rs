//! The plan of a move of a run to another version of its flow.

use flowcell_contract::{NodeId, RunId};
use serde::{Deserialize, Serialize};

use crate::{
    limits::MAX_MOVES,
    run::{PlannedNode, Reason, RenameError, Renamed},
};

/// The nodes that a move of a run to another version of its flow keeps, and those that start anew.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MigrationPlan {
    /// The number of the version that the run uses, if the flow is in a library.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_version: Option<u32>,
    /// The number of the other version, if the flow is in a library.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// The nodes that have ended and are unchanged, in the order of the file.
    pub kept: Vec<NodeId>,
    /// The nodes that have begun, have not ended and are unchanged: they go on where they are.
    pub moved: Vec<MovedNode>,
    /// The unchanged nodes that have not begun.
    pub waiting: Vec<NodeId>,
    /// The nodes that start anew: new and changed ones, and those that come after them.
    pub starts: Vec<PlannedNode>,
    /// The nodes that the flow no longer has.
    pub gone: Vec<NodeId>,
    /// The nodes that have another name in the other version. They keep their ids, which the other lists have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub renamed: Vec<Renamed>,
    /// Nodes that may have another name in the other version, with the names in both versions: only one is gone and
    /// only one is new of their type in their body.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub similar: Vec<Renamed>,
    /// True if the run keeps values of its policy that differ from those of the other version: those that it was
    /// started with in place of the flow's, and `totalTimeoutMs`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keeps_policy: bool,
    /// True if the run has answers of its start, which no longer count. Gates then ask, also those that are unchanged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drops_answers: bool,
    /// The reasons for which the run cannot move. Empty: it can.
    pub refused: Vec<RefusedNode>,
}

/// A node that goes on where it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MovedNode {
    /// The node.
    pub node: NodeId,
    /// The state of the node: `ready`, `running`, `waiting`, `retrying`, `blocked` or `inside` (its body has tasks).
    pub state: String,
}

/// A reason for which a run cannot move to another version of its flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusedNode {
    /// The address of the task. `None`: the reason concerns the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// The reason.
    #[serde(flatten)]
    pub obstacle: Obstacle,
}

/// The kind of a reason for which a run cannot move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "obstacle", rename_all = "snake_case")]
pub enum Obstacle {
    /// The run has ended.
    Ended,
    /// The run is not parked.
    NotParked,
    /// The run is being cancelled, or a failure ends it.
    Closing,
    /// The store was restored from an older copy, and the run was not resumed by hand since.
    Restored,
    /// Another run has called this one.
    Called {
        /// The other run.
        parent: RunId,
    },
    /// The run belongs to a session.
    Session,
    /// The run uses this version already.
    SameVersion,
    /// The run has moved [`MAX_MOVES`] times.
    TooManyMoves,
    /// One of the versions has cycles of edges that repeat their nodes.
    Cycle,
    /// The input of the run does not fit the other version.
    OtherInput {
        /// The misfit.
        message: String,
    },
    /// A call of the task is in progress.
    CallInProgress,
    /// It is unknown whether a call of the task happened.
    AmbiguousCall,
    /// The task is about to end.
    Ending,
    /// The node succeeded, and would have to run again.
    Succeeded {
        /// The reason for running it again.
        why: Reason,
    },
    /// The node has begun and not ended, and would have to start anew.
    InProgress {
        /// The state of the node, as in [`MovedNode::state`].
        state: String,
        /// The reason for starting it anew. `None`: the node is gone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<Reason>,
    },
    /// The node has failed, the other version does not handle the failure, and its `failFast` would end the run at
    /// once.
    Unhandled,
    /// A person decided something at the node, and a node that depends on it is another one or starts anew.
    Answered {
        /// The other node.
        node: NodeId,
    },
    /// A node cannot have another name in the other version.
    #[serde(untagged)]
    Renaming(RenameError),
}

impl Obstacle {
    /// Returns a stable code, which is the member `obstacle` of the JSON form.
    pub fn code(&self) -> &'static str {
        match self {
            Obstacle::Ended => "ended",
            Obstacle::NotParked => "not_parked",
            Obstacle::Closing => "closing",
            Obstacle::Restored => "restored",
            Obstacle::Called { .. } => "called",
            Obstacle::Session => "session",
            Obstacle::SameVersion => "same_version",
            Obstacle::TooManyMoves => "too_many_moves",
            Obstacle::Cycle => "cycle",
            Obstacle::OtherInput { .. } => "other_input",
            Obstacle::CallInProgress => "call_in_progress",
            Obstacle::AmbiguousCall => "ambiguous_call",
            Obstacle::Ending => "ending",
            Obstacle::Succeeded { .. } => "succeeded",
            Obstacle::InProgress { .. } => "in_progress",
            Obstacle::Unhandled => "unhandled",
            Obstacle::Answered { .. } => "answered",
            Obstacle::Renaming(error) => error.code(),
        }
    }

    /// Returns the reason, and what to do, as a text for people.
    pub fn text(&self) -> String {
        let retry = "repeat the run in the other version with `runs retry --flow-version`";
        match self {
            Obstacle::Ended => format!("the run has ended; {retry}"),
            Obstacle::NotParked => "the run is not parked; resume it, and try again when it waits".into(),
            Obstacle::Closing => "the run is about to end; resume it".into(),
            Obstacle::Restored => "the store was restored from an older copy; resume the run first".into(),
            Obstacle::Called { parent } => format!("the run was called by `{parent}`; move that run"),
            Obstacle::Session => {
                "the run belongs to a session; start the flow again with the same prefix, which uses its present version"
                    .into()
            }
            Obstacle::SameVersion => "the run uses this version already".into(),
            Obstacle::Cycle => format!("a version of the flow has a cycle of edges, whose passes do not move; {retry}"),
            Obstacle::TooManyMoves => format!("the run has moved {MAX_MOVES} times, which is the limit; {retry}"),
            Obstacle::OtherInput { message } => {
                format!("the input of the run does not fit the other version: {message}; start a new run of it")
            }
            Obstacle::CallInProgress => "a call is in progress; resume the run until the call has ended".into(),
            Obstacle::AmbiguousCall => {
                "it is unknown whether a call happened; decide with `runs resolve`, and try again".into()
            }
            Obstacle::Ending => "it is about to end; resume the run until it has ended".into(),
            Obstacle::Succeeded { why } => {
                format!("it succeeded and would have to run again: {}; {retry}", why.text())
            }
            Obstacle::InProgress { state, why } => {
                let why = why.as_ref().map_or_else(|| "it is gone".into(), Reason::text);
                format!("it is {state} and would have to start anew: {why}; resume the run until it has ended, or {retry}")
            }
            Obstacle::Unhandled => {
                format!("it has failed, and the other version would end the run for it (`failFast`); {retry}")
            }
            Obstacle::Answered { node } => format!(
                "a person decided something at it, and `{}` after it is another one or starts anew; to let the decision \
                 count, keep the answers",
                node.as_str()
            ),
            Obstacle::Renaming(error) => error.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_an_obstacle_is_the_one_of_its_json_form() {
        let why = Reason::New;
        let all = [
            Obstacle::Ended,
            Obstacle::NotParked,
            Obstacle::Closing,
            Obstacle::Restored,
            Obstacle::Called { parent: "p".into() },
            Obstacle::Session,
            Obstacle::SameVersion,
            Obstacle::TooManyMoves,
            Obstacle::Cycle,
            Obstacle::OtherInput { message: "m".into() },
            Obstacle::CallInProgress,
            Obstacle::AmbiguousCall,
            Obstacle::Ending,
            Obstacle::Succeeded { why: why.clone() },
            Obstacle::InProgress { state: "waiting".into(), why: Some(why) },
            Obstacle::Unhandled,
            Obstacle::Answered { node: "n".into() },
            Obstacle::Renaming(RenameError::Unknown { node: "n".into() }),
            Obstacle::Renaming(RenameError::Missing { node: "n".into() }),
            Obstacle::Renaming(RenameError::Kept { from: "n".into(), to: "m".into() }),
            Obstacle::Renaming(RenameError::Taken { from: "n".into(), to: "m".into() }),
            Obstacle::Renaming(RenameError::Twice { node: "n".into() }),
            Obstacle::Renaming(RenameError::Elsewhere { from: "n".into(), to: "m".into() }),
            Obstacle::Renaming(RenameError::Clash { id: "n".into(), name: "m".into() }),
        ];
        for obstacle in all {
            let refused = RefusedNode { task: None, obstacle };
            let written = serde_json::to_value(&refused).unwrap_or_default();
            assert_eq!(written["obstacle"], refused.obstacle.code());
            assert_eq!(serde_json::from_value::<RefusedNode>(written).ok(), Some(refused));
        }
    }
}
