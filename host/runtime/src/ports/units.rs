//! Units: the journal records that one decision appends together, and the metadata of their runs.

use std::{collections::BTreeMap, sync::Arc};

use flowcell_contract::{Json, NodeId, RunId};
use flowcell_flow::{
    graph::{FlowPolicy, NodeIx},
    labels::Labels,
};
use serde::{Deserialize, Serialize};

use crate::fact::Fact;

/// All facts of one decision. A journal appends all of them or none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unit {
    /// The number of the first fact. The others follow without a gap.
    pub first_seq: u64,
    /// The time of the decision, in milliseconds since 1970.
    pub ts: u64,
    /// The facts of the decision, in order.
    pub facts: Vec<Fact>,
}

impl Unit {
    /// Returns the number of the first fact after this unit.
    pub fn next_seq(&self) -> u64 {
        self.first_seq + self.facts.len() as u64
    }

    /// Returns the facts before the fact with the number `end`.
    pub(crate) fn facts_before(&self, end: u64) -> &[Fact] {
        let count = usize::try_from(end.saturating_sub(self.first_seq)).unwrap_or(usize::MAX);
        &self.facts[..count.min(self.facts.len())]
    }

    /// Returns the approximate size of the unit's JSON text, in bytes.
    pub fn size(&self) -> u64 {
        self.facts.iter().map(Fact::size).fold(0, u64::saturating_add)
    }
}

/// The key by which a library finds the same version of a flow again: a digest, or a name where flows do not change.
/// Only the library interprets it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pin(pub Arc<str>);

/// The part of an earlier run that a run repeats. The other nodes keep the outputs of the earlier run. Either `from`
/// or `in_version` is present.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "WrittenAgain", into = "WrittenAgain")]
pub struct Again {
    /// The earlier run.
    pub run: RunId,
    /// The first repeated node of the flow itself, if the run has the same version of the flow as the earlier run.
    pub from: Option<NodeId>,
    /// The part, if the run has another version of the flow.
    pub in_version: Option<InVersion>,
    /// True if the repeated nodes ask people their questions again. False: the run keeps the answers of the earlier
    /// run, as all runs did in older versions.
    pub asks_again: bool,
}

/// The stored form of an [`Again`]: one of `from`, `in_version` and `renaming` is present. Older programs do not know
/// `renaming`, which has names, or `in_version`: they find no part, so they do not drive the run.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenAgain {
    run: RunId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<NodeId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    in_version: Option<InVersion>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    renaming: Option<InVersion>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    asks_again: bool,
}

impl From<WrittenAgain> for Again {
    fn from(written: WrittenAgain) -> Again {
        let WrittenAgain { run, from, in_version, renaming, asks_again } = written;
        Again { run, from, in_version: renaming.or(in_version), asks_again }
    }
}

impl From<Again> for WrittenAgain {
    fn from(again: Again) -> WrittenAgain {
        let Again { run, from, in_version, asks_again } = again;
        let (renaming, in_version) = match in_version {
            Some(part) if !part.names.is_empty() => (Some(part), None),
            part => (None, part),
        };
        WrittenAgain { run, from, in_version, renaming, asks_again }
    }
}

/// The part of an earlier run that a run of another version of the flow repeats.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InVersion {
    /// The node of the flow itself at which the caller wanted to begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<NodeId>,
    /// The nodes of the flow itself that keep their outputs.
    pub kept: Vec<NodeId>,
    /// The nodes that have another name: their names in the version that the earlier run uses, with those in this one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub names: BTreeMap<NodeId, NodeId>,
}

/// The metadata of a run, written with its first unit, and again with each move to another version of its flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The name of the flow.
    pub flow: Arc<str>,
    /// The key of the flow's version in the library.
    pub pin: Pin,
    /// The flow's policy with the overrides from the options of the run.
    pub policy: FlowPolicy,
    /// The number of runs above this one in the run tree.
    pub depth: u32,
    /// The run that called this one, if it is a child.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<RunId>,
    /// The prefix of the idempotency keys of the run's calls: the id of the first run, followed by the address of
    /// the calling task on each level from the first run to this one. The first run is the top run, or a run below
    /// it that was made for a call of a tool. The prefix has no numbers of attempts. If the calling task was
    /// resumed before the call, its address is followed by the number of its resumes.
    #[serde(default = "no_root", skip_serializing_if = "str::is_empty")]
    pub root: Arc<str>,
    /// The part of an earlier run that the run repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<Again>,
    /// The name by which the calling run requested the flow. `None`: no run called this one, or an older version wrote
    /// the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub called: Option<Arc<str>>,
    /// The run that this one repeats, as a whole or in part. If a task of that run has called a flow, the same task of
    /// this run calls the same flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<RunId>,
    /// Answers to later questions that the options of the run contain, by the address of the asking node or by its id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub answers: BTreeMap<String, Json>,
    /// The digest of the request that started the run, by which a repeated request is recognised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Box<str>>,
    /// The version of the flow, if the run was started from a library.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// The labels of the flow, and those of the trigger or of the start of the run, which replace labels of the flow
    /// with the same names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: Labels,
    /// The id of the trigger that started the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<Box<str>>,
    /// The moves of the run to other versions of its flow, in order. `pin` and `version` are those of the last one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<Move>,
}

/// A move of a run to another version of its flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "WrittenMove", into = "WrittenMove")]
pub struct Move {
    /// The key of the version before the move.
    pub from: Pin,
    /// The nodes of the flow itself that are gone or start anew.
    pub dropped: Box<[NodeIx]>,
    /// The names of nodes in the version after the move, by the ids that the run keeps, where they differ.
    pub names: BTreeMap<NodeId, NodeId>,
}

/// The stored form of a [`Move`]: either `dropped` or `renamed` is present. Older programs do not know `renamed`: they
/// fail to read a record with it, so they do not give the nodes of the run other ids.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenMove {
    from: Pin,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dropped: Option<Box<[NodeIx]>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    renamed: Option<RenamedMove>,
}

#[derive(Serialize, Deserialize)]
struct RenamedMove {
    dropped: Box<[NodeIx]>,
    names: BTreeMap<NodeId, NodeId>,
}

impl TryFrom<WrittenMove> for Move {
    type Error = &'static str;

    fn try_from(written: WrittenMove) -> Result<Move, &'static str> {
        let WrittenMove { from, dropped, renamed } = written;
        match (dropped, renamed) {
            (Some(dropped), None) => Ok(Move { from, dropped, names: BTreeMap::new() }),
            (None, Some(RenamedMove { dropped, names })) => Ok(Move { from, dropped, names }),
            _ => Err("a move of the run has neither `dropped` nor `renamed`, or both"),
        }
    }
}

impl From<Move> for WrittenMove {
    fn from(moved: Move) -> WrittenMove {
        let Move { from, dropped, names } = moved;
        match names.is_empty() {
            true => WrittenMove { from, dropped: Some(dropped), renamed: None },
            false => WrittenMove { from, dropped: None, renamed: Some(RenamedMove { dropped, names }) },
        }
    }
}

impl Record {
    /// Returns the names of nodes in the version of the flow that the run uses, by their ids, where they differ.
    pub fn node_names(&self) -> BTreeMap<NodeId, NodeId> {
        self.moves.last().map(|moved| moved.names.clone()).unwrap_or_default()
    }

    /// Returns the run whose called flows this run calls again: the one that it repeats. A run of another version of
    /// its flow calls the flows that this version calls.
    pub(crate) fn calls_as(&self) -> Option<&RunId> {
        let is_retry_in_version = self.again.as_ref().is_some_and(|again| again.in_version.is_some());
        self.repeats.as_ref().filter(|_| !is_retry_in_version && self.moves.is_empty())
    }
}

fn no_root() -> Arc<str> {
    "".into()
}
